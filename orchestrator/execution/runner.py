"""Carry out one run from its first phase to its seal, whatever happens in between."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from orchestrator.core import lock
from orchestrator.core.errors import Interrupted, LockedError, OrchError, last_lines
from orchestrator.core.exitcodes import Exit
from orchestrator.core.interrupts import Interrupts
from orchestrator.core.unwind import add_note, combined
from orchestrator.execution import provenance, sealing
from orchestrator.execution.observers.events import EventLog
from orchestrator.execution.observers.live import LiveFile
from orchestrator.execution.observers.observing import Several
from orchestrator.execution.phases import Run
from orchestrator.execution.run_options import Attempt, RunOptions
from orchestrator.execution.sealing import Reducer
from orchestrator.execution.session import Session, holder
from orchestrator.execution.watch import Watch
from orchestrator.experiment.plan import RunPlan
from orchestrator.parts import secret_env
from orchestrator.parts.protocols import Testbed
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.rundir import RunFolder, new_run_id, unwritable
from orchestrator.store.stamps import PARTIAL

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
    def status(self) -> Exit:
        """The exit code that the run asks for."""
        if self.error is not None:
            return Exit.INTERRUPTED if isinstance(self.error, Interrupted) else Exit.FAILED
        return Exit.OK if self.valid else Exit.INCONCLUSIVE

    @property
    def sealed(self) -> bool:
        """Whether all of it is home; a run that is not waits for `orch recover`."""
        return not self.path.name.endswith(PARTIAL)


def run(
    plan: RunPlan, testbed: Testbed, options: RunOptions, attempt: Attempt, *, run_id: str, resolved: str
) -> Outcome:
    """Carry out one run and seal its results; a run that fails is sealed too, with what it collected until then.

    `resolved` is the experiment's text as it is kept with the results. Raises only what keeps even a failed run from
    being recorded.
    """
    began = time.monotonic()
    secrets = secret_env.values(plan.launches())
    with Interrupts() as interrupts, _locked(plan, run_id):
        options.progress.run(f"{attempt.label}: {run_id}")
        folder = RunFolder.create(
            options.results, provenance.collect(plan, sys.argv, run=run_id, sweep=attempt.sweep, forced=attempt.forced)
        )
        events = _begun(folder, resolved)
        live = LiveFile(folder.path, label=attempt.label)
        observers = [live] if options.observer is None else [options.observer, live]
        watch = Watch(events, Several(observers), dilation=plan.topology.dilation)
        watch.observer.run_began(folder.manifest)
        session = Session(testbed, run=run_id, events=events, watch=watch, interrupts=interrupts, secrets=secrets)
        phases = Run(
            plan=plan,
            testbed=testbed,
            folder=folder,
            events=events,
            progress=options.progress,
            interrupts=interrupts,
            session=session,
            watch=watch,
            force=options.force,
        )
        outcome = _Execution(phases, live, began=began).outcome()
    if outcome.error is not None and not isinstance(outcome.error, OrchError):
        raise outcome.error  # a bug: everything is put back and sealed, now it may show
    return outcome


def _begun(folder: RunFolder, resolved: str) -> EventLog:
    """Keep the experiment with the results, and begin to log the run's events."""
    try:
        (folder.path / "experiment.yaml").write_text(resolved, encoding="utf-8")
        return EventLog(folder.path / "events.jsonl")
    except OSError as problem:
        raise unwritable(folder.path, problem) from None


