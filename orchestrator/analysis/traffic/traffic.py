"""Traffic between hosts over time: flows and bins, from a run's tables or from a trace of any network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.trace import Trace
from orchestrator.parts.topology import Node

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]

MOST_STEPS = 1 << 22  # of bins from a traffic's begin to its end: an hour of milliseconds; beyond, they get wider

TRAINING, CROSS, CONTROL, OTHER = "training", "cross", "control", "other"

BIG_SHARE = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Flows (5-tuples, one row a direction, each captured at one place) and what each carried in bins of time.

    `src` and `dst` are indices into `hosts`. Payload leaves out what was sent before. Bins are sparse, by start.
    """

    hosts: tuple[str, ...]
    src: Ints
    dst: Ints
    src_port: Ints
    dst_port: Ints
    kind: Texts  # TRAINING, CROSS, CONTROL or OTHER
    name: Texts  # the job or the source of the traffic, where it is known
    packets: Ints
    wire_bytes: Ints
    payload_bytes: Ints
    first_ns: Ints
    last_ns: Ints
    width_ns: int
    bin_flow: Ints  # row of the flows
    bin_ns: Ints
    bin_wire: Ints
    bin_payload: Ints
    begin_ns: int
    end_ns: int
    rail: Ints | None = None  # of the host that sends, by its address; None where that is not known
    guessed: bool = False  # kinds are told by the flows' shape, since nobody said what was launched

    def __len__(self) -> int:
        return len(self.src)

    @property
    def seconds(self) -> float:
        return max(self.end_ns - self.begin_ns, 0) / 1e9

    def of(self, *kinds: str) -> Mask:
        """Return a mask of the flows of these kinds."""
        mask = np.zeros(len(self), bool)
        for kind in kinds:
            mask |= self.kind == kind
        return mask

    def label(self, flow: int) -> str:
        """Return a flow's name for people: hosts and ports."""
        ends = ((self.src[flow], self.src_port[flow]), (self.dst[flow], self.dst_port[flow]))
        return " → ".join(f"{self.hosts[host]}:{port}" if port else self.hosts[host] for host, port in ends)


def within(traffic: Traffic, begin_ns: int, end_ns: int) -> Traffic:
    """Return the traffic in a span of time: bins that begin in it, and flows with what these carry."""
    keep = (traffic.bin_ns >= begin_ns) & (traffic.bin_ns < end_ns)
    flow = traffic.bin_flow[keep]

    def total(values: Ints) -> Ints:
        return np.bincount(flow, values[keep], len(traffic)).astype(np.int64)

    return replace(
        traffic,
        wire_bytes=total(traffic.bin_wire),
        payload_bytes=total(traffic.bin_payload),
        bin_flow=flow,
        bin_ns=traffic.bin_ns[keep],
        bin_wire=traffic.bin_wire[keep],
        bin_payload=traffic.bin_payload[keep],
        begin_ns=begin_ns,
        end_ns=end_ns,
    )


