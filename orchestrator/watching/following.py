"""Follow what goes on in a results folder: the run that is meant, or the newest one and then the sweep that it is of.

Nothing is written but the time of `live.watched`, by which the controller of a run knows that somebody looks. Whatever
is read may be somebody else's, half written or gone in the next instant.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core import lock
from orchestrator.core.errors import StoreError
from orchestrator.store import live, rundir, sweeps
from orchestrator.store.live import Live, LivePasses
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.rundir import Entry
from orchestrator.store.stamps import MANIFEST, PARTIAL, Stamp, stamp_of
from orchestrator.store.sweeps import Sweep
from orchestrator.watching import view
from orchestrator.watching.view import Curve, Shown, View

if TYPE_CHECKING:
    from orchestrator.watching.forming import Forming

EVERY_S = 0.3  # between two looks
_SAYS_SO_S = 2.0  # between two signs that somebody watches


class Following:
    """What is watched: a run that is named, to its end; else the newest run under way, and what its sweep does next."""

    def __init__(self, results: Path, wanted: str | None) -> None:
        self._results = results
        self._sweep: Sweep | None = None  # whose runs are shown, one after the other
        self._run = ""  # id of the run that is shown
        self._folder: Path | None = None  # of it, while it is not sealed
        self._named = wanted is not None
        self._seen: tuple[Stamp | None, Stamp | None] = (None, None)  # its manifest and live file, as last read
        self._entry: Entry | None = None
        self._live: Live | None = None
        self._shown: tuple[Curve | Shown, ...] = ()  # of the sweep
        self._between: View | None = None  # what stays between two runs of a sweep: how the first one ended
        self._said_at = 0.0
        self._forming: Forming | None = None  # what is told by passes
        self._passes: tuple[LivePasses | None, ...] = ()  # that is told by
        if wanted is not None:
            self._name(wanted)

    def _name(self, wanted: str) -> None:
        """Follow the run, or the sweep, of this name; StoreError where there is neither."""
        try:
            self._begin(rundir.find(self._results, wanted))
        except StoreError:
            self._sweep = self._sweep_of(wanted)
            if self._sweep is None:
                raise
            self._named = False

    def _sweep_of(self, wanted: str) -> Sweep | None:
        try:
            return sweeps.find(self._results, wanted)
        except StoreError:
            return None

    def _begin(self, entry: Entry) -> None:
        self._run, self._folder = entry.run, entry.path
        self._entry, self._live, self._seen = entry, None, (None, None)
        of = entry.manifest.sweep
        if of is not None and not self._named:
            self._sweep = self._sweep_of(of.id)
            self._shown = self._of_sweep()

    def look(self) -> View:
        """Return what is to be shown now; a view that has `ended` is the last one."""
        if self._folder is None:
            entry = next(self._under_way(), None)
            if entry is None:
                return self._nothing()
            self._begin(entry)
            return self._look_at(entry.path)
        return self._look_at(self._folder)

    def _look_at(self, folder: Path) -> View:
        manifest_stamp, live_stamp = stamp_of(folder / MANIFEST), stamp_of(folder / live.FILE)
        if manifest_stamp is None:
            return self._gone(folder)
        if (manifest_stamp, live_stamp) != self._seen or self._entry is None:
            entry = rundir.entry_at(folder)
            if entry is None:  # it is being sealed, or it is no manifest
                return self._gone(folder)
            self._entry, self._live = entry, live.load(folder)
            self._seen = (manifest_stamp, live_stamp)
        entry = self._entry
        if entry.sealed or _is_left_open(entry.manifest):
            return self._over(entry)
        if not entry.alive:
            if stamp_of(folder / MANIFEST) != manifest_stamp:  # it was sealed meanwhile, and its controller has ended
                return self._look_at(folder)
            text = f"{entry.run}: its controller is gone: `orch recover` brings home what there is, and seals it"
            return View(title=_title(entry.manifest), verdict=text, ended=True, failed=True)
        now = time.monotonic()
        if now - self._said_at >= _SAYS_SO_S:
            self._said_at = now
            live.watch(folder)
        forming = self._formed(entry.manifest)
        waits, causes = (forming.waits, forming.causes) if forming is not None else ({}, ())
        shown = view.of_run(entry.manifest, self._live, time.time_ns(), waits=waits, causes=causes)
        return view.with_sweep(shown, self._shown)

    def _formed(self, manifest: Manifest) -> Forming | None:
        """Return what is told by passes, which are looked at when there are other ones."""
        live = self._live
        passes = () if live is None or live.phase != "window" else tuple(job.passes for job in live.jobs)
        if passes != self._passes:
            self._passes, self._forming = passes, None
            if live is not None and any(passes):
                from orchestrator.watching import forming  # numpy and pyarrow: for those who watch passes

                self._forming = forming.formed(manifest, live)
        return self._forming

    def _gone(self, folder: Path) -> View:
        """Return what is shown of a run whose folder has another name by now, or none any more."""
        sealed = folder.with_name(self._run)
        if sealed != folder and stamp_of(sealed / MANIFEST) is not None:
            self._folder, self._entry = sealed, None
            return self._look_at(sealed)
        if self._named:
            text = f"{self._run}: its folder is gone, or has no manifest that can be read"
            return View(title=self._run, verdict=text, ended=True, failed=True)
        self._folder = None
        return self._nothing()

    def _over(self, entry: Entry) -> View:
        """Return the verdict of a run; its sweep may have further ones."""
        self._folder, self._shown = None, self._of_sweep()
        shown = view.of_sealed(entry.manifest, entry.outcome, str(entry.path))
        self._between = view.with_sweep(shown, self._shown, ended=self._sweep is None)
        return self._between

    def _nothing(self) -> View:
        """Return what is shown while no run is under way: that of a sweep goes on, or that one is waited for."""
        if self._sweep is None:
            return View(title=f"waiting for a run in {self._results}")
        title = f"sweep {self._sweep.name}: {self._sweep.id}"
        if self._goes_on(self._sweep):
            return self._between or view.with_sweep(View(title=title, phase="between runs"), self._of_sweep())
        self._shown = self._of_sweep()
        return view.with_sweep(View(title=title, verdict=self._sweep_verdict()), self._shown, ended=True)

    def _goes_on(self, sweep: Sweep) -> bool:
        """Return whether the process that carries out the sweep is there, as its lock says.

        Of another user or another machine it cannot be told; such a lock is believed.
        """
        holder = lock.said_within(sweep.path.parent, f"sweep-{sweep.id}")
        if holder is None:
            return False
        pid, host = holder.get("pid"), holder.get("host")
        here = rundir.controller().host
        return not isinstance(pid, int) or host != here or rundir.process_start(pid) is not None

    def _sweep_verdict(self) -> str:
        tables = [one for one in self._shown if isinstance(one, Shown)]
        return tables[0].title if tables else "nothing of the sweep was measured"

    def _of_sweep(self) -> tuple[Curve | Shown, ...]:
        if self._sweep is None:
            return ()
        return view.of_sweep(self._sweep, sweeps.measured(self._results, self._sweep))

    def _under_way(self) -> Iterator[Entry]:
        """Yield runs whose controller is at work, the newest first; of the sweep alone where one is followed."""
        folders = sorted(self._results.glob(f"*/*{PARTIAL}"), key=lambda path: path.name, reverse=True)
        for folder in folders:
            entry = rundir.entry_at(folder)
            if entry is None or not entry.alive or _is_left_open(entry.manifest):
                continue
            of = entry.manifest.sweep
            if self._sweep is None or (of is not None and of.id == self._sweep.id):
                yield entry


def _is_left_open(manifest: Manifest) -> bool:
    """Return whether a run that is not sealed has ended, and waits for `orch recover`; else its seal may be at hand."""
    return manifest.ended_ns is not None and not manifest.artifacts


def _title(manifest: Manifest) -> str:
    return f"{manifest.experiment}: {manifest.run}"
