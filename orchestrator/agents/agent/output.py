"""What processes print, read from their files."""

from __future__ import annotations

import os
from typing import List

LONGEST_LINE = 1 << 20  # of one that does not end, what comes after is left out


def last_words(folder: str) -> str:
    """The end of what a process printed, errors first."""
    for name in ("stderr", "stdout"):
        try:
            with open(os.path.join(folder, name), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                text = file.read(4096).decode(errors="replace").strip()
        except OSError:
            continue
        if text:
            return text
    return ""


class Lines:
    """Whole lines of a file that is being written, from its start."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.rest = b""

    def new(self) -> List[str]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read(1 << 20)
        except FileNotFoundError:
            return []
        self.offset += len(data)
        whole, newline, rest = (self.rest + data).rpartition(b"\n")
        self.rest = rest[:LONGEST_LINE]
        return whole.decode(errors="replace").split("\n") if newline else []
