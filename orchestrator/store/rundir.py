"""Run folders: written as `.partial`, sealed by a rename, listed and found again."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from orchestrator.core import machine, safepath
from orchestrator.core.errors import StoreError
from orchestrator.store import shape
from orchestrator.store.records import FORMAT

MANIFEST = "manifest.json"
PARTIAL = ".partial"
PID_NAMESPACE = Path("/proc/self/ns/pid")
SYNCED_BYTES = 16 << 20  # larger files (captures) are flushed by the kernel in its time; their hashes tell of a loss


def new_run_id(point: str, began_ns: int) -> str:
    """When it began (UTC, to the millisecond) and which point of the plan it is: sorts by time, tells repeats apart."""
    began = datetime.fromtimestamp(began_ns / 1e9, tz=timezone.utc)
    return f"{began:%Y%m%dT%H%M%S}{began.microsecond // 1000:03d}-{point}"


def process_start(pid: int) -> int | None:
    """When a process of this machine started, in clock ticks since boot; None when none of this number lives."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def controller() -> dict[str, Any]:
    """Who runs: enough for another `orch` to tell whether this one still lives, also once the machine is renamed."""
    return {"host": socket.gethostname(), **_own_place(), "pid": os.getpid(), "start": process_start(os.getpid())}


def _own_place() -> dict[str, str]:
    """Where a process's number means what it means here: the boot of the machine and the PID namespace."""
    return {"boot": machine.own_kernel(), "pids": str(PID_NAMESPACE.readlink())}


