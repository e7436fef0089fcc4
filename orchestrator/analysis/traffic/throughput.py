"""Count bytes in a span of time from captures and counters: loads, training traffic, bursts, rates over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from orchestrator.parts.rows import BIN_NS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
T = TypeVar("T")
Match = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Bins:
    """Bytes (or packets) in bins of `width_ns`, by the start of each; bins without any are left out."""

    start_ns: Ints
    amount: Floats
    width_ns: int

    def within(self, begin_ns: int, end_ns: int) -> float:
        """Return the amount in a span; a bin on its edge counts for the share of it that lies inside."""
        inside = np.minimum(self.start_ns + self.width_ns, end_ns) - np.maximum(self.start_ns, begin_ns)
        return float(np.sum(self.amount * np.clip(inside, 0, None) / self.width_ns))

    def busiest(self, begin_ns: int, end_ns: int) -> float:
        """Return the amount of the fullest bin in a span: how far off an edge between two bins can be."""
        inside = (self.start_ns + self.width_ns > begin_ns) & (self.start_ns < end_ns)
        return float(np.max(self.amount[inside], initial=0.0))

    def longest_gap_s(self, begin_ns: int, end_ns: int) -> float:
        """Return the longest time in a span without anything, to the width of a bin, in seconds."""
        busy = self.start_ns[(self.amount > 0) & (self.start_ns + self.width_ns > begin_ns) & (self.start_ns < end_ns)]
        edges = np.concatenate(([begin_ns - self.width_ns], np.sort(busy), [end_ns]))
        return max(0.0, float(np.max(np.diff(edges)) - self.width_ns) / 1e9)

    def rate(self, begin_ns: int, end_ns: int, step_ns: int) -> tuple[Floats, Floats]:
        """Return bits a second over time: seconds since `begin_ns` at the middle of each whole step, and its rate.

        A step that is a multiple of the bins' width takes as many bins as the next one.
        """
        steps = max(1, (end_ns - begin_ns) // step_ns)
        at = (self.start_ns - begin_ns // self.width_ns * self.width_ns) // step_ns
        keep = (at >= 0) & (at < steps)
        total = np.bincount(at[keep], self.amount[keep], steps)
        middle = np.arange(0.5, steps, dtype=np.float64) * (step_ns / 1e9)
        return middle, total * 8e9 / step_ns


class CachedTable:
    """A pyarrow table with a cache of values computed from it, since many windows of a run ask for the same."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._found: dict[Any, Any] = {}

    def once(self, what: Any, work_out: Callable[[Any], T]) -> T:
        """Return what `work_out` computes from the table, cached under `what`."""
        if what not in self._found:
            self._found[what] = work_out(self._table)
        found: T = self._found[what]
        return found


def bins(table: Any, match: Match, *, column: str = "wire_bytes") -> Bins:
    """Return bins of the `packets` table (a pyarrow Table) whose columns equal `match` (None: anything), added up.

    "payload_bytes" are without those that were seen before.
    """
    if isinstance(table, CachedTable):
        return table.once(("bins", *match.items(), column), lambda whole: bins(whole, match, column=column))
    import pyarrow.compute as pc

    rows = table
    for name, value in match.items():
        if value is not None:
            rows = rows.filter(pc.equal(rows[name], value))
    starts, place = np.unique(_numbers(rows, "bin_ns").astype(np.int64), return_inverse=True)
    values = _numbers(rows, column).astype(np.float64)
    if column == "payload_bytes":
        values = values - _numbers(rows, "repeated_bytes")
    amounts = np.bincount(place, values, len(starts)).astype(np.float64)
    return Bins(starts, amounts, bin_width(table))


def bin_width(table: Any) -> int:
    """Return the width of the bins of a `packets` table in nanoseconds, since every bin starts at a multiple of it."""
    starts = _numbers(table, "bin_ns").astype(np.int64)
    width = int(np.gcd.reduce(np.unique(starts))) if len(starts) else 0
    return width if 0 < width <= 1_000_000_000 else BIN_NS


def captured(table: Any, *, node: str, port: str | None = None) -> bool:
    """Return whether a capture of this node (and port) is in the `packets` table."""
    if isinstance(table, CachedTable):
        return table.once(("captured", node, port), lambda whole: captured(whole, node=node, port=port))
    import pyarrow.compute as pc

    hit = pc.equal(table["node"], node)
    if port is not None:
        hit = pc.and_(hit, pc.equal(table["port"], port))
    return bool(pc.any(hit).as_py())


