"""Compress or drop captures by age and size, and record it in the manifest (`orch prune`).

Tables stay, and so does every other file. A run's folder may be another user's: what its manifest names is looked for
below the folder alone, and no link is followed. The manifest is written first and the file goes after: a crash in
between leaves a file that the manifest already records as gone, and the next pruning removes it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Literal, TypeVar

from orchestrator.core.errors import StoreError
from orchestrator.core.paths import safepath
from orchestrator.core.units import duration_text, size_text
from orchestrator.store import atomic, folder_lock, rundir
from orchestrator.store.manifests import manifest as manifests
from orchestrator.store.manifests.records import Artifact, Manifest, Pruned, Stayed
from orchestrator.store.rundir import Entry
from orchestrator.store.stamps import MANIFEST

_CAPTURE = re.compile(r"\.pcap(ng)?\d*(\.gz)?$")
_PACKED = ".gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits on captures: ages (s since the run ended) at which they are compressed and dropped, and bytes in all.

    None: without end. Where they are more than `keep_bytes`, those of the oldest runs are dropped first.
    """

    compress_after_s: float | None = None
    drop_after_s: float | None = None
    keep_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A change of one capture; `path` is within the run's folder."""

    run: Path
    path: str
    bytes: int
    what: Literal["compress", "drop"]
    why: str


def checked(entry: Entry) -> Entry:
    """Return the run, if its manifest records files as ours do.

    StoreError or UnsafePath for what somebody else made up.
    """
    _refuse_made_up(entry.manifest)
    return entry


def _refuse_made_up(manifest: Manifest) -> None:
    for one in (*manifest.artifacts, *manifest.pruned, *manifest.stayed):
        safepath.relative(one.path)
    if len({one.path for one in manifest.artifacts}) < len(manifest.artifacts):
        raise StoreError("`artifacts` of its manifest has a file twice")


def captures(entry: Entry) -> list[Artifact]:
    """Return the captures among a sealed run's artefacts, as its manifest records them."""
    return [one for one in entry.manifest.artifacts if _CAPTURE.search(one.path)]


def plan(entries: Iterable[Entry], policy: Policy, *, now_ns: int) -> list[Action]:
    """Return the actions of a policy, oldest runs first; unsealed runs are left alone."""
    sealed = sorted((entry for entry in entries if entry.sealed), key=_ended_ns)
    found: dict[tuple[Path, str], Action] = {}
    kept: list[tuple[Entry, Artifact]] = []
    for entry in sealed:
        age_s = (now_ns - _ended_ns(entry)) / 1e9
        for artifact in captures(entry):
            key = (entry.path, artifact.path)
            if policy.drop_after_s is not None and age_s > policy.drop_after_s:
                found[key] = _action(entry, artifact, "drop", f"older than {_age(policy.drop_after_s)}")
                continue
            kept.append((entry, artifact))
            packed = artifact.path.endswith(_PACKED)
            if policy.compress_after_s is not None and age_s > policy.compress_after_s and not packed:
                found[key] = _action(entry, artifact, "compress", f"older than {_age(policy.compress_after_s)}")
    total = sum(artifact.bytes for _, artifact in kept)
    for entry, artifact in kept:
        if policy.keep_bytes is None or total <= policy.keep_bytes:
            break
        why = f"captures exceed {size_text(policy.keep_bytes)}"
        found[entry.path, artifact.path] = _action(entry, artifact, "drop", why)
        total -= artifact.bytes
    return list(found.values())


def elsewhere(entry: Entry, policy: Policy, *, now_ns: int) -> list[Stayed]:
    """Return the captures of a sealed run that hosts keep for longer than this policy says; they fill no store.

    A host that was given up has more of the run than its captures, and keeps all of it until that is home.
    """
    age_s = (now_ns - _ended_ns(entry)) / 1e9
    old = entry.sealed and policy.drop_after_s is not None and age_s > policy.drop_after_s
    return [one for one in entry.manifest.stayed if one.node not in entry.manifest.given_up] if old else []


def record_dropped(run: Path, gone: Sequence[Stayed], why: str) -> None:
    """Record in a run's manifest that hosts have dropped captures; StoreError when another process prunes it."""
    if not gone:
        return
    with alone(run):
        manifest = rundir.opened(run).manifest
        paths = {one.path for one in gone}
        dropped = [
            Pruned(path=one.path, bytes=one.bytes, sha256=one.sha256, what="drop", why=why, when_ns=time.time_ns())
            for one in gone
        ]
        left = tuple(one for one in manifest.stayed if one.path not in paths)
        manifests.save(run / MANIFEST, replace(manifest, stayed=left, pruned=(*manifest.pruned, *dropped)))


