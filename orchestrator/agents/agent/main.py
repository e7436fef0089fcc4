"""Starts the agent: moves its channel off the standard streams, then answers requests."""

from __future__ import annotations

import os
import sys
from typing import Any

from .ops import Agent


def main() -> None:
    reader, writer = os.dup(0), os.dup(1)
    os.set_blocking(reader, False)
    stdin: Any = sys.stdin.buffer
    first = stdin.read1(1 << 20) or b""  # what came along with this text
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # a stray print must not get between the frames
    os.close(null)
    os.chdir("/")
    Agent((reader, writer), first).serve()