def achieved_bps(
    packets: Any,
    capture_flows: Any,
    *,
    source: str,
    dst: str,
    port: str | None,
    src_address: str,
    begin_ns: int,
    end_ns: int,
    sent: Mapping[str, float] | None = None,
) -> float:
    """Return the layer-2 rate (bit/s) that `dst` received from a traffic source's sender in a window.

    NaN when not captured. Bins are kept a source, not a pair of hosts: where several hosts send to the same `dst`, each
    gets the share that its flows have there: by `sent`, what each sender's address sent in the window by its own log,
    where that is known, else by `capture_flows` with each flow spread evenly over its own length. Acknowledgements that
    `dst` receives for what it sends itself count, as they load the same link.
    """
    if end_ns <= begin_ns or not captured(packets, node=dst, port=port):
        return math.nan
    match: Match = {"node": dst, "port": port, "direction": "in", "kind": "cross", "name": source}
    total = bins(packets, match).within(begin_ns, end_ns)
    if total == 0.0:
        return 0.0
    by_sender = sent or _shares(capture_flows, match, begin_ns, end_ns)
    everyone = sum(by_sender.values())
    share = by_sender.get(src_address, 0.0) / everyone if everyone > 0 else 0.0
    return total * share * 8e9 / (end_ns - begin_ns)


def _shares(flows: Any, match: Match, begin_ns: int, end_ns: int) -> dict[str, float]:
    import pyarrow.compute as pc

    rows = flows
    for name, value in match.items():
        if value is not None:
            rows = rows.filter(pc.equal(rows[name], value))
    first, last = _numbers(rows, "first_ns"), _numbers(rows, "last_ns")
    inside = np.clip(np.minimum(last, end_ns) - np.maximum(first, begin_ns), 0, None)
    length = last - first
    point = (first >= begin_ns) & (first <= end_ns)
    share = np.where(length > 0, inside / np.maximum(length, 1), point)
    totals: dict[str, float] = {}
    for sender, amount in zip(rows["src"].to_pylist(), _numbers(rows, "wire_bytes") * share, strict=True):
        totals[sender] = totals.get(sender, 0.0) + float(amount)
    return totals


def sent_bytes(
    packets: Any,
    *,
    job: str,
    nodes: Sequence[str],
    ports: Mapping[str, Sequence[str]],
    span_ns: tuple[int, int],
    iterations: Sequence[float],
) -> tuple[float, float]:
    """Return the TCP payload that a rank of the job sends in an iteration, mean over ranks and iterations.

    Retransmissions are left out. `nodes` holds the node of every rank, so that one with several ranks stands there as
    often, and `iterations` how many each rank carried out in the span; nodes of which one of their `ports` was not
    captured are left out with their ranks. What ranks of one node say to each other does not cross its ports and is not
    counted. Second comes the share of it that may fall on either side of the span's ends: a port's fullest bin. NaN,
    and no share, when no node was captured.
    """
    of_node: Mapping[str, Sequence[str | None]] = {node: ports.get(node) or (None,) for node in nodes}
    known = {node for node, mine in of_node.items() if all(captured(packets, node=node, port=port) for port in mine)}
    carried_out = sum(count for node, count in zip(nodes, iterations, strict=True) if node in known)
    if carried_out <= 0:
        return math.nan, 0.0
    total = edges = 0.0
    for node, port in [(one, port) for one in sorted(known) for port in of_node[one]]:
        match: Match = {"node": node, "port": port, "direction": "out", "kind": "training", "name": job}
        payload = bins(packets, match, column="payload_bytes")
        total += payload.within(*span_ns)
        edges += payload.busiest(*span_ns)
    return total / carried_out, edges / total if total > 0 else 0.0


