"""The commands of README's "Ways in", for tests that carry them out as they are written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

_README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
_TABLE = _README.partition("\n## Ways in\n")[2].partition("\n## ")[0]

ROWS = dict(re.findall(r"^\| (\w+ (?:of|over) [^|]+) \| (.+) \|$", _TABLE, re.MULTILINE))


def options(hosts: str) -> list[str]:
    """The words behind the experiment's file in the command for hosts of this kind."""
    (command,) = re.findall(r"^`orch run [^` ]+([^`]*)`", ROWS[hosts])
    return shlex.split(command)
