"""Stamp files of a store by inode, size and times, to tell whether one changed since it was read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from orchestrator.core.paths import safepath
from orchestrator.core.screen import console

MANIFEST = "manifest.json"
PARTIAL = ".partial"  # the end of the name of a run folder that is not sealed
DAMAGED = "it is damaged: restore it from a copy; other runs can be read all the same"

Stamp = tuple[int, int, int]  # of a file: when it was changed (ns), its bytes and its inode


def stamp_of(path: Path | str) -> Stamp | None:
    """Return the stamp of a plain file; None where there is none (a link is none)."""
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return (about.st_mtime_ns, about.st_size, about.st_ino) if stat.S_ISREG(about.st_mode) else None


def manifest_stamps(results: Path) -> Iterator[tuple[str, Stamp]]:
    """Yield every folder with a manifest, from the store's folder, and what tells its manifest from another one."""
    root = str(results)
    for experiment in _folders(root):
        for run in _folders(f"{root}/{experiment}"):
            path = f"{experiment}/{run}"
            if not is_named(path):
                continue
            try:
                about = os.stat(f"{root}/{path}/{MANIFEST}")  # noqa: PTH116 - of ten thousand a Path each would be felt
            except OSError:
                continue
            yield path, (about.st_mtime_ns, about.st_size, about.st_ino)


def is_named(path: str) -> bool:
    """Return whether a path is text in UTF-8; a note tells of those that are left out since theirs is not."""
    if path.isascii() or safepath.is_text(path):
        return True
    console.note(f"left out: {path}: its name is not text in UTF-8", hint="rename it")
    return False


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as found:
            return sorted(entry.name for entry in found if entry.is_dir())
    except OSError:
        return []
