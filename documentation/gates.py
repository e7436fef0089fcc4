"""The reference of gates: what each judges, its limit as the code has it, and what to do when it fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from documentation import keys
from orchestrator.experiment.experiment import Validity

FILE = Path(__file__).with_name("gates.yaml")


def entries() -> list[Mapping[str, Any]]:
    """The gates as the file has them."""
    found: list[Mapping[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def page() -> str:
    """A table of all gates as Markdown."""
    limits = keys.defaults_of(Validity.model_json_schema(by_alias=True))
    lines = ["| gate | a window passes when | limit | what to do |", "|---|---|---|---|"]
    for one in entries():
        limit = f"{limits[one['key']]}, by `validity: {{{one['key']}: ...}}`" if "key" in one else one["limit"]
        judges = one["judges"] if one["required"] else f"{one['judges']} (a remark: it fails no window)"
        lines.append(f"| `{one['name']}` | {judges} | {limit} | {one['do']} |")
    return "\n".join(lines)
