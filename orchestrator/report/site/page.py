"""Writes a store's `index.html`: markup, style and script of our own, and the store's data, in one file.

The page asks nothing of a network and carries out nothing but its own script: its content security policy names that
script and its style by their hashes. What runs say is data (gzipped, in base64), never markup.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.report import page
from orchestrator.report.site import content
from orchestrator.store import atomic

FILE = "index.html"
_HERE = Path(__file__).parent
_SCRIPTS = ("data", "dom", "chart", "runs", "run", "compare", "history", "sweeps", "main")  # in this order


def write(results: Path) -> Path:
    """Write the page of a store, whole or not at all; StoreError where that cannot be done."""
    if not results.is_dir():
        raise StoreError(f"{results}: no such folder", hint="--results DIR names a results folder")
    output = results / FILE
    try:
        atomic.write(output, text(content.of_store(results)).encode())
    except OSError as error:
        raise StoreError(f"cannot write the page {output}: {error.strerror}") from error
    return output


def text(data: content.StoreData) -> str:
    """The page of what `content.of_store` gives."""
    script, style = _script(), page.fill("site/page.css")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return page.fill(
        "site/index.html", store=data["store"], policy=policy, style=style, script=script, data=_packed(data)
    )


def _script() -> str:
    parts = [(_HERE / "script" / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    return "\n".join(["(async () => {", '"use strict";', *parts, "})();"])


def _hash(of: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(of.encode()).digest()).decode()}"


def _packed(data: content.StoreData) -> str:
    plain = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(plain, compresslevel=6, mtime=0)).decode()
