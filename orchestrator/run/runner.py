"""Carries out one run: opens, changes, starts, measures, and puts everything back, whatever happens in between."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.core import lock, machine
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import (
    Interrupted,
    LockedError,
    OrchError,
    ShortOfLoad,
    StoreError,
    TestbedError,
    last_lines,
)
from orchestrator.core.interrupts import Interrupts
from orchestrator.core.unwind import Unwind, add_note, combined
from orchestrator.experiment import beforehand
from orchestrator.experiment.plan import PlannedWindow, RunPlan
from orchestrator.parts import secret_env
from orchestrator.parts.launch import Launch
from orchestrator.parts.protocols import Testbed
from orchestrator.remote import clocks
from orchestrator.run import provenance, routes, sealing
from orchestrator.run.load_escalation import LoadEscalation, covers, preflight_of, requested_bps, unescalated
from orchestrator.run.measuring import Measurement, Window, preflight
from orchestrator.run.observers.events import EventLog
from orchestrator.run.observers.observing import Observer
from orchestrator.run.observers.progress import Progress
from orchestrator.run.sealing import Reducer
from orchestrator.run.session import Session, holder
from orchestrator.run.watch import Watch
from orchestrator.store.rundir import PARTIAL, RunFolder, new_run_id, write_json

OPEN_S = 60.0

# Phases whose length the experiment decides; the rest is our own overhead.
NOT_OVERHEAD = frozenset({"ranks", "preflight", "warm-up", "window", "drain"})


@dataclass(slots=True)
class Outcome:
    """How a run ended and where its results are."""

    path: Path
    manifest: Mapping[str, Any]
    error: Exception | None

    @property
    def valid(self) -> bool:
        return bool(self.manifest["valid"])

    @property
    def sealed(self) -> bool:
        """Whether all of it is home; a run that is not waits for `orch recover`."""
        return not self.path.name.endswith(PARTIAL)


@dataclass(slots=True)
class Run:
    """One run while it is carried out."""

    plan: RunPlan
    testbed: Testbed
    folder: RunFolder
    events: EventLog
    progress: Progress
    interrupts: Interrupts
    session: Session
    watch: Watch
    force: bool = False  # whether hosts that are too small are taken all the same
    unwind: Unwind = field(default_factory=Unwind)
    phases: dict[str, float] = field(default_factory=dict)
    windows: list[Window] = field(default_factory=list)
    preflights: dict[str, Mapping[str, float]] = field(default_factory=dict)
    traffic: dict[str, LoadEscalation] = field(default_factory=dict)
    unreached: dict[str, str] = field(default_factory=dict)  # window -> why its load is not to be had
    standing: PlannedWindow | None = None  # the window whose traffic is up
    measured_until: float = field(default_factory=time.monotonic)
    stage: str = "start"
    unfetched: bool = False

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tell, record and time a phase; phases of one name add up."""
        self.stage = name
        self.progress.phase(name)
        self.watch.observer.phase(name)
        self.events.write("phase", name=name)
        self.record(stage=name)
        began = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - began

    def record(self, **changes: Any) -> None:
        """Save the manifest; a disk that is full ends the measurement, but not the putting back."""
        try:
            self.folder.save(**changes)
            trouble = self.events.failed
        except OSError as error:
            trouble = error
        if trouble is not None and not self.interrupts.is_unwinding:
            raise unwritable(self.folder.path, trouble)

    # Up

    def up(self) -> None:
        """Everything until the first window's traffic is steady and the ranks wait at their gate."""
        plan, session = self.plan, self.session
        with self.phase("open"):
            self.unwind.push("testbed", self.testbed.close)
            self.testbed.open(self.folder.path, Deadline.after(OPEN_S))
            self.unwind.push("agents", self._close)
            self.unwind.push("fetch", self._fetch)
            self.unwind.push("residue", self._residue)
            session.open(plan.nodes())
            kernels = {"nodes": dict(session.kernels), "controller": machine.own_kernel()}
            self.record(kernels=kernels, testbed=dict(self.testbed.about()))
        with self.phase("check"):
            session.check(plan.requirements)
            session.check_routes(routes.peers(plan))
            self._check_room()
        with self.phase("conditions"):
            self.unwind.push("conditions", self._restore)
            session.apply(plan.changes)
            helpers = list(plan.helper_processes())
            self.unwind.push("conditions' processes", lambda: self._stop(helpers, phase=None))
            session.start(helpers, what="starting what conditions need")
        self._facts("before")
        self.unwind.push("facts", lambda: self._facts("after"))
        with self.phase("collectors"):
            self.unwind.push("collectors", lambda: self._stop(plan.collectors, phase="drain"))
            session.start(plan.collectors, what="starting collectors")
        ranks = [launch for job in plan.jobs for launch in job.launches]
        with self.phase("ranks"):
            self.unwind.push("ranks", lambda: self._stop(ranks, phase="stop ranks"))
            session.start(ranks, what="starting ranks")
        with self.phase("preflight"):
            self._check_loads()
            first = self._to_measure()[0]
            if self.standing is None:
                self._traffic_up(first, self.traffic[first.name].launches)
            session.go(ranks)

    def _check_room(self) -> None:
        """See that hosts elsewhere are large enough; this machine was asked before anything started."""
        if self.plan.topology.kind == "local":
            return
        room = beforehand.of_hosts(self.plan, self.session.machines())
        self.watch.notes += room.warnings
        if room.refused and not self.force:
            error = TestbedError(room.refused[0])
            for other in room.refused[1:]:
                add_note(error, other)
            raise error
        if room.refused:
            self.record(forced=room.refused)

    def _check_loads(self) -> None:
        """See that the load of each window can be had, escalated if need be; of several, one that cannot is left out.

        What reaches a load reaches a smaller one of the same shape: only the largest of each is tried.
        """
        windows, several = self.plan.windows, len(self.plan.windows) > 1
        reached: list[PlannedWindow] = []
        for window in sorted(windows, key=requested_bps, reverse=True):
            self.traffic[window.name] = unescalated(window)
            larger = next((other for other in reached if covers(other, window)), None)
            if larger is not None:
                self.traffic[window.name] = self.traffic[larger.name].alike(window)
            elif window.sources:
                try:
                    self._preflight(window, stays=not several)
                    reached.append(window)
                except ShortOfLoad as error:
                    self.unreached[window.name] = error.message
                    if len(self.unreached) == len(windows):
                        raise
                    self._stop(self.traffic[window.name].rehearsal, phase=None)
        if self.unreached:
            self.record(unreached=self.unreached)

    def _to_measure(self) -> list[PlannedWindow]:
        return [window for window in self.plan.windows if window.name not in self.unreached]

    def _preflight(self, window: PlannedWindow, *, stays: bool) -> None:
        """Escalate a window's traffic until it reaches its load; leave it running where it `stays`."""
        while True:
            tried = self.traffic[window.name]
            launches = tried.launches if stays else tried.rehearsal
            self._traffic_up(window, launches)
            landing = preflight(self.plan, window, self.session, escalatable=tried.escalatable)
            self.preflights[window.name] = landing.rates
            stronger = tried.escalated(landing.short)
            if stronger is None:
                break
            self._stop(launches, phase=None)
            self.watch.set_aside(launches, window=preflight_of(window))
            self.traffic[window.name] = stronger
            note = f"window {window.name}: {landing.text(self.plan.topology.scale)}: raised to {stronger.text}"
            self.watch.notes.append(note)
            self.progress.say(f"    {note}")
        if stays:
            self.standing = window
        else:
            self._stop(launches, phase=None)

    def _traffic_up(self, window: PlannedWindow, launches: Sequence[Launch]) -> None:
        self.unwind.push(f"traffic of {window.name}", lambda: self._traffic_down(launches))
        self.session.start(launches, what=f"starting the traffic of {window.name}")

    def _traffic_down(self, launches: Sequence[Launch]) -> None:
        if self.session.up(launches):
            self._stop(launches, phase="stop traffic")

    # Measured

    def measure(self) -> None:
        """Every window in turn, while the ranks iterate."""
        windows = self._to_measure()
        for number, window in enumerate(windows, start=1):
            if len(windows) > 1:
                self.progress.window(number, len(windows), window.name)
            with self.phase("warm-up"):
                # The first window's traffic stood before the ranks began, a later one's stands from here on.
                since_ns = steady_ns = 0
                if window is not windows[0]:
                    since_ns = time.time_ns()
                    self._traffic_up(window, self.traffic[window.name].launches)
                    steady_ns = time.time_ns()
                measurement = Measurement(
                    self.plan, window, self.session, self.progress, since_ns=since_ns, steady_ns=steady_ns
                )
                measurement.warm_up()
            with self.phase("window"):
                measured = measurement.measure()
            self.windows.append(measured)
            self.measured_until = time.monotonic()
            self.record(windows=sealing.window_records(self.plan, self.windows))
            self.events.write("window", name=measured.name, start_ns=measured.start_ns, end_ns=measured.end_ns)
            if window is not windows[-1]:
                with self.phase("warm-up"):
                    self._stop(self.traffic[window.name].launches, phase=None)

    # Down

    def _stop(self, launches: Sequence[Launch], *, phase: str | None) -> None:
        with self.phase(phase) if phase else nullcontext():
            self.session.stop(launches, measured_until=self.measured_until)

    def _facts(self, when: str) -> None:
        with self.phase("facts"):
            found = self.session.facts()
            found_clocks = self.session.clocks()
            disks = self.session.disks()
        for node, facts in found.items():
            folder = self.folder.path / "hosts" / node
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / f"{when}.json", facts)
        if when == "before":
            self.watch.offsets_ns.update({node: clock["offset_ns"] for node, clock in found_clocks.items()})
            uncertain = {node: clock["uncertainty_ns"] / 1e9 for node, clock in found_clocks.items()}
            for told in clocks.doubts(uncertain, self.plan.validity.clock):
                self.watch.notes.append(told)
                self.progress.say(f"    warning: {told}")
        least = self.folder.manifest.setdefault("free_disk_bytes", {})
        least.update({node: min(free, least.get(node, free)) for node, free in disks.items()})
        recorded = self.folder.manifest.setdefault("clocks", {})
        for node, clock in found_clocks.items():
            recorded.setdefault(node, {})[when] = {**clock, **clocks.said(found.get(node, {}))}

    def _restore(self) -> None:
        with self.phase("restore"):
            self.session.undo_changes()
            self.folder.manifest["hits"] = self.session.hits

    def _close(self) -> None:
        with self.phase("close"):
            self.session.close()

    def _residue(self) -> None:
        with self.phase("residue"):
            strays = self.session.residue()
            self.events.write("residue", strays=strays)
            if strays:
                raise OrchError("processes of the run are left: " + "; ".join(strays), hint="orch clean")

    def _fetch(self) -> None:
        with self.phase("fetch"):
            self.unfetched = True
            self.session.fetch(self.folder.path)
            self.unfetched = False