class _Execution:
    """One run from its first phase to its seal; `began` is the instant of its beginning on the monotonic clock."""

    def __init__(self, run: Run, live: LiveFile, *, began: float) -> None:
        self._run = run
        self._live = live
        self._began = began

    def outcome(self) -> Outcome:
        """Attempt the run, put everything back, and seal it; LockedError where somebody else has the testbed."""
        run = self._run
        error: Exception | None
        try:
            error = self._attempt()
            run.interrupts.unwinding()
        except Interrupted as late:  # a signal between the end of the attempt and here
            error = late
        reducer = Reducer()
        locked = isinstance(error, LockedError)  # before anything was touched
        try:
            error = self._put_back(error)
            if locked and error is not None:
                run.events.close()
                self._live.close()
                shutil.rmtree(run.folder.path)
                raise error
            try:
                if run.unfetched and error is not None and not self._without_the_lost():
                    return self._left_open(error)
                return self._sealed(error, reducer)
            except OSError as problem:
                raise unwritable(run.folder.path, problem) from error
        finally:
            reducer.close()
            self._live.close()

    def _attempt(self) -> Exception | None:
        run = self._run
        try:
            run.up()
            run.measure()
        except OrchError as error:
            self._explain(error)
            return error
        except Exception as error:  # noqa: BLE001 - whatever it is, everything has to be put back first
            return error
        return None

    def _explain(self, error: OrchError) -> None:
        """Add the last output of the processes that failed, while their node can still be asked."""
        run = self._run
        run.measured_until = time.monotonic()
        run.events.write("error", stage=run.stage, error=error.render())
        failed = [
            process.launch for process in run.watch.processes.values() if process.failed and process.launch.required
        ]
        if failed and not isinstance(error, Interrupted):
            try:
                error.tail = error.tail or last_lines(run.processes.tail(failed[0]))
                for full in run.session.full():
                    add_note(error, f"{full}: make room there, or name another folder in `work:`")
            except OrchError as second:
                add_note(error, f"the last output of its processes could not be fetched: {second.message}")

    def _put_back(self, error: Exception | None) -> Exception | None:
        """Unwind; the first error stays the first."""
        run = self._run
        stage = run.stage
        if error is not None:
            run.watch.settle()  # an agent that is gone may have been noticed by whoever asked it first
        errors = run.unwind.run()
        run.watch.settle()
        for name, problem in errors:
            run.events.write("error", stage=f"putting back {name}", error=str(problem))
        if error is not None:
            if isinstance(error, OrchError):
                error = run.watch.cause(error, run.measured_until)  # until it failed, that is
            run.stage = stage
            for name, problem in errors:
                add_note(error, f"putting back {name}: {problem}")
            return error
        return combined(errors)

    def _record_end(self, error: Exception | None) -> None:
        """Save how a run ended, before anything is made of what it brought home."""
        run = self._run
        run.folder.save(
            replace(
                sealing.with_processes(run.manifest, run.watch.processes.values()),
                outcome="completed" if error is None else "interrupted" if isinstance(error, Interrupted) else "failed",
                error=None if error is None else str(error) or repr(error),
                failed_node=error.node if isinstance(error, OrchError) else None,
                notes=(*run.watch.notes, *run.processes.cut_short()),
                preflight=dict(run.preflights),
            )
        )

    def _left_open(self, error: Exception) -> Outcome:
        """End a run that lacks some of its files: its folder stays unfinished until `orch recover` has fetched them."""
        run = self._run
        name, away = run.manifest.run, ", ".join(sorted(run.session.away))
        if away:
            fetches = f"`orch recover {name} --testbed FILE` fetches them"
            reason = f"{away} still has files of the run: {fetches}, `--without` gives them up"
        else:
            reason = f"not all files could be moved into the run's folder: `orch recover {name}` tries again"
        self._live.close()
        self._record_end(error)
        run.events.write("left-open", away=sorted(run.session.away))
        run.events.close()
        phases, overhead_s = self._times({"total": time.monotonic() - self._began})
        run.folder.save(
            replace(
                run.manifest,
                stage=run.stage,
                reasons=(reason,),
                ended_ns=time.time_ns(),
                phases=phases,
                overhead_s=overhead_s,
            )
        )
        run.watch.observer.run_ended(run.manifest)
        return Outcome(path=run.folder.path, manifest=run.manifest, error=error)

    def _without_the_lost(self) -> bool:
        """Where captures stay, seal what is home of a run; what lost hosts have is given up until they are back."""
        run = self._run
        lost = sorted(run.session.away)
        if not run.plan.stay or not lost or not set(lost) <= set(run.watch.lost):
            return False
        run.watch.notes.append(
            f"sealed without what {', '.join(lost)} has of it: `orch recover {run.manifest.run}"
            " --testbed FILE` fetches that from a host that is back"
        )
        run.folder.manifest = replace(run.manifest, given_up=tuple(sorted({*run.manifest.given_up, *lost})))
        return True

    def _times(self, more: Mapping[str, float]) -> tuple[dict[str, float], float]:
        """Seconds of each phase, and how many of their total were our own overhead."""
        phases = {**self._run.phases, **more}
        overhead = phases["total"] - sum(phases.get(name, 0.0) for name in NOT_OVERHEAD)
        return {name: round(seconds, 4) for name, seconds in phases.items()}, round(overhead, 4)

    def _sealed(self, error: Exception | None, reducer: Reducer) -> Outcome:
        run = self._run
        stage = run.stage if error is not None else "sealed"
        self._record_end(error)
        try:
            with run.phase("reduce"):
                reducer.reduce(run.folder, run.interrupts, run.progress.say, why="orch run")
        except OrchError as problem:
            if error is None:
                error, stage = problem, "reduce"
                outcome: Literal["interrupted", "failed"] = (
                    "interrupted" if isinstance(problem, Interrupted) else "failed"
                )
                run.folder.manifest = replace(run.manifest, outcome=outcome, error=str(problem))
            else:
                add_note(error, f"making tables of what was collected: {problem.message}; {problem.hint}")
        run.folder.manifest = sealing.judged(replace(run.manifest, stage=stage), len(run.plan.windows))
        run.events.write("sealed", outcome=run.manifest.outcome)
        run.events.close()
        self._live.close()
        hashing = time.monotonic()
        run.folder.hash_files()
        now = time.monotonic()
        phases, overhead_s = self._times({"seal": now - hashing, "total": now - self._began})
        run.folder.manifest = replace(run.manifest, ended_ns=time.time_ns(), phases=phases, overhead_s=overhead_s)
        path = run.folder.seal()
        run.watch.observer.run_ended(run.manifest)
        return Outcome(path=path, manifest=run.manifest, error=error)


@contextmanager
def _locked(plan: RunPlan, run_id: str) -> Iterator[None]:
    if plan.topology.kind == "local":
        with lock.machine(lock.local_testbed(), holder(run_id)):
            yield
    else:
        yield


def id_for(plan: RunPlan) -> str:
    """Return the id of a run that begins now."""
    return new_run_id(plan.point, time.time_ns())