def series(traffic: Traffic, flows: Mask, *, payload: bool = False, width_ns: int | None = None) -> Floats:
    """Return bytes of some flows in every bin of the span, 0 where silent; `width_ns` is a multiple of the bins'."""
    width = width_ns or traffic.width_ns
    count = max(1, (traffic.end_ns - traffic.begin_ns) // width)
    picked = flows[traffic.bin_flow]
    # The first bin may begin before the span: what lies in it belongs to the first step.
    place = (traffic.bin_ns[picked] - traffic.begin_ns // traffic.width_ns * traffic.width_ns) // width
    values = (traffic.bin_payload if payload else traffic.bin_wire)[picked]
    inside = (place >= 0) & (place < count)
    return np.bincount(place[inside], values[inside], count).astype(np.float64)


def matrix(traffic: Traffic, flows: Mask, *, payload: bool = True) -> Floats:
    """Return the traffic matrix (hosts, hosts): bytes from host (row) to host (column) of some flows."""
    sums = np.zeros((len(traffic.hosts), len(traffic.hosts)))
    values = traffic.payload_bytes if payload else traffic.wire_bytes
    np.add.at(sums, (traffic.src[flows], traffic.dst[flows]), values[flows])
    return sums


def big_flows(traffic: Traffic, flows: Mask, *, share: float = 0.99) -> Ints:
    """Return the fewest flows that carry at least a share of the bytes of some flows, the biggest first."""
    rows = np.flatnonzero(flows)
    order = rows[np.argsort(-traffic.wire_bytes[rows], kind="stable")]
    reached = np.cumsum(traffic.wire_bytes[order])
    if not len(order) or reached[-1] <= 0:
        return np.zeros(0, np.int64)
    return order[: int(np.searchsorted(reached, share * reached[-1] - 1e-9)) + 1].astype(np.int64)


def moving_average(values: Floats, bins: int) -> Floats:
    """Return the mean over `bins` values around each place; at the ends over those that there are."""
    total = np.concatenate(([0.0], np.cumsum(values)))
    middle = np.arange(len(values))
    low, high = np.maximum(0, middle - (bins - 1) // 2), np.minimum(len(values), middle + bins // 2 + 1)
    return cast(Floats, (total[high] - total[low]) / (high - low))


def from_tables(capture_flows: Any, flow_packets: Any, *, nodes: Sequence[Node]) -> Traffic | None:
    """Return the traffic of a run from its tables (pyarrow) and the manifest's nodes; None when nothing was captured.

    Each flow is taken where it is sent from if that was captured, else where it arrives, else at the first place.
    """
    if not flow_packets.num_rows:
        return None
    names = {address: node.name for node in nodes for address in node.addresses}
    rails = {rail.address: number for node in nodes for number, rail in enumerate(node.rails)}
    source, sources = _encoded(capture_flows["src"])
    sink, sinks = _encoded(capture_flows["dst"])
    keep = _one_place(capture_flows, names)
    number = {address: place for place, address in enumerate(dict.fromkeys([*sources, *sinks]))}
    ends = (
        np.array([number[one] for one in sources])[source[keep]],
        np.array([number[one] for one in sinks])[sink[keep]],
    )
    known = [names.get(address, address) for address in number]
    met, first = np.unique(np.stack(ends, axis=1), return_index=True)
    hosts = tuple(dict.fromkeys([*names.values(), *(known[place] for place in met[np.argsort(first)])]))
    at = {host: place for place, host in enumerate(hosts)}
    place_of = np.array([at.get(host, -1) for host in known])  # -1: of flows that are left out alone

    def picked(column: str) -> Ints:
        return np.asarray(capture_flows[column].to_numpy(), np.int64)[keep]

    def words(column: str) -> Texts:
        numbers, values = _encoded(capture_flows[column])
        return np.array(values, object)[numbers[keep]]

    bins = _bins(flow_packets, capture_flows, keep)
    first_ns, last_ns = picked("first_ns"), picked("last_ns")
    return _bounded(
        Traffic(
            hosts=hosts,
            src=place_of[ends[0]],
            dst=place_of[ends[1]],
            src_port=picked("src_port"),
            dst_port=picked("dst_port"),
            kind=words("kind"),
            name=words("name"),
            packets=picked("packets"),
            wire_bytes=picked("wire_bytes"),
            payload_bytes=picked("payload_bytes") - picked("repeated_bytes"),
            first_ns=first_ns,
            last_ns=last_ns,
            width_ns=bins.width_ns,
            bin_flow=bins.flow,
            bin_ns=bins.start_ns,
            bin_wire=bins.wire,
            bin_payload=bins.payload,
            begin_ns=int(first_ns.min()),
            end_ns=int(last_ns.max()) + 1,
            rail=np.array([rails.get(address, 0) for address in number], np.int64)[ends[0]],
        )
    )


def _encoded(column: Any) -> tuple[Ints, list[Any]]:
    """Return for each row of a column (pyarrow) the number of its value, and the values in the order of their rows."""
    found = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return found.indices.to_numpy().astype(np.int64), found.dictionary.to_pylist()


def _groups(table: Any, *columns: str) -> Ints:
    """Return for each row the number of its combination of values, counted in the order of the rows."""
    import pyarrow as pa

    together = np.zeros(table.num_rows, np.int64)
    for column in columns:
        numbers, values = _encoded(table[column])
        together = _encoded(pa.chunked_array([together * max(1, len(values)) + numbers]))[0]
    return together


def _one_place(flows: Any, names: Mapping[str, str]) -> Ints:
    """Return the rows of `capture_flows` without those that another place captured as well."""
    node, nodes = _encoded(flows["node"])
    there = {name: place for place, name in enumerate(nodes)}

    def captured_at(end: str) -> Mask:
        addresses, values = _encoded(flows[end])
        hosts = np.array([there.get(names.get(address, ""), -1) for address in values], np.int64)
        return cast(Mask, hosts[addresses] == node)

    rank = np.where(captured_at("src"), 0, np.where(captured_at("dst"), 1, 2))
    flow = _groups(flows, "protocol", "src", "src_port", "dst", "dst_port")
    place = _groups(flows, "node", "launch", "port")
    order = np.argsort(flow * 3 + rank, kind="stable")
    best = order[np.unique(flow[order], return_index=True)[1]]  # row of the best place, by flow
    return np.flatnonzero(place == place[best][flow])


class _Bins(NamedTuple):
    """Bins of one width, in order of time: the row of each one's flow, its start and its bytes."""

    width_ns: int
    flow: Ints
    start_ns: Ints
    wire: Ints
    payload: Ints


def _bins(table: Any, flows: Any, keep: Ints) -> _Bins:
    """Return all bins of the kept flows, of the widest width that one of them has."""
    import pyarrow.compute as pc

    rows = flows.num_rows
    new = np.full(rows + 1, -1, np.int64)
    new[keep] = np.arange(len(keep))
    parts = []
    width = int(pc.max(table["width_ns"]).as_py())
    for begin in np.unique(_groups(flows, "node", "launch"), return_index=True)[1].tolist():
        node, launch = (flows[name][begin].as_py() for name in ("node", "launch"))
        mine = table.filter(pc.and_(pc.equal(table["node"], node), pc.equal(table["launch"], launch)))
        columns = [
            mine[name].to_numpy() for name in ("flow", "bin_ns", "wire_bytes", "payload_bytes", "repeated_bytes")
        ]
        flow = new[np.minimum(begin + columns[0], rows)]
        known = flow >= 0
        parts.append(
            [flow[known], columns[1][known] // width * width, columns[2][known], (columns[3] - columns[4])[known]]
        )
    flow, start, wire, payload = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(start, kind="stable")
    return _Bins(width, flow[order], start[order], wire[order], payload[order])


def from_trace(trace: Trace) -> Traffic:
    """Return the traffic of a trace from anywhere, with kinds still unknown ("other")."""
    flows, bins = trace.flows, trace.bins
    keep = np.flatnonzero(flows.counted)
    new = np.full(len(flows), -1, np.int64)
    new[keep] = np.arange(len(keep))
    row = new[bins.flow]
    mine = row >= 0
    return _bounded(
        Traffic(
            hosts=trace.hosts,
            src=flows.src[keep],
            dst=flows.dst[keep],
            src_port=flows.src_port[keep],
            dst_port=flows.dst_port[keep],
            kind=np.full(len(keep), OTHER, object),
            name=np.full(len(keep), "", object),
            packets=flows.packets[keep],
            wire_bytes=flows.wire_bytes[keep],
            payload_bytes=(flows.payload_bytes - flows.repeated_bytes)[keep],
            first_ns=flows.first_ns[keep],
            last_ns=flows.last_ns[keep],
            width_ns=bins.width_ns,
            bin_flow=row[mine],
            bin_ns=bins.start_ns[mine],
            bin_wire=bins.wire_bytes[mine],
            bin_payload=(bins.payload_bytes - bins.repeated_bytes)[mine],
            begin_ns=trace.first_ns,
            end_ns=trace.last_ns + 1,
        )
    )


def _bounded(traffic: Traffic) -> Traffic:
    """Return the traffic with bins so wide that a series of all of them stays small, whatever stamps a trace holds."""
    wider = 1
    while (traffic.end_ns - traffic.begin_ns) // (traffic.width_ns * wider) > MOST_STEPS:
        wider *= 2
    width = traffic.width_ns * wider
    return replace(traffic, width_ns=width, bin_ns=traffic.bin_ns // width * width)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Bytes of a step at full size, from host (row) to host (column): TCP payload sent once, and all of layer 2.

    `flows` counts 5-tuples (one a direction) of the training, `big` holds the shares of the payload of those that carry
    at least 99 % of it together, the biggest first.
    """

    hosts: tuple[str, ...]
    payload: Floats
    wire: Floats
    flows: int
    big: Floats

    @property
    def step_payload(self) -> float:
        """TCP payload of all hosts."""
        return float(self.payload.sum())

    def edge(self, src: str, dst: str, *, wire: bool = False) -> float:
        """Return the payload from one host to another one; 0 where a host is not among them."""
        if src not in self.hosts or dst not in self.hosts:
            return 0.0
        return float((self.wire if wire else self.payload)[self.hosts.index(src), self.hosts.index(dst)])


def volume(found: Traffic, *, steps: float, scale: int, job: str | None = None) -> Volume:
    """Return the volume of a stretch of traffic in which a rank carried out `steps`; of one job, or of all training."""
    mine = of_job(found, job)
    payload = found.payload_bytes[mine].astype(np.float64)
    total = payload.sum()
    shares = np.sort(payload / total)[::-1] if total > 0 else np.zeros(0)
    count = int(np.searchsorted(np.cumsum(shares), BIG_SHARE - 1e-9)) + 1 if len(shares) else 0
    factor = scale / steps
    return Volume(
        hosts=found.hosts,
        payload=matrix(found, mine) * factor,
        wire=matrix(found, mine, payload=False) * factor,
        flows=int((mine & (found.wire_bytes > 0)).sum()),
        big=shares[:count],
    )


def of_job(found: Traffic, job: str | None = None) -> Mask:
    """Return a mask of the training's flows, of one job or of all."""
    mine = found.of(TRAINING)
    return mine if job is None else mine & (found.name == job)
