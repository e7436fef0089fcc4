"""`orch reduce`: the tables of a sealed run made again, from the files that are home, and sealed with what made them.

Nothing of a run's folder but its files and its manifest counts here: no host is reached, and its experiment.yaml is not
read. All is made in a folder beside the run's, `.RUN.reduce`, of links to the files as they were sealed; then the two
change places. Whatever ends this early, the run is as it was or as it is to be.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from orchestrator.core import lock
from orchestrator.core.errors import Interrupted, OrchError, StoreError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.interrupts import Interrupts, Twice
from orchestrator.core.paths import safepath
from orchestrator.execution import sealing
from orchestrator.execution.sealing import Reducer
from orchestrator.execution.session import holder
from orchestrator.experiment import runtext
from orchestrator.store import atomic, baselines, locked, retention, rundir
from orchestrator.store.manifests.records import Artifact, Manifest, Pruned
from orchestrator.store.rundir import Entry, RunFolder
from orchestrator.store.stamps import MANIFEST, PARTIAL

WITHIN_S = 7 * 86400.0
_TABLES = "tables/"
_say = partial(print, file=sys.stderr)


def reduce(results: Path, wanted: Sequence[str]) -> int:
    """Make the tables of these runs again, one after the other; gives the exit status."""
    settle(results)
    found = [rundir.find(results, name) for name in wanted]
    status = Exit.OK
    for entry in found:
        before = runtext.verdict(entry.manifest, entry.outcome)
        try:
            made = again(entry)
        except Interrupted as error:
            print(f"{entry.run}: {error.message}; it is as it was")
            return Exit.INTERRUPTED
        except OrchError as error:
            status = Exit.FAILED
            print(f"{entry.run}: {error}")
            continue
        verdict = runtext.verdict(made.manifest, made.outcome)
        was = "" if verdict == before else f" (it was {before})"
        print(f"{made.run}: its tables were made again; {verdict}{was}: {made.path}")
        for note in made.manifest.reductions[-1].notes:
            print(f"  note: {note}")
        if made.manifest.given_up:
            more = ", ".join(made.manifest.given_up)
            print(f"  note: {more} has more of it: `orch recover {made.run} --testbed FILE` fetches that")
        for name in baselines.holding(results, made.path):
            print(f"  note: the baseline {name} holds it: what is compared with that is compared with these tables now")
    return status


def settle(results: Path) -> None:
    """Take back what a call began that was killed where folders cannot change places in one instant."""
    for base in results.glob("*/.*.reduce"):
        run = base.with_name(base.name.removeprefix(".").removesuffix(".reduce"))
        if (base / "old").is_dir() and not run.exists():
            (base / "old").rename(run)


def again(entry: Entry) -> Entry:
    """Make the tables of a sealed run again, and judge it by them; gives the run as it is then.

    StoreError, and the run is as it was, where a file is not what was sealed, or tables cannot be made.
    """
    if not entry.sealed:
        living = f"{entry.run} goes on" if entry.alive else f"{entry.run} is not sealed"
        raise StoreError(living, hint="wait for its end" if entry.alive else f"orch recover {entry.run}")
    with (
        Interrupts() as interrupts,
        lock.within(entry.path.parent, f"recovery-of-{entry.run}", holder(entry.run)),
        retention.alone(entry.path),
    ):
        interrupts.unwinding()  # a signal ends this between two steps
        return _Again(retention.checked(rundir.opened(entry.path)), interrupts).made()


@dataclass(slots=True)
class _Again:
    """One call for one run: `new` is the folder that takes the place of the run's."""

    entry: Entry
    interrupts: Interrupts
    base: Path = field(init=False)
    new: Path = field(init=False)
    twice: Twice = field(init=False)

    def __post_init__(self) -> None:
        run, path = self.entry.run, self.entry.path
        self.base = path.with_name(f".{path.name}.reduce")
        self.new = self.base / (path.name + PARTIAL)  # what lies in it is sealed yet
        self.twice = Twice(self.interrupts.signals, lambda: _say(f"the files of {run} are read: Ctrl-C ends that"))

    def made(self) -> Entry:
        path = self.entry.path
        with self._emptied():
            folder = RunFolder(self.new, self._linked())
            folder.save(folder.manifest)
            self._reduce(folder)
            self._seal(folder)
            _take_along(path, self.new)
            rundir.flush(self.new)
            if not atomic.exchange(self.new, path):
                path.rename(self.base / "old")
                self.new.rename(path)
            rundir.sync(path.parent)
            for old in (self.new, self.base / "old"):
                if old.is_dir():
                    _take_along(old, path)  # what was written there meanwhile, such as a report
        return rundir.opened(path)

    @contextmanager
    def _emptied(self) -> Iterator[None]:
        try:
            shutil.rmtree(self.base, ignore_errors=True)
            self.base.mkdir()  # a link that somebody put there would lead elsewhere
            self.new.mkdir()
            yield
        except OSError as error:
            raise StoreError(
                f"{self.entry.path.parent}: cannot be written: {error.strerror or error}", hint="make room"
            ) from None
        finally:
            if not self.entry.path.exists():  # an error between two renames
                (self.base / "old").rename(self.entry.path)
            shutil.rmtree(self.base, ignore_errors=True)

    def _linked(self) -> Manifest:
        """Link the files that the run was sealed with, if they are still what they were; its manifest with those."""
        manifest, path = self.entry.manifest, self.entry.path
        captures = {one.path for one in retention.captures(self.entry)}
        kept: list[Artifact] = []
        gone: list[Pruned] = []
        for one in manifest.artifacts:
            if one.path.startswith(_TABLES):
                continue
            if self.interrupts.ended_by(self.twice):
                raise Interrupted("Ctrl-C ended the reading of its files")
            source = safepath.regular(path, one.path)
            if source is None and one.path in captures:  # somebody removed it, as `orch prune` would have
                gone.append(
                    Pruned(
                        path=one.path,
                        bytes=one.bytes,
                        sha256=one.sha256,
                        what="drop",
                        why="it was gone",
                        when_ns=time.time_ns(),
                    )
                )
                continue
            if source is None or rundir.sha256(source) != one.sha256:
                what = "is gone" if source is None else "is not what was sealed"
                raise StoreError(f"{path / one.path} {what}: no tables are made of it", hint="restore it from a copy")
            _link(source, self.new / one.path)
            kept.append(one)
        return replace(manifest, artifacts=tuple(kept), pruned=(*manifest.pruned, *gone))

    def _reduce(self, folder: RunFolder) -> None:
        before = self.entry.path / "tables"
        there = self.entry.manifest.unreduced is None and before.is_dir() and not before.is_symlink()
        reducer = Reducer()
        try:
            reducer.reduce(
                folder, self.interrupts, _say, why="orch reduce", within_s=WITHIN_S, before=before if there else None
            )
        finally:
            reducer.close()

    def _seal(self, folder: RunFolder) -> None:
        manifest = folder.manifest
        if manifest.stage == "reduce":  # all that failed was this
            manifest = replace(manifest, outcome="completed", error=None, stage="sealed")
        made = [replace(one, path=_TABLES + one.path) for one in rundir.hashed(self.new / "tables")]
        files = tuple(sorted((*manifest.artifacts, *made), key=lambda one: one.path))
        manifest = sealing.judged(manifest, sealing.planned_windows(manifest))
        folder.save(replace(manifest, artifacts=files))


def _link(source: Path, target: Path) -> None:
    """Have a file in another place too; where no link can be made, a copy."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.is_file():
            shutil.copy2(source, target)


def _take_along(old: Path, new: Path) -> None:
    """Have in the new folder what else lies in the old one: pages, what somebody put there."""
    for place, folders, names in os.walk(old):
        above = Path(place).relative_to(old)
        folders[:] = [name for name in folders if (above / name).as_posix() != "tables"]
        for name in (*folders, *names):
            source, target = old / above / name, new / above / name
            if (above / name).as_posix() in (MANIFEST, locked.FILE) or os.path.lexists(target):
                continue
            with suppress(FileExistsError):
                if source.is_dir() and not source.is_symlink():
                    target.mkdir(parents=True)
                else:
                    _link(source, target)
