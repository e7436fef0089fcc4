"""Create, seal, list and find run folders: written as `.partial`, sealed by a rename."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import StoreError, UnsafePath
from orchestrator.core.machines import machine
from orchestrator.core.paths import safepath
from orchestrator.store import atomic, folder_lock
from orchestrator.store.manifests import manifest as manifests
from orchestrator.store.manifests.summaries import Controller, Outcome, Summary
from orchestrator.store.stamps import MANIFEST, PARTIAL, is_named

if TYPE_CHECKING:
    from orchestrator.store.manifests.records import Artifact, Manifest

PID_NAMESPACE = Path("/proc/self/ns/pid")
SYNCED_BYTES = 16 << 20  # larger files (captures) are flushed by the kernel in its time; their hashes tell of a loss


def new_run_id(point: str, began_ns: int) -> str:
    """Return a run id of when the run began (UTC, to the millisecond) and its point of the plan; it sorts by time."""
    began = datetime.fromtimestamp(began_ns / 1e9, tz=timezone.utc)
    return f"{began:%Y%m%dT%H%M%S}{began.microsecond // 1000:03d}-{point}"


def process_start(pid: int) -> int | None:
    """Return when a process of this machine started, in clock ticks since boot; None when none of this number lives."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def controller() -> Controller:
    """Identify this controller process, so that another `orch` can tell whether it still lives.

    That holds also once the machine is renamed.
    """
    pid = os.getpid()
    return replace(_own_place(), pid=pid, start=process_start(pid))


def _own_place() -> Controller:
    """Return the boot of the machine and the PID namespace, within which a process's number is unique."""
    return Controller(host=socket.gethostname(), boot=machine.own_kernel(), pids=str(PID_NAMESPACE.readlink()))


class RunFolder:
    """The folder of one run while it is being made."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def create(cls, results: Path, manifest: Manifest) -> RunFolder:
        """Make `<results>/<experiment>/<run>.partial` with a first manifest in it."""
        path = results / manifest.experiment / (manifest.run + PARTIAL)
        folder = cls(path, manifest)
        try:
            path.mkdir(parents=True)
            (path / "hosts").mkdir()
            (path / "tables").mkdir()
            folder.save(manifest)
        except OSError as error:
            raise StoreError(f"{path}: cannot be made: {error.strerror}", hint="--results DIR elsewhere") from None
        return folder

    def save(self, manifest: Manifest) -> None:
        """Replace the run's manifest and write it."""
        self.manifest = manifest
        manifests.save(self.path / MANIFEST, manifest)

    def reopen(self) -> None:
        """Turn a sealed run into an unfinished one; after an interruption `orch recover` can seal it."""
        partial = self.path.with_name(self.path.name + PARTIAL)
        try:
            self.path.rename(partial)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be opened again: {error.strerror}") from None
        self.path = partial

    def hash_files(self) -> None:
        """Record path, size and SHA-256 of every file in the manifest."""
        from orchestrator.store import live

        live.remove(self.path)  # of a controller that was killed
        for folder, *_ in os.walk(self.path):
            atomic.clear(Path(folder))
        self.manifest = replace(self.manifest, artifacts=hashed(self.path))

    def seal(self) -> Path:
        """Write the last manifest, flush to disk, and rename to the final name."""
        self.save(self.manifest)
        flush(self.path)
        final = self.path.with_name(self.path.name.removesuffix(PARTIAL))
        self.path.rename(final)
        sync(final.parent)
        self.path = final
        return final


def flush(folder: Path) -> None:
    """Flush the files of a folder to the disk, except large ones."""
    for path in folder.rglob("*"):
        about = path.lstat()
        if stat.S_ISDIR(about.st_mode) or (stat.S_ISREG(about.st_mode) and about.st_size <= SYNCED_BYTES):
            sync(path)  # what else a program left there, such as a FIFO, might never open


def hashed(folder: Path) -> tuple[Artifact, ...]:
    """Return path, size and SHA-256 of every file in a folder, except manifests and very sparse files."""
    from orchestrator.store.manifests.records import Artifact

    files = sorted(path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode) and path.name != MANIFEST)
    files = [path for path in files if path != folder / folder_lock.FILE and is_named(str(path.relative_to(folder)))]
    return tuple(
        Artifact(path=str(path.relative_to(folder)), bytes=path.stat().st_size, sha256=digest)
        for path, digest in zip(files, _digests(files), strict=True)
        if digest is not None
    )


def _digests(files: Sequence[Path]) -> list[str | None]:
    from concurrent.futures import ThreadPoolExecutor

    try:
        with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
            return list(pool.map(_digest, files))
    except RuntimeError:  # this machine lets no more threads start
        return [_digest(path) for path in files]