def write_json(path: Path, data: Any) -> None:
    """Write so that a reader, or a crash, finds the old file or the new one, never half of one."""
    temporary = path.with_name(f".{path.name}.new")
    with safepath.fresh(temporary) as file:
        file.write(json.dumps(data, indent=1).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class RunFolder:
    """The folder of one run while it is being made."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(cls, results: Path, *, experiment: str, run: str, manifest: Mapping[str, Any]) -> RunFolder:
        """Make `<results>/<experiment>/<run>.partial` with a first manifest in it."""
        path = results / experiment / (run + PARTIAL)
        try:
            path.mkdir(parents=True)
            (path / "hosts").mkdir()
            (path / "tables").mkdir()
            first = {
                "format": FORMAT,
                "run": run,
                "experiment": experiment,
                "outcome": "running",
                "stage": "start",
                "controller": controller(),
                **manifest,
            }
            folder = cls(path, first)
            folder.save()
        except OSError as error:
            raise StoreError(f"{path}: cannot be made: {error.strerror}", hint="--results DIR elsewhere") from None
        return folder

    def save(self, **changes: Any) -> None:
        """Update the manifest on disk."""
        self.manifest.update(changes)
        write_json(self.path / MANIFEST, self.manifest)

    def reopen(self) -> None:
        """Make a sealed run an unfinished one again; whatever ends this, `orch recover` can seal it."""
        partial = self.path.with_name(self.path.name + PARTIAL)
        try:
            self.path.rename(partial)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be opened again: {error.strerror}") from None
        self.path = partial

    def hash_files(self) -> None:
        """Record path, size and SHA-256 of every file in the manifest."""
        self.manifest["artifacts"] = _hashed(self.path)

    def seal(self) -> Path:
        """Write the last manifest, flush to disk, and rename to the final name."""
        self.save()
        for path in self.path.rglob("*"):
            about = path.lstat()
            if stat.S_ISDIR(about.st_mode) or (stat.S_ISREG(about.st_mode) and about.st_size <= SYNCED_BYTES):
                _sync(path)  # what else a program left there, such as a FIFO, might never open
        final = self.path.with_name(self.path.name.removesuffix(PARTIAL))
        self.path.rename(final)
        _sync(final.parent)
        self.path = final
        return final


def _hashed(folder: Path) -> list[dict[str, Any]]:
    files = sorted(path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode) and path.name != MANIFEST)
    return [
        {"path": str(path.relative_to(folder)), "bytes": path.stat().st_size, "sha256": digest}
        for path, digest in zip(files, _digests(files), strict=True)
    ]


def _digests(files: Sequence[Path]) -> list[str]:
    try:
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            return list(pool.map(sha256, files))
    except RuntimeError:  # this machine lets no more threads start
        return [sha256(path) for path in files]


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Entry:
    """A run as the store lists it."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def run(self) -> str:
        return str(self.manifest["run"])

    @property
    def sealed(self) -> bool:
        return not self.path.name.endswith(PARTIAL)

    @property
    def alive(self) -> bool:
        """Whether the controller of an unsealed run still works on it; one of another machine is taken to."""
        owner = self.manifest.get("controller", {})
        if self.elsewhere:
            return True
        booted_since = owner.get("boot", _own_place()["boot"]) != _own_place()["boot"]
        pid = owner.get("pid")
        return not booted_since and type(pid) is int and process_start(pid) == owner.get("start", -1)

    @property
    def elsewhere(self) -> str:
        """The machine whose controller made the run, where it cannot be told from here whether that still lives."""
        owner = self.manifest.get("controller", {})
        name, here = str(owner.get("host", "another machine")), _own_place()
        if "boot" not in owner:  # made before it was recorded
            return "" if name == socket.gethostname() else name
        if owner["boot"] == here["boot"]:  # the name may have changed meanwhile
            return "" if owner.get("pids") == here["pids"] else name
        return "" if name == socket.gethostname() else name

    @property
    def outcome(self) -> str:
        """The manifest's outcome; "lost" for a run whose controller is gone."""
        recorded = str(self.manifest["outcome"])
        return "lost" if not self.sealed and not self.alive else recorded


def entries(results: Path) -> Iterator[Entry]:
    """Every run of the store, oldest first within its experiment; folders without a manifest are passed over."""
    for path in sorted(results.glob(f"*/*/{MANIFEST}")):
        entry = entry_at(path.parent)
        if entry is not None:
            yield entry


def entry_at(folder: Path) -> Entry | None:
    """The run in a folder; None where there is no manifest, or one that is torn or not of its shape."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return Entry(folder, manifest) if shape.manifest(manifest) else None


def readable(entry: Entry) -> Entry:
    """The entry, if this version can read it; StoreError for one that a later version made."""
    found = entry.manifest.get("format", FORMAT)
    if type(found) is not int or found > FORMAT:
        raise StoreError(
            f"{entry.path / MANIFEST}: is of format {str(found)[:20]}, and this orch reads formats up to {FORMAT}",
            hint="use the version of orch that made it, or a later one",
        )
    return entry


def find(results: Path, wanted: str) -> Entry:
    """The run with this id, a unique beginning or end of it, or this folder; "last" is the one that began last.

    StoreError where there is none, or one that a later version made.
    """
    entry = entry_at(Path(wanted).resolve()) if wanted else None
    if entry is not None:
        return readable(entry)
    # Folders are called like their runs: of ten thousand manifests only those of hits are read.
    names = {path.parent: path.parent.name.removesuffix(PARTIAL) for path in results.glob(f"*/*/{MANIFEST}")}
    if wanted == "last":
        newest = sorted(names, key=lambda path: names[path], reverse=True)
        found = next((entry for entry in map(entry_at, newest) if entry is not None), None)
        hits = [] if found is None else [found]
    else:
        alike = [
            path
            for path in sorted(names)
            if wanted and (names[path].startswith(wanted) or names[path].endswith(wanted))
        ]
        hits = [entry for entry in map(entry_at, alike) if entry is not None]
    if len(hits) == 1:
        return readable(hits[0])
    if hits:
        raise StoreError(f"{wanted}: {len(hits)} runs match: {', '.join(entry.run for entry in hits[:5])}")
    raise StoreError(f"{wanted}: no such run in {results}", hint="orch ls")


def began_text(manifest: Mapping[str, Any]) -> str:
    """When a run began, local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.get("began_ns", 0) / 1e9))