def unwritable(path: Path, error: OSError) -> StoreError:
    """Results that cannot be written."""
    return StoreError(
        f"{path}: cannot be written: {error.strerror}", hint="make room; `orch recover` then seals what there is"
    )


def run(
    plan: RunPlan,
    testbed: Testbed,
    *,
    run_id: str,
    results: Path,
    resolved: str,
    progress: Progress,
    label: str,
    about: Mapping[str, Any] = MappingProxyType({}),
    force: bool = False,
    observer: Observer | None = None,
) -> Outcome:
    """Carry out one run and seal its results; a run that fails is sealed too, with what it collected until then.

    `resolved` is the experiment's text as it is kept with the results, `label` what people see the run called, `about`
    what else its manifest is to say, `force` takes hosts that are too small, `observer` is told how it goes. Raises
    only what keeps even a failed run from being recorded.
    """
    began = time.monotonic()
    secrets = secret_env.values(plan.launches())
    with Interrupts() as interrupts, _locked(plan, run_id):
        progress.run(f"{label}: {run_id}")
        folder = RunFolder.create(
            results, experiment=plan.experiment, run=run_id, manifest={**provenance.collect(plan, sys.argv), **about}
        )
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
    outcome = "completed" if error is None else "interrupted" if isinstance(error, Interrupted) else "failed"
    this.folder.save(
        outcome=outcome,
        error=None if error is None else str(error) or repr(error),
        failed_node=error.node if isinstance(error, OrchError) else None,
        notes=list(this.watch.notes),
        preflight=this.preflights,
        launches=[sealing.launch_record(process) for process in this.watch.processes.values()],
    )


