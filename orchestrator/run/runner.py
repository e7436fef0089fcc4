"""Carries out one run from its first phase to its seal, whatever happens in between."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.core import lock
from orchestrator.core.errors import (
    Interrupted,
    LockedError,
    OrchError,
    last_lines,
)
from orchestrator.core.interrupts import Interrupts
from orchestrator.core.unwind import add_note, combined
from orchestrator.experiment.plan import RunPlan
from orchestrator.parts import secret_env
from orchestrator.parts.protocols import Testbed
from orchestrator.run import provenance, sealing
from orchestrator.run.observers.events import EventLog
from orchestrator.run.observers.observing import Observer
from orchestrator.run.observers.progress import Progress
from orchestrator.run.phases import Run, unwritable
from orchestrator.run.sealing import Reducer
from orchestrator.run.session import Session, holder
from orchestrator.run.watch import Watch
from orchestrator.store.records import Manifest, OfSweep
from orchestrator.store.rundir import PARTIAL, RunFolder, new_run_id

# Phases whose length the experiment decides; the rest is our own overhead.
NOT_OVERHEAD = frozenset({"ranks", "preflight", "warm-up", "window", "drain"})


@dataclass(slots=True)
class Outcome:
    """How a run ended and where its results are."""

    path: Path
    manifest: Manifest
    error: Exception | None

    @property
    def valid(self) -> bool:
        return self.manifest.valid

    @property
    def sealed(self) -> bool:
        """Whether all of it is home; a run that is not waits for `orch recover`."""
        return not self.path.name.endswith(PARTIAL)


def run(
    plan: RunPlan,
    testbed: Testbed,
    *,
    run_id: str,
    results: Path,
    resolved: str,
    progress: Progress,
    label: str,
    sweep: OfSweep | None = None,
    forced: Sequence[str] = (),
    force: bool = False,
    observer: Observer | None = None,
) -> Outcome:
    """Carry out one run and seal its results; a run that fails is sealed too, with what it collected until then.

    `resolved` is the experiment's text as it is kept with the results, `label` what people see the run called, `sweep`
    which one it is of, `forced` what speaks against its hosts, `force` takes hosts that are too small, `observer` is
    told how it goes. Raises only what keeps even a failed run from being recorded.
    """
    began = time.monotonic()
    secrets = secret_env.values(plan.launches())
    with Interrupts() as interrupts, _locked(plan, run_id):
        progress.run(f"{label}: {run_id}")
        folder = RunFolder.create(results, provenance.collect(plan, sys.argv, run=run_id, sweep=sweep, forced=forced))
        try:
            (folder.path / "experiment.yaml").write_text(resolved, encoding="utf-8")
            events = EventLog(folder.path / "events.jsonl")
        except OSError as problem:
            raise unwritable(folder.path, problem) from None
        watch = Watch(events, observer)
        watch.observer.run_began(folder.manifest)
        session = Session(testbed, run=run_id, events=events, watch=watch, interrupts=interrupts, secrets=secrets)
        this = Run(
            plan=plan,
            testbed=testbed,
            folder=folder,
            events=events,
            progress=progress,
            interrupts=interrupts,
            session=session,
            watch=watch,
            force=force,
        )
        error: Exception | None
        try:
            error = _attempt(this)
            interrupts.unwinding()
        except Interrupted as late:  # a signal between the end of the attempt and here
            error = late
        reducer = Reducer()
        locked = isinstance(error, LockedError)  # before anything was touched
        try:
            error = _put_back(this, error)
            if locked and error is not None:
                events.close()
                shutil.rmtree(folder.path)
                raise error
            try:
                if this.unfetched and error is not None:
                    outcome = _left_open(this, error, began=began)
                else:
                    outcome = _sealed(this, error, reducer, began=began)
            except OSError as problem:
                raise unwritable(folder.path, problem) from error
        finally:
            reducer.close()
    if error is not None and not isinstance(error, OrchError):
        raise error  # a bug: everything is put back and sealed, now it may show
    return outcome


def _attempt(this: Run) -> Exception | None:
    try:
        this.up()
        this.measure()
    except OrchError as error:
        _explain(this, error)
        return error
    except Exception as error:  # noqa: BLE001 - whatever it is, everything has to be put back first
        return error
    return None


def _explain(this: Run, error: OrchError) -> None:
    """Add the last output of the processes that failed, while their node can still be asked."""
    this.measured_until = time.monotonic()
    this.events.write("error", stage=this.stage, error=error.render())
    failed = [process.launch for process in this.watch.processes.values() if process.failed and process.launch.required]
    if failed and not isinstance(error, Interrupted):
        try:
            error.tail = error.tail or last_lines(this.session.tail(failed[0]))
            for told in this.session.full():
                add_note(error, f"{told}: make room there, or name another folder in `work:`")
        except OrchError as second:
            add_note(error, f"why it failed could not be looked into: {second.message}")


def _put_back(this: Run, error: Exception | None) -> Exception | None:
    """Unwind; the first error stays the first."""
    stage = this.stage
    if error is not None:
        this.watch.settle()  # an agent that is gone may have been noticed by whoever asked it first
    errors = this.unwind.run()
    this.watch.settle()
    for name, problem in errors:
        this.events.write("error", stage=f"putting back {name}", error=str(problem))
    if error is not None:
        if isinstance(error, OrchError):
            error = this.watch.cause(error, this.measured_until)  # until it failed, that is
        this.stage = stage
        for name, problem in errors:
            add_note(error, f"putting back {name}: {problem}")
        return error
    return combined(errors)


def _record_end(this: Run, error: Exception | None) -> None:
    """Save how a run ended, before anything is made of what it brought home."""
    this.folder.save(
        replace(
            this.manifest,
            outcome="completed" if error is None else "interrupted" if isinstance(error, Interrupted) else "failed",
            error=None if error is None else str(error) or repr(error),
            failed_node=error.node if isinstance(error, OrchError) else None,
            notes=tuple(this.watch.notes),
            preflight=dict(this.preflights),
            launches=tuple(sealing.ended(process) for process in this.watch.processes.values()),
        )
    )


def _left_open(this: Run, error: Exception, *, began: float) -> Outcome:
    """End a run of which not everything is home: its folder stays unfinished until `orch recover` has mended that."""
    run, away = this.manifest.run, ", ".join(sorted(this.session.away))
    if away:
        reason = (
            f"what {away} had of the run is still there: `orch recover {run}` brings it home, `--without` gives it up"
        )
    else:
        reason = f"not all of it could be brought into its folder: `orch recover {run}` tries again"
    _record_end(this, error)
    this.events.write("left-open", away=sorted(this.session.away))
    this.events.close()
    phases, overhead_s = _times(this, {"total": time.monotonic() - began})
    this.folder.save(
        replace(
            this.manifest,
            stage=this.stage,
            reasons=(reason,),
            ended_ns=time.time_ns(),
            phases=phases,
            overhead_s=overhead_s,
        )
    )
    this.watch.observer.run_ended(this.manifest)
    return Outcome(path=this.folder.path, manifest=this.manifest, error=error)


def _times(this: Run, more: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Seconds of each phase, and how many of their total were our own overhead."""
    phases = {**this.phases, **more}
    overhead = phases["total"] - sum(phases.get(name, 0.0) for name in NOT_OVERHEAD)
    return {name: round(seconds, 4) for name, seconds in phases.items()}, round(overhead, 4)


