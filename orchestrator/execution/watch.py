"""Follow the processes of a run while they live, by the events of all agents."""

from __future__ import annotations

import dataclasses
import json
import queue
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.core.errors import Interrupted, LaunchError, OrchError, TestbedError, TransportError
from orchestrator.core.unwind import add_note
from orchestrator.execution.observers.events import EventLog
from orchestrator.execution.observers.observing import LoggedIteration, Observer
from orchestrator.parts.launch import Launch
from orchestrator.remote.events import AgentEvent, AgentLost, Inbox, LineRead, ProcessExited

_PAUSE_S = 0.25  # the longest that a wait keeps a signal handler from running
_SET_S = 0.5  # by which the wall clock must leave the monotonic one to have been set; slewing moves both alike
_FOLLOWS_S = 1.0  # by which a loss may seem to come after what follows from it
_MOST_ITERATIONS = 4_000_000  # of a job: 600 MB, or one a millisecond for an hour
_LONGEST_S = 1e9  # that a rank may say it waited
_AHEAD_S = 5.0  # by which a node may say something in our future: more than any clock drifts in a run


@dataclass(slots=True)
class Process:
    """A process of the run and what became of it."""

    launch: Launch
    asked: bool = False  # its node was asked to start it
    pid: int = 0  # on its node, once it is ready
    stopping: bool = False
    status: int | None = None
    over: bool = False  # its node told of its end
    failed: str | None = None


@dataclass(slots=True)
class Iteration:
    """One iteration as rank 0 of a job logged it, in the controller's time base."""

    number: int
    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(slots=True)
class JobProgress:
    """The iterations of a job so far, as rank 0 logged them, and when the last one was heard of (monotonic clock)."""

    ranks: dict[int, int] = field(default_factory=dict)  # rank -> number of the last iteration that it logged
    began: dict[int, int] = field(default_factory=dict)  # rank -> when that began, in nanoseconds of its own clock
    iterations: list[Iteration] = field(default_factory=list)
    heard: float = field(default_factory=time.monotonic)

    @property
    def last(self) -> int:
        """Number of the last iteration that ended; -1 before the first."""
        return self.iterations[-1].number if self.iterations else -1

    @property
    def slowest(self) -> int:
        """Number of the last iteration that every rank has logged; -1 before the first."""
        return min(self.ranks.values(), default=-1)


