"""Keep what goes on in a run in two small files of its folder, which are there only while the run is under way.

`live.json` is what `orch watch` shows: its controller replaces it, whole, when something has changed. Of
`live.watched` the time of change alone counts: whoever watches moves it, so that counters of hosts are asked for while
somebody looks and not otherwise. Rates and sizes are at full size, seconds those of the experiment (not dilated).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.core.errors import StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.store import atomic
from orchestrator.store.manifests import coding
from orchestrator.store.manifests.coding import Count, Real, Whole

FILE, WATCHED = "live.json", "live.watched"
FORMAT = 1
MOST_BYTES = 4 << 20  # of the file: 250 ranks are 30 KB
MOST_TIMES = 240  # iterations of a job whose times are kept: the last ones
RECENT = 10  # iterations over which a rank's time and waiting are taken
MOST_PASSES = 40  # iterations whose passes are told, of each rank
FEWEST_PASSES = 10  # of a rank: with more ranks than MOST_ROWS has room for, none are told
MOST_ROWS = 1280  # of passes: those of a job
WATCHED_S = 10.0  # for which whoever moved `live.watched` is taken to look


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRank:
    """A rank: the number of its last iteration, and means over its RECENT ones.

    `wait_s` is what it waited for communication, None where it does not log that.
    """

    rank: Whole
    last: Whole
    seconds: Real
    wait_s: Real | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePasses:
    """Columns of a table of the last iterations of ranks: forward and backward pass together, and waiting after them.

    Instants are by the controller's clock.
    """

    rank: tuple[Whole, ...]
    iteration: tuple[Whole, ...]
    start_ns: tuple[Whole, ...]
    end_ns: tuple[Whole, ...]
    passes_s: tuple[Real, ...]
    wait_s: tuple[Real, ...]

    def __post_init__(self) -> None:
        """Refuse columns that differ in length (ValueError)."""
        columns = (self.rank, self.iteration, self.start_ns, self.end_ns, self.passes_s, self.wait_s)
        if len({len(column) for column in columns}) > 1:
            raise ValueError("columns of passes differ in length")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A job: the times of rank 0's last iterations, how many count so far, and its ranks that have logged one.

    `heard_ns` is when the controller heard of the last one, by its clock. `passes` are told while somebody watches,
    where ranks log them.
    """

    name: str
    seconds: tuple[Real, ...] = ()
    measured: Count = 0
    heard_ns: Whole = 0
    ranks: tuple[LiveRank, ...] = ()
    passes: LivePasses | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLoad:
    """Cross traffic that is to arrive at a receiver (a host or a rail of it), and all that does, in bit/s.

    `mean_bps` is over the window so far, None outside of one.
    """

    end: str
    requested_bps: Real
    received_bps: Real | None = None
    mean_bps: Real | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveHost:
    """A host between its last two samples; counts are since its first one, `queue_bytes` waited at the last one.

    `busy` is the share of its processors' time that was used.
    """

    node: str
    received_bps: Real
    sent_bps: Real
    dropped: Count
    retransmits: Count
    queue_bytes: Count
    busy: Real | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWindow:
    """The window that is measured next or now, the `number`-th `of` several; `left_s` until it ends, if known."""

    name: str
    number: Count
    of: Count
    wanted: Count | None = None
    left_s: Real | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What goes on in a run; `label` says which of several it is, `phases` how long those that are over took."""

    format: int = FORMAT
    label: str
    phase: str = ""
    phase_began_ns: Whole = 0
    phases: Mapping[str, Real] = field(default_factory=dict)
    window: LiveWindow | None = None
    jobs: tuple[LiveJob, ...] = ()
    loads: tuple[LiveLoad, ...] = ()
    hosts: tuple[LiveHost, ...] = ()
    failures: tuple[str, ...] = ()


def begin(folder: Path) -> None:
    """Make the file by which whoever watches says so; nobody does yet."""
    path = folder / WATCHED
    path.touch()
    os.utime(path, (0, 0))


def save(folder: Path, live: Live) -> None:
    """Write what goes on in place of what went on; OSError where that cannot be done."""
    atomic.write(folder / FILE, coding.encoded(live), durable=False)


def load(folder: Path) -> Live | None:
    """Return what goes on in the run of a folder; None where it does not say.

    StoreError for what no controller wrote, or a later version of it.
    """
    path = folder / FILE
    try:
        with safepath.opened(path) as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise StoreError(f"{path}: is larger than {MOST_BYTES:,} bytes: no controller wrote it")
        found = coding.decoded(data, Live)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from None
    except UnsafePath as error:
        raise StoreError(f"{path}: {error.message}") from None
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: is not what a controller writes: {error}") from None
    if found.format > FORMAT:
        raise StoreError(f"{path}: is of format {found.format}, and this orch reads {FORMAT}", hint="use a later orch")
    return found


def remove(folder: Path) -> None:
    """Remove both files, if they are there: the run is over, or nobody works on it any more."""
    for name in (FILE, WATCHED):
        (folder / name).unlink(missing_ok=True)


def watch(folder: Path) -> None:
    """Say that somebody watches, where that may be said; nothing is made that is not there."""
    with suppress(OSError):
        os.utime(folder / WATCHED, follow_symlinks=False)


def is_watched(folder: Path) -> bool:
    """Return whether somebody has said within WATCHED_S that he watches."""
    try:
        return abs(time.time() - (folder / WATCHED).lstat().st_mtime) <= WATCHED_S
    except OSError:
        return False
