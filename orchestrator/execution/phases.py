"""The phases of one run, each with what undoes it: opened, changed, started, measured, and put back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, ShortOfLoad, TestbedError
from orchestrator.core.interrupts import Interrupts
from orchestrator.core.machines import machine
from orchestrator.core.unwind import Unwind, add_note
from orchestrator.execution import sealing
from orchestrator.execution.actions import fetching, host_reduction, processes
from orchestrator.execution.actions.changes import Changes
from orchestrator.execution.actions.processes import Processes
from orchestrator.execution.actions.window_events import WindowEvents
from orchestrator.execution.load_escalation import LoadEscalation, covers, preflight_of, requested_bps, unescalated
from orchestrator.execution.measuring import Measurement, Window, preflight
from orchestrator.execution.nodes import device_readings, facts, routes
from orchestrator.execution.nodes.bystanders import Bystanders
from orchestrator.execution.observers.events import EventLog
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.session import Session
from orchestrator.execution.watch import Watch
from orchestrator.experiment import feasibility
from orchestrator.experiment.plan import PlannedWindow, RunPlan
from orchestrator.parts.launch import Launch
from orchestrator.parts.protocols import Testbed
from orchestrator.remote import clocks
from orchestrator.store.atomic import write_json
from orchestrator.store.manifests.records import Kernels, Manifest
from orchestrator.store.rundir import RunFolder, unwritable
from orchestrator.validity import so_far
from orchestrator.validity.gates import clock as clock_gate

OPEN_S = 60.0


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
    changes: Changes = field(init=False)
    processes: Processes = field(init=False)
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

    def __post_init__(self) -> None:
        self.changes = Changes(self.session)
        self.processes = Processes(self.session)

    @property
    def manifest(self) -> Manifest:
        return self.folder.manifest

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tell, record and time a phase; phases of one name add up."""
        self.stage = name
        self.progress.phase(name)
        self.watch.observer.phase(name)
        self.events.write("phase", name=name)
        self.record(replace(self.manifest, stage=name))
        began = time.monotonic()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.monotonic() - began

    def record(self, manifest: Manifest) -> None:
        """Save a manifest; a disk that is full ends the measurement, but not the putting back."""
        try:
            self.folder.save(manifest)
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
            kernels = Kernels(nodes=dict(session.kernels), controller=machine.own_kernel())
            self.record(replace(self.manifest, kernels=kernels, testbed=dict(self.testbed.about())))
        with self.phase("check"):
            session.check(plan.requirements)
            self.record(replace(self.manifest, images=dict(session.images)))
            session.check_routes(routes.peers([plan]))
            self._check_room()
        with self.phase("conditions"):
            self.unwind.push("conditions", self._restore)
            self.changes.apply([change for change in plan.changes if change.during is None])
            helpers = list(plan.helper_processes())
            self.unwind.push("conditions' processes", lambda: self._stop(helpers, phase=None))
            self.processes.start(helpers, what="starting what conditions need")
        self._facts("before")
        self.unwind.push("facts", lambda: self._facts("after"))
        of_nodes = [launch for launch in plan.collectors if not launch.after_ranks]
        of_ranks = [launch for launch in plan.collectors if launch.after_ranks]
        with self.phase("collectors"):
            self.unwind.push("collectors", lambda: self._stop(of_nodes, phase="drain"))
            self.processes.start(of_nodes, what="starting collectors")
            if plan.as_they_close:
                started = sealing.with_processes(self.manifest, self.watch.processes.values())
                host_reduction.read_as_they_close(self.session, started)
        ranks = [launch for job in plan.jobs for launch in job.launches]
        with self.phase("ranks"):
            self.unwind.push("ranks", lambda: self._stop(ranks, phase="stop ranks"))
            self.processes.start(ranks, what="starting ranks")
        if of_ranks:
            with self.phase("collectors"):
                self.unwind.push("collectors of ranks", lambda: self._stop(of_ranks, phase="drain"))
                self.processes.start(of_ranks, what="starting collectors of ranks")
        with self.phase("preflight"):
            self._check_loads()
            first = self._to_measure()[0]
            if self.standing is None:
                self._traffic_up(first, self.traffic[first.name].launches)
            self.processes.go(plan.jobs, dilation=plan.topology.dilation)

    def _check_room(self) -> None:
        """See that hosts elsewhere are large enough; this machine was asked before anything started."""
        if self.plan.topology.kind == "local":
            return
        room = feasibility.of_hosts(self.plan, self.session.machines())
        self.watch.notes += room.warnings
        if room.refused and not self.force:
            error = TestbedError(room.refused[0])
            for other in room.refused[1:]:
                add_note(error, other)
            raise error
        if room.refused:
            self.record(replace(self.manifest, forced=room.refused))

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
            self.record(replace(self.manifest, unreached=dict(self.unreached)))

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
        self.processes.start(launches, what=f"starting the traffic of {window.name}")

    def _traffic_down(self, launches: Sequence[Launch]) -> None:
        if self.processes.up(launches):
            self._stop(launches, phase="stop traffic")

    # Measured

    def measure(self) -> None:
        """Every window in turn, while the ranks iterate."""
        windows, topology = self._to_measure(), self.plan.topology
        beside = Bystanders() if topology.kind == "local" else None
        for number, window in enumerate(windows, start=1):
            if len(windows) > 1:
                self.progress.window(number, len(windows), window.name)
            self.watch.observer.window(window.name, number=number, of=len(windows), wanted=window.measure.iterations)
            with self.phase("warm-up"):
                # The first window's traffic stood before the ranks began, a later one's stands from here on.
                since_ns = steady_ns = 0
                if window is not windows[0]:
                    since_ns = time.time_ns()
                    self._traffic_up(window, self.traffic[window.name].launches)
                    steady_ns = time.time_ns()
                events = WindowEvents(self.plan.changes, self.changes, window.name)
                measurement = Measurement(
                    self.plan,
                    window,
                    self.session,
                    self.progress,
                    events,
                    since_ns=since_ns,
                    steady_ns=steady_ns,
                    lost=partial(so_far.lost, self.manifest) if self.plan.ends_lost else None,
                )
                measurement.warm_up()
            with self.phase("window"):
                measured = measurement.measure()
            if measured.lost:
                self.progress.say(f"    window {window.name} is lost, and ends: {measured.lost}")
            self.windows.append(measured)
            self.measured_until = time.monotonic()
            unjudged = sealing.unjudged(self.plan, self.windows, began_ns=self.manifest.began_ns)
            happened = sealing.events(self.plan, events.records, began_ns=self.manifest.began_ns)
            self.record(replace(self.manifest, windows=unjudged, events=(*self.manifest.events, *happened)))
            self.events.write("window", name=measured.name, start_ns=measured.start_ns, end_ns=measured.end_ns)
            if window is not windows[-1]:
                with self.phase("warm-up"):
                    self._stop(self.traffic[window.name].launches, phase=None)
        if beside and (others := beside.text(ours=os.getpid(), contained=bool(topology.runtime))):
            self.watch.notes.append(others)

    # Down

    def _stop(self, launches: Sequence[Launch], *, phase: str | None) -> None:
        with self.phase(phase) if phase else nullcontext():
            self.processes.stop(launches, measured_until=self.measured_until)

    def _facts(self, when: Literal["before", "after"]) -> None:
        with self.phase("facts"):
            found, found_clocks, disks = self.session.facts(), self.session.clocks(), self.session.disks()
        for node, host_facts in found.items():
            folder = self.folder.path / "hosts" / node
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / f"{when}.json", host_facts)
        if when == "before":
            self.watch.offsets_ns.update({node: clock.offset_ns for node, clock in found_clocks.items()})
            uncertain = {node: clock.uncertainty_ns / 1e9 for node, clock in found_clocks.items()}
            for doubt in clocks.doubts(uncertain, float(clock_gate.MOST_UNCERTAIN.of(self.plan.validity))):
                self.watch.notes.append(doubt)
                self.progress.say(f"    warning: {doubt}")
            readings = device_readings.of_nodes(found, self.plan.topology.hosts)
            self.folder.manifest = replace(self.manifest, device_readings=readings)
        self.folder.manifest = replace(
            self.manifest,
            free_disk_bytes=facts.least(self.manifest.free_disk_bytes, disks),
            clocks=facts.with_clocks(self.manifest.clocks, found_clocks, found, when),
        )

    def _restore(self) -> None:
        with self.phase("restore"):
            self.changes.undo()
            self.folder.manifest = replace(self.manifest, hits=tuple(self.changes.hits))

    def _close(self) -> None:
        with self.phase("close"):
            self.session.close()

    def _residue(self) -> None:
        with self.phase("residue"):
            strays = processes.still_running(self.session)
            self.events.write("residue", strays=strays)
            if strays:
                raise OrchError(
                    "processes of the run are still running: " + "; ".join(strays), hint="`orch clean` ends them"
                )

    def _fetch(self) -> None:
        self.unfetched, left, stays = True, {}, fetching.nothing_stays
        if self.plan.stay:
            with self.phase("reduce there"):
                captured = sealing.with_processes(self.manifest, self.watch.processes.values())
                left = host_reduction.reduce_run(self.session, captured, self.progress.say)
                stays = partial(host_reduction.stays, captured, left)
        with self.phase("fetch"):
            try:
                fetching.fetch_run(self.session, self.folder.path, stays=stays)
            finally:
                found = sorted(self.session.left.items())
                for node, some in found:
                    self.watch.notes += fetching.notes(node, some, self.manifest.run)
                kept = {node for node, some in found if fetching.has_more(some)}
                kept |= {node for node, one in left.items() if one.later}
                self.folder.manifest = replace(self.manifest, given_up=tuple(sorted(kept)))
                stayed, troubles = host_reduction.recorded(left, self.folder.path / "hosts")
                self.folder.manifest = replace(self.manifest, stayed=stayed)
                self.watch.notes += troubles
            self.unfetched = False