def _digest(path: Path) -> str | None:
    """Return the SHA-256 of a file; None for one too sparse to be read."""
    try:
        return sha256(path)
    except UnsafePath:
        return None


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with safepath.opened(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Listed:
    """A run as the store lists it."""

    path: Path
    manifest: Summary

    @property
    def run(self) -> str:
        return self.manifest.run

    @property
    def sealed(self) -> bool:
        return not self.path.name.endswith(PARTIAL)

    @property
    def alive(self) -> bool:
        """Whether the controller of an unsealed run still works on it; one of another machine is taken to."""
        if self.elsewhere:
            return True
        owner = self.manifest.controller or Controller()
        booted_since = owner.boot not in (None, _own_place().boot)
        if booted_since or owner.pid is None or owner.start is None:
            return False
        return process_start(owner.pid) == owner.start

    @property
    def elsewhere(self) -> str:
        """The machine whose controller made the run, where it cannot be told from here whether that still lives."""
        owner, here = self.manifest.controller or Controller(), _own_place()
        if owner.boot is not None and owner.boot == here.boot:  # the name may have changed meanwhile
            return "" if owner.pids == here.pids else owner.host
        return "" if owner.host == here.host else owner.host

    @property
    def outcome(self) -> Outcome:
        """The manifest's outcome; "lost" for a run whose controller is gone."""
        return "lost" if not self.sealed and not self.alive else self.manifest.outcome


@dataclass(frozen=True, slots=True)
class Entry(Listed):
    """A run with its whole manifest."""

    manifest: Manifest


def folders(results: Path) -> list[Path]:
    """Return the folder of every run of the store, whether its manifest can be read or not, in order of path."""
    found = (path.parent for path in sorted(results.glob(f"*/*/{MANIFEST}")))
    return [path for path in found if is_named(f"{path.parent.name}/{path.name}")]


def entries(results: Path) -> Iterator[Entry]:
    """Return every run of the store, oldest first within its experiment; those that cannot be read are passed over."""
    return (entry for entry in map(entry_at, folders(results)) if entry is not None)


def opened(folder: Path) -> Entry:
    """Return the run in a folder; StoreError where there is none, or one that cannot be read."""
    return Entry(folder, manifests.load(folder / MANIFEST))


def entry_at(folder: Path) -> Entry | None:
    """Return the run in a folder; None where there is none, or one that cannot be read."""
    try:
        return opened(folder)
    except StoreError:
        return None


def refuse_anothers(entry: Listed) -> None:
    """Raise StoreError for a run whose folder or manifest another user owns, who could have written anything in it."""
    for path in (entry.path, entry.path / MANIFEST):
        owner = path.lstat().st_uid
        if owner != os.geteuid():
            raise StoreError(
                f"its folder belongs to user {owner}, and you are user {os.geteuid()}",
                hint="let that user do it; or copy it (cp -r) and go on with the copy, if you trust what stands in it",
            )


def find(results: Path, wanted: str) -> Entry:
    """Return the run with this id, a unique beginning or end of it, or this folder; "last" is the one that began last.

    StoreError where there is none, or one that cannot be read.
    """
    if wanted and safepath.is_there(Path(wanted).resolve() / MANIFEST):
        return opened(Path(safepath.utf8(Path(wanted).resolve())))
    # Folders are called like their runs: of ten thousand manifests only those of hits are read.
    names = {path: path.name.removesuffix(PARTIAL) for path in folders(results)}
    if wanted == "last" and names:
        return opened(max(names, key=lambda path: names[path]))
    alike = [path for path in names if wanted and (names[path].startswith(wanted) or names[path].endswith(wanted))]
    if len(alike) == 1:
        return opened(alike[0])
    hits = [entry for entry in map(entry_at, alike) if entry is not None]
    if len(hits) == 1:
        return hits[0]
    if hits:
        raise StoreError(f"{wanted}: {len(hits)} runs match: {', '.join(entry.run for entry in hits[:5])}")
    raise StoreError(f"{wanted}: no such run in {results}", hint="orch ls")


def unwritable(path: Path, error: OSError) -> StoreError:
    """Return the error for results that cannot be written."""
    return StoreError(
        f"{path}: cannot be written: {error.strerror}", hint="make room; `orch recover` then seals what there is"
    )


def began_text(manifest: Summary) -> str:
    """Return when a run began, in local time."""
    return moment_text(manifest.began_ns)


def moment_text(when_ns: int) -> str:
    """Return an instant, local time to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when_ns / 1e9))
