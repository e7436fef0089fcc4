"""The end of a run on the controller: has the tables made, takes the verdicts, and records every process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import StoreError
from orchestrator.execution.measuring import Window
from orchestrator.execution.watch import Process
from orchestrator.experiment.plans.plan import PlannedWindow, RunPlan
from orchestrator.experiment.plans.plandata import launch_record
from orchestrator.store.manifests import window_records
from orchestrator.store.manifests.coding import decoded
from orchestrator.store.manifests.records import Launch, Manifest, Reply
from orchestrator.store.rundir import RunFolder

REDUCE_S = 1800.0


def ended(process: Process) -> Launch:
    """A process as the manifest keeps it: enough to read again what it left."""
    return launch_record(process.launch, status=process.status, failed=process.failed)


def with_processes(manifest: Manifest, processes: Iterable[Process]) -> Manifest:
    """A manifest with all processes of its run likewise."""
    return replace(manifest, launches=tuple(map(ended, processes)))


def unjudged(plan: RunPlan, measured: Sequence[Window]) -> tuple[window_records.Window, ...]:
    """The windows as they were measured, their verdicts still open."""
    planned = {window.name: window for window in plan.windows}
    return tuple(_window(plan, planned[window.name], window) for window in measured)


def _window(plan: RunPlan, planned: PlannedWindow, measured: Window) -> window_records.Window:
    loads = [
        window_records.Load(
            source=source.name,
            src=demand.src,
            dst=demand.dst,
            rail=demand.rail,
            requested_bps=demand.rate / plan.topology.scale,
        )
        for source in planned.sources
        for demand in source.demands
    ]
    return window_records.Window(
        name=measured.name,
        start_ns=measured.start_ns,
        end_ns=measured.end_ns,
        wanted_iterations=planned.measure.iterations,
        iterations={job: window_records.Span(first=span[0], last=span[1]) for job, span in measured.iterations.items()},
        earliest=dict(measured.earliest),
        warmup=planned.measure.warmup,
        loads=tuple(loads),
        valid=False,
        reasons=("it was not judged",),
    )


class Reducer:
    """The process that makes tables; started early, so that it is warm when the data is home.

    Where it cannot be started then, as on a machine that has no room for a process, it is started when it is needed.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        with contextlib.suppress(OSError):
            self._process = _reducing()

    def reduce(self, folder: RunFolder) -> None:
        """Make the run's tables and take windows, verdicts and notes into its manifest (not saved again yet)."""
        deadline = Deadline.after(REDUCE_S)
        try:
            process = self._process = self._process or _reducing()
        except OSError as error:
            raise StoreError(f"the tables of {folder.path} could not be made: no process starts: {error}") from None
        try:
            out, err = process.communicate(json.dumps(str(folder.path.resolve())) + "\n", deadline.remaining)
        except subprocess.TimeoutExpired:
            self.close()
            raise StoreError(f"the tables of {folder.path} were not made within {REDUCE_S:.0f} s") from None
        crashed = process.returncode != 0 or not out.strip()
        reply = Reply(error="it crashed") if crashed else decoded(out.encode(), Reply)
        if reply.ok is None:
            raise StoreError(f"the tables of {folder.path} could not be made: {reply.error}", tail=err, hint=reply.hint)
        found = reply.ok
        folder.manifest = replace(folder.manifest, windows=found.windows, capture=found.capture, notes=found.notes)

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


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
