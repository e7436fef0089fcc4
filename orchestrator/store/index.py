"""A list of all runs that is quick at any size: what matters of each manifest, made anew where it is stale.

The index is a cache and nothing more. A run is taken from it only if its manifest has the very size and time of change
that it had when it was read, so that it cannot be wrong about what is there; it is written anew beside the old one and
renamed, so that several controllers, also over NFS, need no lock: the last one wins, and what it did not know is read
again.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from orchestrator.store import shape
from orchestrator.store.rundir import MANIFEST, PARTIAL, Entry, entry_at

FILE = ".index.json"
FORMAT = 1
READERS = 8  # a store on a network answers several at once

# Of a manifest everything but these: they are what makes it large.
_LEFT_OUT = frozenset(
    {"launches", "artifacts", "topology", "versions", "clocks", "kernels", "argv", "free_disk_bytes", "validity"}
)
_LEFT_OUT_OF_WINDOWS = frozenset({"gates", "processors"})


def entries(results: Path) -> list[Entry]:
    """Every run of the store in order of path, with the brief form of its manifest; torn ones are passed over."""
    known = _read(results)
    found = dict(_stamps(results))
    stale = [path for path, stamp in found.items() if known.get(path, {}).get("stamp") != stamp]
    with ThreadPoolExecutor(READERS) as pool:
        fresh = dict(zip(stale, pool.map(lambda path: _brief(results / path), stale), strict=True))
    index: dict[str, dict[str, Any]] = {
        path: {"stamp": stamp, "manifest": fresh[path] if path in fresh else known[path]["manifest"]}
        for path, stamp in found.items()
    }
    if fresh or len(index) != len(known):
        _write(results, {path: kept for path, kept in index.items() if not path.endswith(PARTIAL)})
    return [
        Entry(results / path, kept["manifest"]) for path, kept in sorted(index.items()) if kept["manifest"] is not None
    ]


def brief(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What listings, filters and sweeps need of a manifest."""
    kept = {key: value for key, value in manifest.items() if key not in _LEFT_OUT}
    kept["windows"] = [
        {key: value for key, value in window.items() if key not in _LEFT_OUT_OF_WINDOWS}
        for window in manifest.get("windows", [])
    ]
    return kept


def _brief(folder: Path) -> dict[str, Any] | None:
    entry = entry_at(folder)
    return None if entry is None else brief(entry.manifest)


def _stamps(results: Path) -> Iterator[tuple[str, list[int]]]:
    """Every folder with a manifest, from the store's folder, and what tells its manifest from another one."""
    for experiment in _folders(results):
        for run in _folders(results / experiment):
            path = f"{experiment}/{run}"
            try:
                stat = os.stat(results / path / MANIFEST)  # noqa: PTH116 - of ten thousand a Path each would be felt
            except OSError:
                continue
            yield path, [stat.st_mtime_ns, stat.st_size, stat.st_ino]


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as found:
            return sorted(entry.name for entry in found if entry.is_dir())
    except OSError:
        return []


def _read(results: Path) -> dict[str, Any]:
    try:
        data = json.loads((results / FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("runs"), dict):
        return {}
    return {path: kept for path, kept in data["runs"].items() if _is_kept(kept)}


def _is_kept(kept: object) -> bool:
    """Whether this is what we wrote of a run: the index may come with a store that is somebody else's."""
    if not isinstance(kept, dict) or not {"stamp", "manifest"} <= kept.keys():
        return False
    return kept["manifest"] is None or shape.manifest(kept["manifest"])


def _write(results: Path, index: Mapping[str, Any]) -> None:
    """Best effort: a store that may only be read is listed too."""
    new = results / f"{FILE}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        new.write_text(json.dumps({"format": FORMAT, "runs": index}, separators=(",", ":")), encoding="utf-8")
        new.replace(results / FILE)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
