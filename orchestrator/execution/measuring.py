"""Preflight and windows: is the load on the link, when does a window begin, when does it end."""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, ShortOfLoad
from orchestrator.core.units import duration_text, rate_text
from orchestrator.execution.actions import host_counters
from orchestrator.execution.actions.host_counters import STEADY_OVER_S, Receivers
from orchestrator.execution.actions.window_events import WindowEvents
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.session import Session
from orchestrator.execution.watch import Iteration, Watch
from orchestrator.experiment.plan import PlannedWindow, RunPlan
from orchestrator.validity.gates import load
from orchestrator.validity.so_far import LoadSoFar, SoFar

STEADY_WITHIN_S = 10.0
STEADY_SHARE = 0.05  # of itself, by which a rate that is taken as achieved may differ from a second before
SAMPLE_S = 0.1
TICK_S = 0.1
RATE_EVERY_S = 1.0
HOSTS_EVERY_S = 2.0  # their counters, for those who watch live
JUDGE_EVERY_S = 2.0  # whether a window is lost, where that ends it


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window as it was: its instants in the controller's time base, and each job's measured iterations.

    `lost` says why it was given up before its end; empty for one that was not.
    """

    name: str
    start_ns: int
    end_ns: int
    iterations: Mapping[str, tuple[int, int]]  # job -> first and last number; absent where none ended
    earliest: Mapping[str, int]  # job -> first number under the window's traffic; warm-up begins there
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """Where the cross traffic of a window came to alone on the links, in bits a second by receiver, scaled."""

    rates: Mapping[str, float]
    wanted: Mapping[str, float]
    short: frozenset[str]  # receivers that get less than is wanted

    def text(self, scale: int) -> str:
        """Return what each receiver gets of what is wanted, unscaled."""
        short = [
            (host, float(f"{self.rates.get(host, 0.0) * scale:.3g}"), self.wanted[host] * scale) for host in self.wanted
        ]
        return ", ".join(f"{host} receives {rate_text(got)} of {rate_text(rate)}" for host, got, rate in short)


def preflight(plan: RunPlan, window: PlannedWindow, session: Session, *, escalatable: Collection[str] = ()) -> Landing:
    """With the traffic of a window alone on the links, wait until every receiver gets what is asked.

    ShortOfLoad when it is not reached, unless the experiment takes the load as achieved. Where a receiver is
    `escalatable`, by stronger means that its sources have left, a load that has stopped growing is given at once, as
    short.
    """
    receivers = Receivers(session, [demand for source in window.sources for demand in source.demands])
    deadline = Deadline.after(STEADY_WITHIN_S * receivers.over_s / STEADY_OVER_S)
    tolerance = load.MOST_OFF.number(plan.validity)
    before: dict[str, float] = {}
    compare_at = 0.0
    while True:
        session.watch.take(time.monotonic() + SAMPLE_S)
        receivers.sample()
        rates = {host: rate for host, rate in receivers.rates().items() if rate is not None}
        session.watch.observer.loads(requested=receivers.wanted, received=rates, scale=plan.topology.scale)
        short = _short(rates, receivers.wanted, tolerance)
        landing = Landing(rates=rates, wanted=receivers.wanted, short=short)
        if len(rates) == len(receivers.wanted):
            if _reached(rates, receivers.wanted, tolerance):
                return landing
            if time.monotonic() >= compare_at:
                takes_it = tolerance is None or not short.isdisjoint(escalatable)
                if takes_it and _stands(rates, before):
                    return landing
                before, compare_at = rates, time.monotonic() + STEADY_OVER_S * plan.topology.dilation
        if deadline.expired:
            raise ShortOfLoad(
                f"preflight of window {window.name}: alone on the link the cross traffic does not reach what is asked: "
                + landing.text(plan.topology.scale),
                hint="ask for less, add streams, or say `validity: {load: as-achieved}`",
            )


def _reached(rates: Mapping[str, float], wanted: Mapping[str, float], tolerance: float | None) -> bool:
    return tolerance is not None and all(abs(rates[host] / wanted[host] - 1) <= tolerance for host in wanted)


def _stands(rates: Mapping[str, float], before: Mapping[str, float]) -> bool:
    """Whether the load is what it was about a second ago."""
    return all(host in before and abs(rate - before[host]) <= STEADY_SHARE * rate for host, rate in rates.items())


def _short(rates: Mapping[str, float], wanted: Mapping[str, float], tolerance: float | None) -> frozenset[str]:
    share = STEADY_SHARE if tolerance is None else tolerance
    return frozenset(host for host in wanted if rates.get(host, 0.0) < (1 - share) * wanted[host])


class Measurement:
    """One window while it is measured.

    Iterations that began before `since_ns` are of another traffic and count for nothing; those that began before
    `steady_ns`, when its own stood, can be warm-up and no more. It ends as soon as `lost` says why it cannot be valid
    any more.
    """

    def __init__(
        self,
        plan: RunPlan,
        window: PlannedWindow,
        session: Session,
        progress: Progress,
        events: WindowEvents,
        *,
        since_ns: int,
        steady_ns: int = 0,
        lost: Callable[[SoFar], str] | None = None,
    ) -> None:
        self._plan = plan
        self._window = window
        self._watch: Watch = session.watch
        self._progress = progress
        self._events = events
        self._receivers = Receivers(session, [demand for source in window.sources for demand in source.demands])
        self._jobs = [job.job.name for job in plan.jobs]
        self._since_ns = since_ns
        self._steady_ns = steady_ns
        self._session = session
        self._lost = lost
        self._next_sample = self._next_hosts = self._next_verdict = 0.0

    def warm_up(self) -> None:
        """Wait until the warm-up iterations of every job have ended."""
        self._restart_stall()
        while any(len(self._begun(job, self._since_ns)) < self._window.measure.before for job in self._jobs):
            self._tick()

    def measure(self) -> Window:
        """Wait for the stop rule, then for the ranks that are a little behind; give the window."""
        measure = self._window.measure
        self._restart_stall()
        begun = time.monotonic()
        ends = None if measure.at_most is None else begun + measure.at_most
        self._events.begin(begun)
        lost = ""
        while not lost and not self._enough() and (ends is None or time.monotonic() < ends):
            self._events.carry_out()
            self._tick()
            self._tell(ends)
            lost = self._why_lost(begun)
        self._events.end()
        window = replace(self._closed(), lost=lost)
        patience = Deadline.after(measure.stall_timeout)
        while not self._all_ranks_at(window) and not patience.expired:
            self._watch.take(time.monotonic() + TICK_S)
        return window

    def _restart_stall(self) -> None:
        for progress in self._watch.jobs.values():
            progress.heard = time.monotonic()

    def _tick(self) -> None:
        self._watch.take(min(time.monotonic() + TICK_S, self._events.next_due))
        self._observe_hosts()
        stall = self._window.measure.stall_timeout
        for job, progress in self._watch.jobs.items():
            if time.monotonic() - progress.heard > stall:
                raise DeadlineExceeded(
                    f"no iteration of job {job} has ended for {duration_text(stall)} (the last was {progress.last})",
                    hint="measure.stall_timeout says how long to wait",
                )

    def _observe_hosts(self) -> None:
        now = time.monotonic()
        if now >= self._next_hosts and self._watch.observer.samples_hosts:
            self._next_hosts = now + HOSTS_EVERY_S
            with contextlib.suppress(DeadlineExceeded):  # whoever watches can do without a sample
                self._watch.observer.hosts(
                    host_counters.sample_hosts(self._session), scale=self._plan.topology.wire_scale
                )

    def _begun(self, job: str, since_ns: int) -> Sequence[Iteration]:
        """Return the iterations of a job that began at an instant or later, and have ended."""
        entries = self._watch.jobs[job].iterations
        return entries[bisect_left(entries, since_ns, key=lambda entry: entry.start_ns) :]

    def _measured(self) -> dict[str, Sequence[Iteration]]:
        """Every job's iterations from when the last job's warm-up was over; empty before."""
        after = {job: self._begun(job, self._since_ns)[self._window.measure.before :] for job in self._jobs}
        if not all(after.values()):
            return {}
        start_ns = max(self._steady_ns, *(entries[0].start_ns for entries in after.values()))
        return {job: self._begun(job, start_ns) for job in self._jobs}

    def _enough(self) -> bool:
        wanted = self._window.measure.iterations
        measured = self._measured()
        return wanted is not None and bool(measured) and all(len(some) >= wanted for some in measured.values())

    def _all_ranks_at(self, window: Window) -> bool:
        """Whether every rank has logged the window's last iteration: they end it a little apart."""
        return all(self._watch.jobs[job].slowest >= last for job, (_, last) in window.iterations.items())

    def _tell(self, ends: float | None) -> None:
        now = time.monotonic()
        if self._receivers.wanted and now >= self._next_sample:
            self._receivers.sample()
            self._next_sample = now + RATE_EVERY_S
            self._watch.observer.loads(
                requested=self._receivers.wanted, received=self._known_rates(), scale=self._plan.topology.scale
            )
        measured = self._measured()
        done = min(measured.values(), key=len, default=())
        if not done:
            return
        wanted = self._window.measure.iterations
        mean_s = (done[-1].end_ns - done[0].start_ns) / 1e9 / len(done)
        lefts = [(wanted - len(done)) * mean_s] if wanted else []
        lefts += [ends - now] if ends is not None else []
        left_s = max(0.0, min(lefts)) if lefts else None
        self._watch.observer.measured({job: len(entries) for job, entries in measured.items()}, left_s=left_s)
        rates = self._known_rates().values()
        self._progress.iterations(
            len(done),
            wanted,
            last_s=done[-1].seconds / self._plan.topology.dilation,
            left_s=left_s,
            rate_bps=sum(rates) * self._plan.topology.scale if rates else None,
        )

    def _why_lost(self, begun: float) -> str:
        """Return why the window, which began at an instant of the monotonic clock, cannot be valid any more."""
        now, measure = time.monotonic(), self._window.measure
        if self._lost is None or now < self._next_verdict:
            return ""
        self._next_verdict = now + JUDGE_EVERY_S
        measured = self._measured()
        done = min(map(len, measured.values()), default=0)
        shares = [done / measure.iterations] if measure.iterations else []
        shares += [(now - begun) / measure.at_most] if measure.at_most else []
        means = self._receivers.means()
        return self._lost(
            SoFar(
                name=self._window.name,
                wanted=measure.iterations,
                measured={job: len(entries) for job, entries in measured.items()},
                seconds={job: [entry.seconds for entry in entries] for job, entries in measured.items()},
                loads=[
                    LoadSoFar(end=end, requested_bps=rate, mean_bps=means.get(end))
                    for end, rate in self._receivers.wanted.items()
                ],
                share=min(1.0, max(shares)),
            )
        )

    def _known_rates(self) -> dict[str, float]:
        return {host: rate for host, rate in self._receivers.rates().items() if rate is not None}

    def _closed(self) -> Window:
        """All jobs over the same time: from where the last one's warm-up was over to where the slowest was done."""
        wanted = self._window.measure.iterations
        measured = {job: entries for job, entries in self._measured().items() if entries}
        now = time.time_ns()
        if len(measured) < len(self._jobs):
            return Window(name=self._window.name, start_ns=now, end_ns=now, iterations={}, earliest={})
        start = min(entries[0].start_ns for entries in measured.values())
        if self._enough() and wanted is not None:
            end = max(entries[wanted - 1].end_ns for entries in measured.values())
        else:
            end = min(entries[-1].end_ns for entries in measured.values())
        inside = {job: [entry.number for entry in entries if entry.end_ns <= end] for job, entries in measured.items()}
        return Window(
            name=self._window.name,
            start_ns=start,
            end_ns=end,
            iterations={job: (numbers[0], numbers[-1]) for job, numbers in inside.items() if numbers},
            earliest=self._earliest(),
        )

    def _earliest(self) -> dict[str, int]:
        """Return each job's first iteration under this window's traffic once it stood, all jobs over the same time."""
        stood_ns = max(self._since_ns, self._steady_ns)
        start_ns = max(self._begun(job, stood_ns)[0].start_ns for job in self._jobs)
        return {job: self._begun(job, start_ns)[0].number for job in self._jobs}