def counter_growth(
    counters: Any,
    *,
    node: str,
    port: str,
    counter: str,
    span_ns: tuple[int, int],
    outside_s: float = 1.0,
    wraps_at: float | None = None,
) -> float:
    """Return the growth of a counter in a span, interpolated between samples; NaN when these do not reach it.

    The samples must begin and end no more than `outside_s` inside the span. A counter that falls from its upper half
    into its lower one has rolled over where it does at `wraps_at`. Of any other that falls to less than half it is not
    known by how much it grew: its driver was loaded anew, or somebody reset it. A smaller step back is taken as it is,
    since the kernel adds up counts of its processors one after the other.
    """
    time_ns, value = samples(counters, node=node, port=port, counter=counter)
    begin_ns, end_ns = span_ns
    slack = outside_s * 1e9
    if len(time_ns) < 2 or time_ns[0] > begin_ns + slack or time_ns[-1] < end_ns - slack:
        return math.nan
    value = _unrolled(time_ns, value, span_ns, wraps_at)
    # Relative to the span, since a float64 resolves the epoch only to 256 ns.
    at = np.interp([0.0, float(end_ns - begin_ns)], (time_ns - begin_ns).astype(np.float64), value)
    grown = float(at[1] - at[0])
    return grown if grown >= 0 else math.nan


def _unrolled(time_ns: Ints, value: Floats, span_ns: tuple[int, int], wraps_at: float | None) -> Floats:
    """Return a counter's values without roll-overs; NaN throughout where it was reset around the span."""
    steps = np.diff(value)
    back = np.flatnonzero(steps < 0)
    if not len(back):
        return value
    half = math.inf if wraps_at is None else wraps_at / 2
    rolled = back[(value[back] >= half) & (value[back + 1] < half)]
    first = int(np.searchsorted(time_ns, span_ns[0], side="right")) - 1
    last = int(np.searchsorted(time_ns, span_ns[1], side="left"))
    anew = np.setdiff1d(back[value[back + 1] < value[back] / 2], rolled)
    if np.any((anew >= max(0, first)) & (anew < last)):
        return np.full(len(value), np.nan)
    added = np.zeros(len(value))
    added[rolled + 1] = 0.0 if wraps_at is None else wraps_at
    return np.asarray(value + np.cumsum(added))


def samples(counters: Any, *, node: str, port: str | None, counter: str) -> tuple[Ints, Floats]:
    """Return the instants (ns) and values of one counter, in order of time."""
    if isinstance(counters, CachedTable):
        ask = {"node": node, "port": port, "counter": counter}
        return counters.once(tuple(ask.items()), lambda whole: samples(whole, **ask))  # type: ignore[arg-type]
    import pyarrow.compute as pc

    rows = counters.filter(pc.equal(counters["counter"], counter))
    rows = rows.filter(pc.equal(rows["node"], node))
    if port is not None:
        rows = rows.filter(pc.equal(rows["port"], port))
    time_ns = rows["time_ns"].to_numpy(zero_copy_only=False).astype(np.int64) if len(rows) else np.zeros(0, np.int64)
    value = _numbers(rows, "value")
    order = np.argsort(time_ns, kind="stable")
    order = order[~np.isnan(value[order])]
    return time_ns[order], value[order]


def _numbers(table: Any, column: str) -> Any:
    values = table[column].to_numpy(zero_copy_only=False)
    # Instants stay integers: a float64 cannot hold one to the nanosecond.
    return values if values.dtype == np.int64 else values.astype(np.float64)


def burst_height(bins: Bins, *, zero_ns: int, width_ns: int, period_ns: int, span_ns: tuple[int, int]) -> float:
    """Return the rate in a burst over the mean, all periods of a span laid upon one another; NaN without any traffic.

    `zero_ns` is where a burst begins. Bins are not aligned to it, so that a burst of n bins lies in n + 1 of them: what
    the one that is too many carries otherwise, the median of the bins outside of bursts, is taken off.
    """
    inside = (bins.start_ns >= span_ns[0]) & (bins.start_ns < span_ns[1])
    count = period_ns // bins.width_ns
    touched = -(-width_ns // bins.width_ns) + 1
    if not inside.any() or count <= touched:
        return float("nan")
    # A bin that begins less than its width before the burst is the first that the burst touches.
    place = (bins.start_ns[inside] - zero_ns + bins.width_ns - 1) % period_ns // bins.width_ns
    folded = np.bincount(place, bins.amount[inside], count)[:count]
    burst = folded[:touched].sum() - np.median(folded[touched:])
    return float(burst / (touched - 1) / folded.mean())
