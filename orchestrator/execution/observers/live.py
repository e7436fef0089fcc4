"""Write what goes on in a run into its folder for `orch watch`: a small file, whole, twice a second at most."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.execution.observers.observing import HostSample, LoggedIteration, Observer
from orchestrator.store import live
from orchestrator.store.live import Live, LiveHost, LiveJob, LiveLoad, LivePasses, LiveRank, LiveWindow

EVERY_S = 0.5
PASSES_EVERY_S = 2.0
_MOST_FAILURES = 20


@dataclass(slots=True)
class _Rank:
    last: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=live.RECENT))
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=live.RECENT))
    logged: deque[LoggedIteration] = field(default_factory=lambda: deque(maxlen=live.MOST_PASSES))


@dataclass(slots=True)
class _Job:
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=live.MOST_TIMES))
    measured: int = 0
    heard_ns: int = 0
    ranks: dict[int, _Rank] = field(default_factory=dict)
    passes: LivePasses | None = None


@dataclass(slots=True)
class _Load:
    """Rates of a receiver as they were told within the window: their sum and number."""

    total: float = 0.0
    count: int = 0


class LiveFile(Observer):
    """Gathers what it is told, and writes it from a thread of its own, so that no phase has to think of it.

    A file that cannot be written (a full disk) is tried again at the next change: nobody's run fails of it.
    """

    def __init__(self, folder: Path, *, label: str) -> None:
        self._folder = folder
        self._state = Live(label=label)
        self._jobs: dict[str, _Job] = {}
        self._loads: dict[str, _Load] = {}
        self._samples: dict[str, HostSample] = {}
        self._lock = threading.Lock()
        self._changed = True
        self._next_passes = 0.0
        self._ended = threading.Event()
        with suppress(OSError):
            live.begin(folder)
        self._thread = threading.Thread(target=self._write_on, name="live", daemon=True)
        self._thread.start()

    @property
    def samples_hosts(self) -> bool:
        return live.is_watched(self._folder)

    def close(self) -> None:
        """Write no more, and remove the file; a second call does nothing."""
        self._ended.set()
        self._thread.join()
        with suppress(OSError):
            live.remove(self._folder)

    def phase(self, name: str) -> None:
        now = time.time_ns()
        with self._lock:
            before = self._state
            phases = dict(before.phases)
            if before.phase:
                took_s = max(0, now - before.phase_began_ns) / 1e9
                phases[before.phase] = round(phases.get(before.phase, 0.0) + took_s, 3)
            self._state = replace(before, phase=name, phase_began_ns=now, phases=phases, loads=())
            self._loads.clear()
            self._changed = True

    def window(self, name: str, *, number: int, of: int, wanted: int | None) -> None:
        with self._lock:
            self._state = replace(self._state, window=LiveWindow(name=name, number=number, of=of, wanted=wanted))
            for job in self._jobs.values():
                job.measured = 0
            self._changed = True

    def measured(self, counts: Mapping[str, int], *, left_s: float | None) -> None:
        with self._lock:
            if self._state.window is not None:
                self._state = replace(self._state, window=replace(self._state.window, left_s=left_s))
            for name, count in counts.items():
                self._jobs.setdefault(name, _Job()).measured = count
            self._changed = True

    def iteration(self, logged: LoggedIteration, *, job: str, rank: int) -> None:
        with self._lock:
            mine = self._jobs.setdefault(job, _Job())
            if rank == 0:
                mine.seconds.append(logged.seconds)
                mine.heard_ns = time.time_ns()
            one = mine.ranks.setdefault(rank, _Rank())
            one.last = logged.number
            one.seconds.append(logged.seconds)
            if logged.wait_s is not None:
                one.waits.append(logged.wait_s)
            one.logged.append(logged)
            self._changed = True

    def failure(self, *, node: str, what: str) -> None:
        with self._lock:
            failures = (*self._state.failures, f"{node}: {what} failed")[-_MOST_FAILURES:]
            self._state = replace(self._state, failures=failures)
            self._changed = True

    def loads(self, *, requested: Mapping[str, float], received: Mapping[str, float], scale: int) -> None:
        with self._lock:
            found = []
            for end, rate in requested.items():
                got, so_far = received.get(end), self._loads.setdefault(end, _Load())
                if got is not None:
                    so_far.total += got
                    so_far.count += 1
                found.append(
                    LiveLoad(
                        end=end,
                        requested_bps=rate * scale,
                        received_bps=None if got is None else got * scale,
                        mean_bps=so_far.total / so_far.count * scale if so_far.count else None,
                    )
                )
            self._state = replace(self._state, loads=tuple(found))
            self._changed = True

    def hosts(self, samples: Mapping[str, HostSample], *, scale: int) -> None:
        with self._lock:
            counted = {one.node: one for one in self._state.hosts}
            for node, now in samples.items():
                last = self._samples.get(node)
                self._samples[node] = now
                if last is None or (growth := now.since(last, scale=scale)) is None:
                    continue
                before = counted.get(node)
                dropped = growth.received_dropped + growth.sent_dropped + growth.queue_dropped
                counted[node] = LiveHost(
                    node=node,
                    received_bps=growth.received_bps,
                    sent_bps=growth.sent_bps,
                    dropped=dropped + (before.dropped if before else 0),
                    retransmits=growth.retransmits + (before.retransmits if before else 0),
                    queue_bytes=now.queue_bytes * scale,
                    busy=growth.busy,
                )
            self._state = replace(self._state, hosts=tuple(counted.values()))
            self._changed = True

    def _write_on(self) -> None:
        while True:
            with self._lock:
                found = self._whole() if self._changed else None
                self._changed = False
            if found is not None:
                with suppress(OSError):
                    live.save(self._folder, found)
            if self._ended.wait(EVERY_S):
                return

    def _whole(self) -> Live:
        if time.monotonic() >= self._next_passes:
            self._next_passes = time.monotonic() + PASSES_EVERY_S
            for job in self._jobs.values():
                job.passes = _passes(job) if self.samples_hosts else None
        return replace(self._state, jobs=tuple(_told(name, job) for name, job in self._jobs.items()))


def _told(name: str, job: _Job) -> LiveJob:
    return LiveJob(
        name=name,
        seconds=tuple(round(value, 6) for value in job.seconds),
        measured=job.measured,
        heard_ns=job.heard_ns,
        passes=job.passes,
        ranks=tuple(
            LiveRank(
                rank=number,
                last=rank.last,
                seconds=round(sum(rank.seconds) / len(rank.seconds), 6),
                wait_s=round(sum(rank.waits) / len(rank.waits), 6) if rank.waits else None,
            )
            for number, rank in sorted(job.ranks.items())
        ),
    )


def _passes(job: _Job) -> LivePasses | None:
    """Return the passes of the last iterations; None where a rank logs none, or ranks are too many for it."""
    most = live.MOST_ROWS // max(1, len(job.ranks))
    rows = [
        (rank, one, one.passes_s, one.wait_s)
        for rank, mine in sorted(job.ranks.items())
        for one in list(mine.logged)[-most:]
    ]
    known = [(rank, one, passes_s, wait_s or 0.0) for rank, one, passes_s, wait_s in rows if passes_s is not None]
    if most < live.FEWEST_PASSES or len(known) < len(rows):
        return None
    return LivePasses(
        rank=tuple(rank for rank, *_ in known),
        iteration=tuple(one.number for _, one, *_ in known),
        start_ns=tuple(one.start_ns for _, one, *_ in known),
        end_ns=tuple(one.end_ns for _, one, *_ in known),
        passes_s=tuple(round(passes_s, 6) for *_, passes_s, _ in known),
        wait_s=tuple(round(wait_s, 6) for *_, wait_s in known),
    )
