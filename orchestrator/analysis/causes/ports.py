"""What was measured of each end of each link while the network was on the critical path: rates, queues, losses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.parts.topology import Link, Topology

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

STEP_NS = 1_000_000  # of the axis of time; bins of captures are as wide
MOST_VALUES = 2_000_000  # steps of all links together: a longer window is looked at in its first part
RATE_STEPS = 20  # a rate is a mean over so many steps
QUEUED_PACKETS = 2  # a queue with more than these holds packets back

QUEUES = r"^qdisc\.[^.@]+\.(backlog_bytes|drops)$"  # of the root: children stand in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Steps of a millisecond over a window, and those in which the network was on the critical path."""

    origin_ns: int
    steps: int
    exposed: Floats  # share of each step
    iteration: Ints  # place of the iteration of each step; -1: none

    def of(self, time_ns: Ints) -> Ints:
        """Return the step of each instant."""
        return (time_ns - self.origin_ns) // STEP_NS


def axis(begin_ns: int, end_ns: int, begun_s: Floats, ended_s: Floats, origin_ns: int) -> Axis:
    """Return the axis of a window; the network was exposed in a span an iteration, in seconds since `origin_ns`."""
    steps = max(1, (end_ns - begin_ns) // STEP_NS + 1)
    exposed, iteration = np.zeros(steps), np.full(steps, -1, np.int64)
    shift = (origin_ns - begin_ns) / STEP_NS
    for place, (begin, end) in enumerate(zip(begun_s, ended_s, strict=True)):
        first, last = begin * 1e9 / STEP_NS + shift, end * 1e9 / STEP_NS + shift
        low, high = max(0, math.floor(first)), min(steps, math.ceil(last))
        if high > low:
            edges = np.arange(low, high)
            exposed[low:high] += np.clip(np.minimum(edges + 1, last) - np.maximum(edges, first), 0, 1)
            iteration[low:high] = place
    return Axis(origin_ns=begin_ns, steps=steps, exposed=np.minimum(exposed, 1), iteration=iteration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One direction of a link: `out` is what a host sends, `in` what it receives; `up` is what a leaf sends a spine.

    Of a link between switches `host` is its name, and `device` the port that sends. Rates are bit/s on the wire (layer
    2). Series are over the axis: `own` the job's bytes, `others` those of each other job, source of traffic or kind,
    `backlog` bytes in the queue at the sending end, `collided` the share of a step that large flows would take less,
    were some of them on an uplink of their leaf that is idle. What was not sampled is None.
    """

    host: str
    device: str
    direction: str
    rate_bps: float
    own: Floats | None = None
    others: Mapping[str, Floats] = field(default_factory=dict)
    backlog: Floats | None = None
    drops: float = math.nan
    collided: Floats | None = None

    @property
    def name(self) -> str:
        """Return what people call it."""
        if self.direction in ("up", "down"):
            return f"{self.host}, {self.direction}"
        return f"{self.host}'s link, {'sending' if self.direction == 'out' else 'receiving'}"

    def queued(self, mtu: int) -> Bools:
        """Return the steps in which packets waited; those in which a full packet passed where no queue was sampled."""
        if self.backlog is not None:
            return self.backlog > QUEUED_PACKETS * mtu
        return np.zeros(0, bool) if self.own is None else self.own >= mtu

    @property
    def carried(self) -> Floats | None:
        """All bytes of each step; None where nothing was captured."""
        return None if self.own is None else np.sum([self.own, *self.others.values()], axis=0)


def smoothed(values: Floats, steps: int = RATE_STEPS) -> Floats:
    """Return the mean over so many steps around each."""
    width = min(steps, len(values))
    total = np.concatenate(([0.0], np.cumsum(values)))
    middle = (total[width:] - total[:-width]) / width
    before = (width - 1) // 2
    return np.pad(middle, (before, len(values) - len(middle) - before), mode="edge")


def ports(topology: Topology, job: str, *, captured: Any, packets: Any, counters: Any, over: Axis) -> tuple[Port, ...]:
    """Return both directions of every host's links.

    `captured`, `packets` and `counters` are the tables `capture_flows`, `flow_packets` and `counters` (pyarrow).
    """
    series = _series(captured, packets, over)
    backlogs = queues(counters, over)
    found = []
    for link in topology.links:
        for direction in ("out", "in"):
            kinds = series.get((link.host, link.device, direction))
            place = (link.host, link.device) if direction == "out" else (link.switch, link.switch_port)
            backlog, drops = backlogs.get(place, (None, math.nan))
            others: dict[str, Floats] = (
                {} if kinds is None else {name: values for name, values in kinds.items() if name != job}
            )
            own = None if kinds is None else kinds.get(job, np.zeros(over.steps))
            found.append(
                Port(
                    host=link.host,
                    device=link.device,
                    direction=direction,
                    rate_bps=_rate(link, topology),
                    own=own,
                    others=others,
                    backlog=backlog,
                    drops=drops,
                )
            )
    return tuple(found)


def _rate(link: Link, topology: Topology) -> float:
    return link.rate / topology.wire_scale


def _series(captured: Any, packets: Any, over: Axis) -> dict[tuple[str, str, str], dict[str, Floats]]:
    """Return bytes of each step by host, device and direction, then by the name of a job, of a source, or a kind."""
    rows = captured.select(["node", "launch", "port", "direction", "kind", "name"]).to_pylist()
    owners: dict[tuple[str, str], list[tuple[tuple[str, str, str], str]]] = {}
    for row in rows:
        place = (row["node"], row["port"], row["direction"])
        owners.setdefault((row["node"], row["launch"]), []).append((place, row["name"] or row["kind"]))
    found: dict[tuple[str, str, str], dict[str, Floats]] = {}
    of_flow, sizes = (packets[name].to_numpy().astype(np.int64) for name in ("flow", "wire_bytes"))
    at = over.of(packets["bin_ns"].to_numpy().astype(np.int64))
    inside = (at >= 0) & (at < over.steps)
    for (node, launch), rows_of in grouped(packets, ("node", "launch")):
        flows = owners.get((node, launch), [])
        mine = rows_of[inside[rows_of]]
        number, when, size = of_flow[mine], at[mine], sizes[mine]
        known = (number >= 0) & (number < len(flows))
        labels = list(dict.fromkeys(flows))
        label_of = np.array([labels.index(one) for one in flows], np.int64)
        of = label_of[number[known]]
        for label, (port, name) in enumerate(labels):
            here = of == label
            total = np.bincount(when[known][here], size[known][here], over.steps).astype(np.float64)
            kinds = found.setdefault(port, {})
            kinds[name] = kinds.get(name, np.zeros(over.steps)) + total
    return found


def queues(counters: Any, over: Axis) -> dict[tuple[str, str], tuple[Floats | None, float]]:
    """Return the backlog (bytes) of each step, and drops over the axis, of each port's root queue."""
    import pyarrow.compute as pc

    rows = counters.filter(pc.match_substring_regex(counters["counter"], QUEUES))
    time_ns, value = rows["time_ns"].to_numpy().astype(np.int64), rows["value"].to_numpy()
    backlogs: dict[tuple[str, str], Floats] = {}
    drops: dict[tuple[str, str], float] = {}
    edges = over.origin_ns + STEP_NS * np.arange(over.steps + 1)
    for (node, port, counter), mine in grouped(rows, ("node", "port", "counter")):
        order = mine[np.argsort(time_ns[mine], kind="stable")]
        when, values = time_ns[order], value[order]
        if counter.endswith("drops"):
            grown = np.interp([edges[0] - when[0], edges[-1] - when[0]], (when - when[0]).astype(float), values)
            drops[node, port] = float(grown[1] - grown[0])
        else:
            last = np.searchsorted(when, edges[:-1] + STEP_NS // 2, side="right") - 1
            backlogs[node, port] = np.where(last < 0, 0.0, values[np.maximum(last, 0)])
    return {place: (backlogs.get(place), drops.get(place, math.nan)) for place in backlogs.keys() | drops.keys()}


def grouped(table: Any, columns: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], Ints]]:
    """Yield the values of some columns of a table (pyarrow), with the places of the rows that have them."""
    if not table.num_rows:
        return
    codes = np.zeros(table.num_rows, np.int64)
    for name in columns:
        known = table[name].combine_chunks().dictionary_encode()
        codes = codes * max(1, len(known.dictionary)) + known.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    order = np.argsort(codes, kind="stable")
    for mine in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield tuple(table[name][int(mine[0])].as_py() for name in columns), mine


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edge:
    """What TCP and captures say of the job's connections from one host to another.

    `repeated_bytes` were sent again, of which the share `needless` had arrived, as the receiver said; `timeouts` is how
    often a retransmission time-out fired, `rtt_s` the least round trip (where the kernel does not tell it, what a
    twentieth of the smoothed ones is below), `window_segments` what was in flight at most (19 of 20 samples with
    anything in flight), `cwnd_segments` the congestion window then (median), `offered_bytes` the receiver's window then
    at its least and its largest (a twentieth of the samples is beyond either), `limited` the share of the time with
    data to send in which the receiver's window ("rwnd") or the sender's buffer ("sndbuf") held it up. `held` is the
    share of all time in which the receiver's window did. `received` are the samples of the receiver's sockets: when
    each was taken, and whether there was payload then that its process had not read. `stuck` are spans (from, to, in
    ns) in which a connection had payload to send, nothing under way, and a receiver that would have taken it.
    """

    src: str
    dst: str
    payload_bytes: float
    repeated_bytes: float
    needless: float = 0.0
    timeouts: float = math.nan
    rtt_s: float = math.nan
    window_segments: float = math.nan
    cwnd_segments: float = math.nan
    offered_bytes: tuple[float, float] = (math.nan, math.nan)
    limited: Mapping[str, float] = field(default_factory=dict)
    held: float = math.nan
    received: tuple[Ints, Bools] = field(default_factory=lambda: (np.zeros(0, np.int64), np.zeros(0, bool)))
    stuck: tuple[Ints, Ints] = field(default_factory=lambda: (np.zeros(0, np.int64), np.zeros(0, np.int64)))

    @property
    def unread(self) -> float:
        """Return the share of all samples in which the receiver had payload to read; NaN without samples."""
        return float(self.received[1].mean()) if len(self.received[1]) else math.nan

    @property
    def repeated(self) -> float:
        """Return the share of payload that was sent again, since it had not arrived."""
        lost = self.repeated_bytes * (1 - self.needless)
        return lost / self.payload_bytes if self.payload_bytes else 0.0


FEWEST_SHARE = 0.2  # of the bytes of the largest: less is acknowledgements and control


def edges(topology: Topology, job: str, *, captured: Any, sockets: Any, span_ns: tuple[int, int]) -> tuple[Edge, ...]:
    """Return the pairs of hosts between which a job moved its tensors, by captures where the sender sat.

    `captured` and `sockets` are the tables `capture_flows` and `sockets` (pyarrow).
    """
    hosts = {address: node.name for node in topology.hosts for address in node.addresses}
    sums: dict[tuple[str, str], list[float]] = {}
    ends: dict[tuple[str, str], dict[tuple[str, int, str, int], float]] = {}  # of each pair, with their payload
    columns = ("node", "direction", "name", "src", "src_port", "dst", "dst_port", "payload_bytes", "repeated_bytes")
    for row in captured.select(columns).to_pylist():
        pair = hosts.get(row["src"], ""), hosts.get(row["dst"], "")
        if row["name"] == job and all(pair) and (row["direction"] == "out") == (row["node"] == pair[0]):
            carried = ends.setdefault(pair, {})
            one = row["src"], row["src_port"], row["dst"], row["dst_port"]
            carried[one] = max(carried.get(one, 0.0), row["payload_bytes"])
            if row["direction"] == "out":
                total = sums.setdefault(pair, [0.0, 0.0])
                total[0] += row["payload_bytes"]
                total[1] += row["repeated_bytes"]
    most = max((payload for payload, _ in sums.values()), default=0.0)
    samples = _samples(sockets, span_ns)
    return tuple(
        _edge(
            pair,
            sums[pair],
            [samples[one] for one in ends[pair] if one in samples],
            [samples[back] for one in _largest(ends[pair]) if (back := _turned(one)) in samples],
        )
        for pair in sorted(sums)
        if sums[pair][0] >= FEWEST_SHARE * most > 0
    )


def _largest(payloads: Mapping[tuple[str, int, str, int], float]) -> list[tuple[str, int, str, int]]:
    """Return the connections that carry tensors: receivers of those of control, beside them, wait for nothing."""
    least = FEWEST_SHARE * max(payloads.values())
    return [ends for ends, payload in payloads.items() if payload >= least]


def _turned(ends: tuple[str, int, str, int]) -> tuple[str, int, str, int]:
    """Return the ends of a connection as the other end has them."""
    src, src_port, dst, dst_port = ends
    return dst, dst_port, src, src_port


_COUNTED = (
    "bytes_sent",
    "bytes_retrans",
    "retransmits",
    "dsack_dups",
    "timeouts",
    "min_rtt_s",
    "busy_s",
    "rwnd_limited_s",
    "sndbuf_limited_s",
)


_SAMPLED = ("rtt_s", "cwnd_segments", "unacked_segments", "notsent_bytes", "snd_wnd_bytes", "mss_bytes", "unread_bytes")
RECEIVED = ("unread_bytes", "time_ns")


def _samples(sockets: Any, span_ns: tuple[int, int]) -> dict[tuple[str, int, str, int], dict[str, Floats]]:
    """Return the samples of each connection in the span, in order of time, by its ends; NaN where one is missing."""
    import pyarrow.compute as pc

    inside = pc.and_(pc.greater_equal(sockets["time_ns"], span_ns[0]), pc.less_equal(sockets["time_ns"], span_ns[1]))
    rows = sockets.filter(inside).sort_by("time_ns")
    names = (*_SAMPLED, "time_ns", *_COUNTED)
    columns = {name: rows[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in names}
    return {
        (src, src_port, dst, dst_port): {name: values[mine] for name, values in columns.items()}
        for (src, src_port, dst, dst_port), mine in grouped(rows, ("src", "src_port", "dst", "dst_port"))
    }


def _edge(
    pair: tuple[str, str],
    total: Sequence[float],
    samples: Sequence[Mapping[str, Floats]],
    received: Sequence[Mapping[str, Floats]],
) -> Edge:
    def joined(name: str) -> Floats:
        return np.concatenate([one[name] for one in samples if name in one] or [np.zeros(0)])

    def grown(name: str) -> float:
        known = [one[name][~np.isnan(one[name])] for one in samples if name in one]
        known = [one for one in known if len(one)]
        return float(sum(one[-1] - one[0] for one in known)) if known else math.nan

    flying = joined("unacked_segments")
    busy = flying > 0
    offered = joined("snd_wnd_bytes")[busy]
    offered = offered[~np.isnan(offered)]
    least_offered, most_offered = np.quantile(offered, (0.05, 0.95)) if len(offered) else (math.nan, math.nan)
    least = joined("min_rtt_s")
    least = least[~np.isnan(least)]
    rtt = joined("rtt_s")[busy]
    busy_s, again, twice = grown("busy_s"), grown("retransmits"), grown("dsack_dups")
    limited = {name: grown(f"{name}_limited_s") / busy_s for name in ("rwnd", "sndbuf")} if busy_s > 0 else {}
    left, taken_ns = (np.concatenate([one[name] for one in received] or [np.zeros(0)]) for name in RECEIVED)
    known = ~np.isnan(left)
    sampled_s = sum(float(one["time_ns"][-1] - one["time_ns"][0]) / 1e9 for one in samples)
    sent, retransmitted = grown("bytes_sent"), grown("bytes_retrans")  # a meter follows no sequence numbers
    told = retransmitted / sent * total[0] if sent > 0 and retransmitted > 0 else 0.0
    return Edge(
        src=pair[0],
        dst=pair[1],
        payload_bytes=total[0],
        repeated_bytes=max(total[1], told),
        needless=min(1.0, twice / again) if again > 0 and twice > 0 else 0.0,
        timeouts=grown("timeouts"),
        rtt_s=float(least.min()) if len(least) else float(np.quantile(rtt, 0.05)) if len(rtt) else math.nan,
        window_segments=float(np.quantile(flying[busy], 0.95)) if busy.any() else math.nan,
        cwnd_segments=float(np.median(joined("cwnd_segments")[busy])) if busy.any() else math.nan,
        offered_bytes=(float(least_offered), float(most_offered)),
        limited=limited,
        held=grown("rwnd_limited_s") / sampled_s if sampled_s > 0 else math.nan,
        received=(taken_ns[known].astype(np.int64), left[known] > 0),
        stuck=_stuck(samples),
    )


def _stuck(samples: Sequence[Mapping[str, Floats]]) -> tuple[Ints, Ints]:
    """Return the spans in which connections are stuck in two samples or more, with half an interval on either side.

    What was sent and waits in a queue of the host counts as under way; what its own queue took nothing of does not.
    """
    spans: list[tuple[float, float]] = []
    for one in samples:
        at = one["time_ns"]
        stuck = (one["unacked_segments"] == 0) & (one["notsent_bytes"] > 0) & (one["snd_wnd_bytes"] >= one["mss_bytes"])
        again = stuck[1:] & stuck[:-1] & (np.diff(one["bytes_sent"]) == 0)
        half = float(np.median(np.diff(at))) / 2 if again.any() else 0.0
        edges = np.flatnonzero(np.diff(np.concatenate(([False], again, [False])).astype(np.int8)))
        spans += [(at[first] - half, at[last] + half) for first, last in zip(edges[::2], edges[1::2], strict=True)]
    begins, ends = np.array(spans, np.int64).reshape(-1, 2).T
    return begins, ends
