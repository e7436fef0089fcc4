"""The end of a run on the controller: has the tables made, takes the verdicts, and records every process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import Interrupted, OrchError, StoreError
from orchestrator.core.interrupts import Interrupts, Twice
from orchestrator.execution import provenance
from orchestrator.execution.measuring import Window
from orchestrator.execution.watch import Process
from orchestrator.experiment.plan import PlannedWindow, RunPlan, launch_record
from orchestrator.parts.dilated_time import DividedTime
from orchestrator.store.manifests import records, summaries
from orchestrator.store.manifests.coding import decoded
from orchestrator.store.manifests.records import Launch, Manifest, Reduced, Reduction, Reply
from orchestrator.store.rundir import RunFolder

REDUCE_S = 1800.0  # of a run, which nobody may wait for; `orch reduce` takes as long as it needs
LOOK_S = 0.25  # how often a signal is looked for
Say = Callable[[str], None]


def ended(process: Process) -> Launch:
    """Return a process as the manifest keeps it: enough to read again what it left."""
    return launch_record(process.launch, status=process.status, failed=process.failed)


def with_processes(manifest: Manifest, processes: Iterable[Process]) -> Manifest:
    """Return a manifest with all processes of its run likewise."""
    return replace(manifest, launches=tuple(map(ended, processes)))


def unjudged(plan: RunPlan, measured: Sequence[Window], *, began_ns: int) -> tuple[records.Window, ...]:
    """Return the windows as they were measured, their verdicts still open; dilated time is divided back."""
    planned = {window.name: window for window in plan.windows}
    time_ = DividedTime(began_ns=began_ns, dilation=plan.topology.dilation)
    return tuple(_window(plan, planned[window.name], window, time_) for window in measured)


def events(plan: RunPlan, happened: Sequence[records.Event], *, began_ns: int) -> tuple[records.Event, ...]:
    """Return what conditions did within windows; dilated time is divided back."""
    dilation = plan.topology.dilation
    time_ = DividedTime(began_ns=began_ns, dilation=dilation)
    return tuple(
        replace(
            event,
            begin_s=event.begin_s / dilation,
            end_s=event.end_s / dilation,
            began_ns=None if event.began_ns is None else time_.instant(event.began_ns),
            ended_ns=None if event.ended_ns is None else time_.instant(event.ended_ns),
        )
        for event in happened
    )


def _window(plan: RunPlan, planned: PlannedWindow, measured: Window, time_: DividedTime) -> records.Window:
    loads = [
        summaries.Load(
            source=source.name,
            src=demand.src,
            dst=demand.dst,
            rail=demand.rail,
            period_s=demand.period_s,
            pause_s=demand.pause_s,
            requested_bps=demand.rate / plan.topology.scale,
        )
        for source in planned.sources
        for demand in source.demands
    ]
    return records.Window(
        name=measured.name,
        start_ns=time_.instant(measured.start_ns),
        end_ns=time_.instant(measured.end_ns),
        wanted_iterations=planned.measure.iterations,
        iterations={job: summaries.Span(first=span[0], last=span[1]) for job, span in measured.iterations.items()},
        earliest=dict(measured.earliest),
        lost=measured.lost,
        warmup=planned.measure.warmup,
        loads=tuple(loads),
        valid=False,
        reasons=("it was not judged",),
    )


_LACKING = re.compile(r"[0-9]{1,6} of ([0-9]{1,6}) windows were measured")  # as `judged` has it


class Reducer:
    """The process that makes tables; started early, so that it is warm when the data is home.

    Where it cannot be started then, as on a machine that has no room for a process, it is started when it is needed.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        with contextlib.suppress(OSError):
            self._process = _reducing()

    def reduce(
        self,
        folder: RunFolder,
        interrupts: Interrupts,
        say: Say,
        *,
        why: str,
        within_s: float = REDUCE_S,
        before: Path | None = None,
    ) -> None:
        """Make the run's tables and take windows, verdicts and notes into its manifest (not saved again yet).

        Two signals end it: Interrupted. `why` is the command that wants tables. Rows of captures that are gone are
        taken from the tables in the folder `before`.
        """
        try:
            found = self._found(folder, interrupts, say, within_s=within_s, before=before)
        except OrchError as error:
            error.hint = error.hint or f"`orch reduce {folder.manifest.run}` makes them later"
            folder.manifest = replace(folder.manifest, unreduced=error.message)
            for half in (folder.path / "tables").glob("*"):  # what nobody can read would keep other runs from queries
                half.unlink()
            raise
        manifest = folder.manifest
        earlier = manifest.reductions[-1].notes if manifest.reductions else ()
        notes = [*(note for note in manifest.notes if note not in earlier), *found.notes]
        made = Reduction(
            when_ns=time.time_ns(),
            why=why,
            git=provenance.git_state(Path(__file__).parent),
            versions=provenance.versions(),
            notes=found.notes,
        )
        folder.manifest = replace(
            manifest,
            windows=found.windows,
            capture=found.capture,
            notes=tuple(dict.fromkeys(notes)),
            unreduced=None,
            reductions=(*manifest.reductions, made),
        )

    def _found(
        self, folder: RunFolder, interrupts: Interrupts, say: Say, *, within_s: float, before: Path | None
    ) -> Reduced:
        deadline = Deadline.after(within_s)
        run = folder.manifest.run
        twice = Twice(
            interrupts.signals,
            lambda: say(f"tables of {run} are being made: Ctrl-C ends that, and `orch reduce {run}` makes them later"),
        )
        try:
            process = self._process = self._process or _reducing()
        except OSError as error:
            raise StoreError(f"the tables of {folder.path} could not be made: no process starts: {error}") from None
        asked: str | None = json.dumps([str(folder.path.resolve()), None if before is None else str(before)]) + "\n"
        while True:
            try:
                out, err = process.communicate(asked, min(LOOK_S, deadline.remaining))
                break
            except subprocess.TimeoutExpired:
                asked = None  # it has been said
            if deadline.expired:
                self.close()
                raise StoreError(f"the tables of {folder.path} were not made within {within_s:.0f} s")
            if interrupts.ended_by(twice):
                self.close()
                raise Interrupted(f"the tables of {folder.path} were not made: Ctrl-C ended that")
        crashed = process.returncode != 0 or not out.strip()
        reply = Reply(error=_death(process.returncode)) if crashed else decoded(out.encode(), Reply)
        if reply.ok is None:
            raise StoreError(f"the tables of {folder.path} could not be made: {reply.error}", tail=err, hint=reply.hint)
        return reply.ok

    def close(self) -> None:
        """End the process, whatever it does, and what it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()


def _death(status: int) -> str:
    if status == -signal.SIGKILL:
        return "it was killed, perhaps for want of memory"
    return f"it was ended by {signal.Signals(-status).name}" if status < 0 else "it crashed"


def _reducing() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "orchestrator.analysis.reduction"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # they wait awake, and nothing there multiplies matrices
        start_new_session=True,  # Ctrl-C is the controller's to handle
    )


def planned_windows(manifest: Manifest) -> int:
    """How many windows a run was to have; one of an older version says so where it lacks some."""
    if manifest.planned_windows is not None:
        return manifest.planned_windows
    said = [match[1] for reason in manifest.reasons if (match := _LACKING.fullmatch(reason))]
    return int(said[0]) if said else len(manifest.windows)


def judged(manifest: Manifest, planned_windows: int) -> Manifest:
    """With `valid` and `reasons` of a run, from its outcome and its windows."""
    reasons: list[str] = []
    if manifest.outcome != "completed":
        reasons.append(f"the run {manifest.outcome} at {manifest.stage}")
    if len(manifest.windows) < planned_windows:
        reasons.append(f"{len(manifest.windows)} of {planned_windows} windows were measured")
        reasons += manifest.unreached.values()
    for window in manifest.windows:
        label = f"{window.name}: " if planned_windows > 1 else ""
        reasons += [label + reason for reason in window.reasons]
    return replace(manifest, valid=not reasons, reasons=tuple(reasons))