class Watch:
    """Takes the agents' events, keeps the state of processes and jobs, and raises what must end the run."""

    def __init__(self, events: EventLog, observer: Observer | None = None, *, dilation: int = 1) -> None:
        self.observer = observer or Observer()
        self._dilation = dilation  # by which observers see iterations divided back
        self.inbox = Inbox()
        self.processes: dict[tuple[str, str], Process] = {}
        self.jobs: dict[str, JobProgress] = {}
        self.offsets_ns: dict[str, int] = {}
        self.lost: dict[str, str] = {}  # nodes that are out of reach now, and why
        self.losses: list[AgentLost] = []  # all that there were
        self.notes: list[str] = []
        self._events = events
        self._clock_ns = _wall_beyond_monotonic()

    def add(self, launch: Launch) -> None:
        self.processes[launch.node, launch.name] = Process(launch)
        if launch.job is not None:
            progress = self.jobs.setdefault(launch.job, JobProgress())
            if launch.rank is not None and launch.follow is not None:
                progress.ranks[launch.rank] = -1

    def set_aside(self, launches: Sequence[Launch], *, window: str) -> None:
        """Let processes that have ended count for another window than they were planned for."""
        for launch in launches:
            self.processes[launch.node, launch.name].launch = dataclasses.replace(launch, window=window)

    def take(self, until: float) -> None:
        """Take events until this instant of the monotonic clock, at least those that wait; raise on a failure."""
        while True:
            wait_s = min(_PAUSE_S, until - time.monotonic())
            self._check_clock()
            try:
                event = self.inbox.get(wait_s)
            except queue.Empty:
                if wait_s <= 0:
                    return
                continue
            problem = self._take(event)
            if problem is not None:
                raise problem

    def settle(self) -> None:
        """Take the events that wait by now without raising: the run is being put down."""
        for _ in range(len(self.inbox)):
            self._take(self.inbox.get())

    def cause(self, error: OrchError, at: float) -> OrchError:
        """Return what to tell of a failure at an instant of the monotonic clock, once all was heard that follows it.

        Ranks fail when a host of theirs falls silent, and may be told of first: the loss comes before them.
        """
        losses = [loss for loss in self.losses if loss.since <= at + _FOLLOWS_S]
        if isinstance(error, (Interrupted, TransportError)) or not losses:
            return error
        cause = min(losses, key=lambda loss: loss.since).error.again()
        if cause.node is not None and cause.node == error.node:
            return error
        add_note(cause, str(error).splitlines()[0])
        return cause

    def _take(self, event: AgentEvent) -> OrchError | None:
        if isinstance(event, LineRead):
            return self._line(event)
        if isinstance(event, ProcessExited):
            return self._exit(event)
        if isinstance(event, AgentLost):
            self.lost[event.node] = event.reason
            self.losses.append(event)
            self._events.write("agent-lost", node=event.node, reason=event.reason)
            return event.error.again()
        raise AssertionError(f"an event of unknown kind: {event}")

    def _line(self, event: LineRead) -> OrchError | None:
        process = self.processes.get((event.node, event.name))
        if process is None or process.launch.job is None:
            return None
        try:
            row = json.loads(event.text)
            offset = self.offsets_ns.get(event.node, 0)
            entry = Iteration(int(row["iteration"]), int(row["start_ns"]) + offset, int(row["end_ns"]) + offset)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return LaunchError(
                f"{event.name} logged a line that is no iteration: {event.text[:100]}",
                node=event.node,
                hint="a line is a JSON object with iteration, start_ns and end_ns",
            )
        progress = self.jobs[process.launch.job]
        rank = process.launch.rank or 0
        if (moved := self._clock_moved(event, int(row["start_ns"]), progress.began.get(rank))) is not None:
            return moved
        progress.began[rank] = int(row["start_ns"])
        progress.ranks[rank] = entry.number
        self.observer.iteration(self._logged(entry, row), job=process.launch.job, rank=rank)
        if rank == 0:
            if len(progress.iterations) >= _MOST_ITERATIONS:
                return LaunchError(f"{event.name} logged more than {_MOST_ITERATIONS:,} iterations", node=event.node)
            progress.iterations.append(entry)
            progress.heard = time.monotonic()
        return None

    def _logged(self, entry: Iteration, row: Mapping[str, object]) -> LoggedIteration:
        forward_s, backward_s, wait_s = (_seconds(row.get(key)) for key in ("forward_s", "backward_s", "wait_s"))
        passes_s = None if forward_s is None or backward_s is None else forward_s + backward_s
        return LoggedIteration(
            number=entry.number,
            start_ns=entry.start_ns // self._dilation,
            end_ns=entry.end_ns // self._dilation,
            passes_s=None if passes_s is None else passes_s / self._dilation,
            wait_s=None if wait_s is None else wait_s / self._dilation,
        )

    def _check_clock(self) -> None:
        """Raise where the clock that windows are cut by has been set: they would end never, or hold nothing."""
        moved_s = (_wall_beyond_monotonic() - self._clock_ns) / 1e9
        if abs(moved_s) > _SET_S:
            raise TestbedError(
                f"this machine's clock was set {'forward' if moved_s > 0 else 'back'} by {abs(moved_s):,.1f} s during "
                "the run, or the machine slept",
                hint="measure again while its clock is kept by slewing (chrony, systemd-timesyncd)",
            )

    def _clock_moved(self, event: LineRead, start_ns: int, before_ns: int | None) -> OrchError | None:
        """Return an error where a rank's clock was set: an iteration begins before the last one, or in our future."""
        ahead_s = (event.wall_ns + self.offsets_ns.get(event.node, 0) - time.time_ns()) / 1e9
        if before_ns is not None and start_ns < before_ns:
            change = (
                f"set back: iterations of {event.name} begin {(before_ns - start_ns) / 1e9:,.1f} s before earlier ones"
            )
        elif ahead_s > _AHEAD_S:
            change = f"set forward: it is {ahead_s:,.1f} s ahead of where it was"
        else:
            return None
        return TestbedError(f"its clock was {change}", node=event.node, hint="keep clocks by slewing while you measure")

    def _exit(self, event: ProcessExited) -> OrchError | None:
        process = self.processes.get((event.node, event.name))
        if process is None or process.over:  # one that ends twice is not believed
            return None
        process.over = True
        process.status = event.status
        launch = process.launch
        self._events.write("exit", node=event.node, name=event.name, status=event.status)
        if process.stopping or (not launch.lives and event.status == 0):
            return None
        process.failed = f"ended with status {event.status} before it was asked to"
        self.observer.failure(node=event.node, what=launch.part or launch.name)
        if not launch.required:
            self.notes.append(f"{event.node}: {event.name} {process.failed}")
            return None
        return LaunchError(f"{event.name} {process.failed}", node=event.node, argv=launch.argv)


def _seconds(value: object) -> float | None:
    """Return what a rank says of a time; None where that is no time."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= _LONGEST_S else None


def _wall_beyond_monotonic() -> int:
    return time.time_ns() - time.monotonic_ns()