def _sealed(this: Run, error: Exception | None, reducer: Reducer, *, began: float) -> Outcome:
    stage = this.stage if error is not None else "sealed"
    _record_end(this, error)
    try:
        with this.phase("reduce"):
            reducer.reduce(this.folder)
    except OrchError as problem:
        if error is None:
            error, stage = problem, "reduce"
            this.folder.manifest = replace(this.manifest, outcome="failed", error=str(problem))
        else:
            add_note(error, f"making tables of what was collected: {problem.message}")
    this.folder.manifest = sealing.judged(replace(this.manifest, stage=stage), len(this.plan.windows))
    this.events.write("sealed", outcome=this.manifest.outcome)
    this.events.close()
    hashing = time.monotonic()
    this.folder.hash_files()
    now = time.monotonic()
    phases, overhead_s = _times(this, {"seal": now - hashing, "total": now - began})
    this.folder.manifest = replace(this.manifest, ended_ns=time.time_ns(), phases=phases, overhead_s=overhead_s)
    path = this.folder.seal()
    this.watch.observer.run_ended(this.manifest)
    return Outcome(path=path, manifest=this.manifest, error=error)


@contextmanager
def _locked(plan: RunPlan, run_id: str) -> Iterator[None]:
    if plan.topology.kind == "local":
        with lock.machine(lock.local_testbed(), holder(run_id)):
            yield
    else:
        yield


def id_for(plan: RunPlan) -> str:
    """The id of a run that begins now."""
    return new_run_id(plan.point, time.time_ns())
