"""Fill the templates of this package, and write pages with their figures beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import jinja2

from orchestrator.core.errors import StoreError

REPORT = "report-"  # what names of reports begin with
Values = Mapping[str, object]  # what a template, or a loop in it, fills in, by the template's own names


def fill(template: str, **values: Any) -> str:
    """Fill one of this package's templates; values are escaped, since runs bring in what others wrote."""
    return environment().get_template(template).render(values)


def environment() -> jinja2.Environment:
    """Return the Jinja environment of the templates."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["thousands"] = "{:,}".format
    return made


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
