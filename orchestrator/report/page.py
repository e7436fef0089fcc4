"""Fill the templates of this package, and write pages with their figures beside them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from orchestrator.core.errors import StoreError

SCRIPTS = ("unpack", "tables", "figures")  # of `script/`, in this order
REPORT = "report-"  # what names of reports begin with
Values = Mapping[str, object]  # what a template, or a loop in it, fills in, by the template's own names


def fill(template: str, **values: Any) -> str:
    """Fill one of this package's templates; values are escaped, since runs bring in what others wrote."""
    return environment().get_template(template).render(values)


def environment() -> jinja2.Environment:
    """Return the Jinja environment of the templates.

    They know the pages' script (`script/`), and the content security policy that allows it and no request.
    """
    script = "\n".join(map(script_named, SCRIPTS))
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["thousands"] = "{:,}".format
    # Matplotlib's drawings and our tables set styles of their elements; pictures of heatmaps lie in the drawings.
    made.globals["policy"] = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    made.globals["script"] = markupsafe.Markup(script)  # noqa: S704 - a file of ours
    return made


def script_named(name: str) -> str:
    """Return one of the scripts of pages."""
    return (Path(__file__).parent / "script" / f"{name}.js").read_text(encoding="utf-8")


def digest(text: str) -> str:
    """Return how a content security policy names a script or a style: by its hash."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def pack(data: Mapping[str, Any]) -> str:
    """Return data for a page's script, which unpacks it: JSON, gzipped, in base64."""
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(plain, compresslevel=6, mtime=0)).decode()


def write(template: str, output: Path, shown: Callable[[Path], Values]) -> Path:
    """Write the page `output`, complete in itself; StoreError when it cannot be written.

    `shown` is given the folder `<output's stem>-figures` beside it, draws its figures there, and returns the
    template's values; the template is told the `folder` and the time at which the page was `made` as well.
    """
    folder = output.with_name(f"{output.stem}-figures")
    made = f"{datetime.now(tz=timezone.utc):%Y-%m-%d %H:%M} UTC"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        output.write_text(fill(template, folder=folder.name, made=made, **shown(folder)), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write the page {output}: {error.strerror}") from error
    return output


def report_name(run: str, more: int = 0) -> str:
    """Return the file name of a run's report, beside the run; that of several runs is called by the first one."""
    return f"{REPORT}{run}{f'-and-{more}-more' if more else ''}.html"
