"""Reads what a store's front page holds, as the page's own script does."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

from orchestrator.report.site import page


def shown(results: Path) -> Any:
    """Everything that the page of a store holds."""
    text = (results / page.FILE).read_text()
    (packed,) = re.findall(r'<script type="application/octet-stream" id="data">([^<]*)</script>', text)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def runs_of(data: Any) -> dict[str, dict[str, Any]]:
    """Its runs by their ids."""
    return {run["id"]: run for run in (dict(zip(data["fields"]["run"], row, strict=True)) for row in data["runs"])}
