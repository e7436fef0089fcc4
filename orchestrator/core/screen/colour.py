"""Colour verdicts in text for a terminal: where they stand as a cell, a count or the head of a line, not in prose."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TextIO

_RED, _GREEN, _YELLOW = "\x1b[31m", "\x1b[32m", "\x1b[33m"
_AS_BEFORE = "\x1b[0m"
_OF: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("INVALID", "FAIL", "failed", "lost", "worse"), _RED),
        **dict.fromkeys(("valid", "ok", "better", "held"), _GREEN),
        **dict.fromkeys(("cannot tell", "interrupted", "not valid", "takes longer"), _YELLOW),
    }
)
_VERDICT = re.compile(rf"(?:^|(?<=  )|(?<=: )|(?<=\d ))({'|'.join(_OF)})(?=  |$|:|,| \()", re.MULTILINE)


def wanted(stream: TextIO) -> bool:
    """Return whether a stream is a terminal whose user has not switched colours off (NO_COLOR, https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def verdicts(text: str) -> str:
    """Return text with its verdicts in colour."""
    return _VERDICT.sub(lambda found: f"{_OF[found[1]]}{found[1]}{_AS_BEFORE}", text)
