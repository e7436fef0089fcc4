"""What processes print, read from their files."""

from __future__ import annotations

import os
from typing import List

from ..steps import Refusal
from ..whose import Whose
from .folders import Folder

LONGEST_LINE = 1 << 16  # of one that does not end, what comes after is left out
AT_ONCE = 1 << 18


def last_words(folder: Folder, whose: Whose) -> str:
    """The end of what a process printed, errors first."""
    for name in ("stderr", "stdout"):
        try:
            with open(folder.open(name, os.O_RDONLY, whose), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                text = file.read(4096).decode(errors="replace").strip()
        except (OSError, Refusal):
            continue
        if text:
            return text
    return ""


class Lines:
    """Whole lines of a file that is being written, from its start."""

    def __init__(self, folder: Folder, name: str, whose: Whose) -> None:
        self.folder = folder
        self.name = name
        self.whose = whose
        self.offset = 0
        self.behind = False  # more of the file is there than was read
        self.rest = b""

    def new(self) -> List[str]:
        try:
            with open(self.folder.open(self.name, os.O_RDONLY, self.whose), "rb") as file:
                file.seek(self.offset)
                data = file.read(AT_ONCE)
        except (FileNotFoundError, Refusal):
            self.behind = False
            return []
        self.behind = len(data) == AT_ONCE
        self.offset += len(data)
        whole, newline, rest = (self.rest + data).rpartition(b"\n")
        self.rest = rest[:LONGEST_LINE]
        return whole.decode(errors="replace").split("\n") if newline else []