def _left_open(this: Run, error: Exception, *, began: float) -> Outcome:
    """End a run of which not everything is home: its folder stays unfinished until `orch recover` has mended that."""
    run, away = this.folder.manifest["run"], ", ".join(sorted(this.session.away))
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
    this.folder.save(stage=this.stage, reasons=[reason], ended_ns=time.time_ns(), phases=phases, overhead_s=overhead_s)
    this.watch.observer.run_ended(this.folder.manifest)
    return Outcome(path=this.folder.path, manifest=this.folder.manifest, error=error)


def _times(this: Run, more: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Seconds of each phase, and how many of their total were our own overhead."""
    phases = {**this.phases, **more}
    overhead = phases["total"] - sum(phases.get(name, 0.0) for name in NOT_OVERHEAD)
    return {name: round(seconds, 4) for name, seconds in phases.items()}, round(overhead, 4)


def _sealed(this: Run, error: Exception | None, reducer: Reducer, *, began: float) -> Outcome:
    manifest = this.folder.manifest
    stage = this.stage if error is not None else "sealed"
    _record_end(this, error)
    try:
        with this.phase("reduce"):
            reducer.reduce(this.folder)
    except OrchError as problem:
        if error is None:
            error, stage = problem, "reduce"
            manifest.update(outcome="failed", error=str(problem))
        else:
            add_note(error, f"making tables of what was collected: {problem.message}")
    manifest["stage"] = stage
    sealing.judge(manifest, len(this.plan.windows))
    this.events.write("sealed", outcome=manifest["outcome"])
    this.events.close()
    hashing = time.monotonic()
    this.folder.hash_files()
    now = time.monotonic()
    phases, overhead_s = _times(this, {"seal": now - hashing, "total": now - began})
    manifest.update(ended_ns=time.time_ns(), phases=phases, overhead_s=overhead_s)
    path = this.folder.seal()
    this.watch.observer.run_ended(manifest)
    return Outcome(path=path, manifest=manifest, error=error)


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