def carry_out(run: Path, actions: Sequence[Action]) -> int:
    """Compress or drop captures of one run and record it in its manifest; return the number of bytes freed.

    StoreError when another process prunes the run, or when a capture is not what the manifest says: then it stays, and
    what was done before stays done.
    """
    with alone(run):
        manifest = rundir.opened(run).manifest
        _refuse_made_up(manifest)
        atomic.clear(run)
        freed = 0
        for path in leftovers(run, manifest):
            freed += path.stat().st_size
            path.unlink()
        for action in actions:
            source = safepath.regular(run, action.path)
            artifact = next((one for one in manifest.artifacts if one.path == action.path), None)
            if source is None or artifact is None or source.stat().st_size != artifact.bytes:
                raise StoreError(f"{run / action.path} is not as large as its manifest says, or gone; it is left alone")
            into = _compress(source, artifact) if action.what == "compress" else None
            manifest = _recorded(manifest, artifact, action, into)
            manifests.save(run / MANIFEST, manifest)
            source.unlink()
            freed += artifact.bytes - (into.bytes if into else 0)
    return freed


def _recorded(manifest: Manifest, artifact: Artifact, action: Action, into: Artifact | None) -> Manifest:
    """Return the manifest with the new record of one of its files."""
    left = [one for one in manifest.artifacts if one is not artifact] + ([into] if into else [])
    gone = Pruned(
        path=artifact.path,
        bytes=artifact.bytes,
        sha256=artifact.sha256,
        what=action.what,
        why=action.why,
        when_ns=time.time_ns(),
        into=into,
    )
    return replace(manifest, artifacts=tuple(sorted(left, key=lambda one: one.path)), pruned=(*manifest.pruned, gone))


def leftovers(run: Path, manifest: Manifest) -> list[Path]:
    """Return the files that an interrupted pruning left.

    These are files that are recorded as gone, and compressed ones that are not recorded.
    """
    there = {one.path for one in manifest.artifacts}
    plain = [path for path in there if _CAPTURE.search(path) and path + _PACKED not in there]
    names = [one.path for one in manifest.pruned if _CAPTURE.search(one.path) and one.path not in there]
    for path in map(_packed, map(PurePosixPath, plain)):
        names += [str(path), str(_unfinished(path))]
    return [path for path in (safepath.regular(run, name) for name in names) if path is not None]


P = TypeVar("P", bound=PurePath)


def _packed(source: P) -> P:
    return source.with_name(source.name + _PACKED)


def _unfinished(packed: P) -> P:
    return packed.with_name(f".{packed.name}.new")


def _compress(source: Path, artifact: Artifact) -> Artifact:
    """Write a gzip file beside a capture, which tcpdump's and Wireshark's users can open; return its record."""
    target = _packed(source)
    temporary = _unfinished(target)
    digest = hashlib.sha256()
    try:
        with source.open("rb") as plain, safepath.fresh(temporary) as raw:
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed:
                while chunk := plain.read(1 << 20):
                    digest.update(chunk)
                    packed.write(chunk)
            raw.flush()
            os.fsync(raw.fileno())
        if digest.hexdigest() != artifact.sha256:
            raise StoreError(f"{source} is not what was sealed; it is left alone")
        shutil.copystat(source, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return Artifact(
        path=str(Path(artifact.path).with_name(target.name)), bytes=target.stat().st_size, sha256=rundir.sha256(target)
    )


def alone(run: Path) -> AbstractContextManager[None]:
    """Hold a sealed run's folder while it is changed; StoreError when another process does so."""
    return folder_lock.held(run, f"{run}: another process changes it")


def _action(entry: Entry, artifact: Artifact, what: Literal["compress", "drop"], why: str) -> Action:
    return Action(run=entry.path, path=artifact.path, bytes=artifact.bytes, what=what, why=why)


def _ended_ns(entry: Entry) -> int:
    return entry.manifest.ended_ns or entry.manifest.began_ns


def age_text(policy: Policy) -> str:
    """Return the reason for dropping a capture that is older than a policy allows."""
    return f"older than {_age(policy.drop_after_s or 0.0)}"


def _age(seconds: float) -> str:
    return f"{seconds / 86400:g} days" if seconds >= 86400 else duration_text(seconds)
