"""Arrays of a packet trace: flows, bins over time, queue pairs, and the capture points they come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages import decoding
from orchestrator.analysis.capture.stages.decoding import KIND_BITS, KIND_SHIFT
from orchestrator.core.errors import CaptureError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

ETHERTYPE = 0x10000  # added to the ethertype of a frame that is no IP, so that it is no IP protocol number
RUNT, OVERFLOW = -1, -2  # too short to tell; flows beyond the most that are told apart

_MOST_STEPS = 1 << 26
_PROTOCOLS = {1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 47: "gre", 58: "icmp6", 132: "sctp"}
_ETHERTYPES = {0x0800: "ipv4", 0x0806: "arp", 0x86DD: "ipv6", 0x88CC: "lldp", 0x8808: "pause", 0x8915: "roce1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    """One row a direction of a conversation and capture point; every column has the same length.

    A conversation is one 5-tuple in both directions, on one interface and in one network of a tunnel; a TCP connection
    that uses a 5-tuple again begins another one. Of packets in tunnels all is of the innermost headers, but wire bytes.
    Counts of TCP are 0 elsewhere. Instants are nanoseconds since the epoch, with the point's offset added.
    """

    point: Ints  # index into Trace.points
    conversation: Ints  # the two directions share it; unique in a trace
    protocol: Ints  # IP protocol number; ETHERTYPE + ethertype where the frame is no IP; RUNT; OVERFLOW
    src: Ints  # index into Trace.hosts
    dst: Ints
    src_port: Ints  # 0 where there is none, as for later fragments
    dst_port: Ints
    interface: Ints  # index into Trace.interfaces
    tunnel: Ints  # as of `tunnel_name`, 0: none
    outer_src: Ints  # of the outermost headers of a tunnel's first packet, index into Trace.hosts; -1: no tunnel
    outer_dst: Ints
    packets: Ints
    wire_bytes: Ints  # layer 2 as captured, without FCS (the record's original length)
    payload_bytes: Ints  # behind the transport header
    first_ns: Ints
    last_ns: Ints
    opens: Mask  # this direction sent the conversation's first packet (of TCP: its SYN, where that was seen)
    handshake_ns: Ints  # SYN to the ACK of its SYN-ACK at this point; -1: not seen whole, or a part was sent twice
    repeated: Ints  # segments with payload that was captured before
    repeated_bytes: Ints  # payload whose sequence numbers passed here before
    late: Ints  # segments that fill a gap: reordered, or sent again for one that was lost before it came here
    unsure_bytes: Ints  # of `repeated_bytes`, may be new: too many gaps were open at once
    syns: Ints
    fins: Ints
    resets: Ints
    zero_windows: Ints  # times that the sender of this direction closed its receive window
    window_bytes: Ints  # the widest receive window that it advertised, scaled where its SYN was seen
    # False where another interface saw more of the same flow at the same time, or another point more of the same
    # conversation: sums leave it out.
    counted: Mask

    def __len__(self) -> int:
        return len(self.packets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Packets and bytes of each flow in each bin with any, ordered by bin, each flow and bin once.

    `width_ns` can be wider than asked for, where so many rows would not fit (see Trace.notes).
    """

    width_ns: int
    flow: Ints  # row of Flows
    start_ns: Ints  # of the bin: a multiple of width_ns
    packets: Ints
    wire_bytes: Ints
    payload_bytes: Ints
    repeated_bytes: Ints

    def __len__(self) -> int:
        return len(self.flow)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePairs:
    """RoCEv2 (UDP port 4791), one row a capture point, source, destination and destination queue pair.

    Sizes of messages are those of the RDMA extended transport header where it was captured, else the sum of the
    payload from the message's first packet to its last (InfiniBand Architecture Specification 1.4, chapter 9).
    """

    point: Ints
    src: Ints  # index into Trace.hosts
    dst: Ints
    queue_pair: Ints
    interface: Ints  # index into Trace.interfaces
    tunnel: Ints  # as of `tunnel_name`, 0: none
    packets: Ints
    wire_bytes: Ints
    payload_bytes: Ints  # without headers, padding and invariant CRC
    first_ns: Ints
    last_ns: Ints
    opcodes: Ints  # (rows, 256): packets of each opcode of the base transport header
    messages: Ints  # that ended in the capture
    message_bytes: Ints  # their sum
    sizes: Ints  # (rows, len(size_edges)): messages of sizes from this edge to below the next
    size_edges: Ints  # bytes
    out_of_sequence: Ints  # requests whose packet sequence number is not the one after the last
    acknowledged: Ints  # acknowledgements among the packets
    negative: Ints  # negative acknowledgements (out of sequence, receiver not ready, errors)

    def __len__(self) -> int:
        return len(self.packets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The packets of a point that came by one interface, or in tunnels of one kind."""

    name: str
    packets: int
    wire_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePoint:
    """One place where packets were captured: a file, or a rotated set of files."""

    name: str
    files: tuple[str, ...]
    offset_ns: int
    link_types: tuple[str, ...]
    packets: int
    wire_bytes: int
    captured_bytes: int
    first_ns: int  # 0 where there is no packet
    last_ns: int
    snapped: int  # packets of which less was kept than was on the wire
    backwards: int  # packets with an earlier stamp than the one before
    undecoded: int  # packets whose headers end too early or contradict themselves, in no conversation of their own
    undecoded_inner: int  # packets in tunnels that count by what carries them, since the headers inside cannot be read
    interfaces: tuple[Part, ...]  # where the files tell any apart
    tunnels: tuple[Part, ...]  # each kind, and kinds within each other; none where no packet came in one
    unread: tuple[str, ...]  # what kept files from being read at all, for people
    damage: tuple[str, ...]  # what was wrong with the others; everything else in them counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The tables read from one or several capture points."""

    points: tuple[TracePoint, ...]
    hosts: tuple[str, ...]  # addresses as text; hardware addresses where frames are no IP
    interfaces: tuple[str, ...]  # names, or what stands for them; empty where a file says nothing
    flows: Flows
    bins: Bins
    queue_pairs: QueuePairs
    notes: tuple[str, ...]  # what a reader should know about these tables

    @property
    def first_ns(self) -> int:
        return min((point.first_ns for point in self.points if point.packets), default=0)

    @property
    def last_ns(self) -> int:
        return max((point.last_ns for point in self.points if point.packets), default=0)


def joined(kind: type[Any], tables: Sequence[Any], *, shared: Sequence[str] = ()) -> Any:
    """Concatenate tables of one kind; columns in `shared` are the same in all of them."""
    return kind(
        **{
            column.name: getattr(tables[0], column.name)
            if column.name in shared
            else np.concatenate([getattr(table, column.name) for table in tables])
            for column in dataclasses.fields(kind)
        }
    )


def protocol_name(protocol: int) -> str:
    """Return the name of a protocol of `Flows.protocol`."""
    if protocol == RUNT:
        return "runt"
    if protocol == OVERFLOW:
        return "others"
    if protocol >= ETHERTYPE:
        return _ETHERTYPES.get(protocol - ETHERTYPE, f"0x{protocol - ETHERTYPE:04x}")
    return _PROTOCOLS.get(protocol, f"ip-{protocol}")


def tunnel_kinds(tunnel: int) -> str:
    """Return the names of the kinds of tunnels of `Flows.tunnel`, the outermost first, as `gre/vxlan`.

    Empty without a tunnel.
    """
    kinds = tunnel >> KIND_SHIFT
    digits = [kinds >> shift & (1 << KIND_BITS) - 1 for shift in range(2 * KIND_BITS, -1, -KIND_BITS)]
    return "/".join(decoding.TUNNEL_NAMES[digit] for digit in digits if digit)


def tunnel_name(tunnel: int) -> str:
    """Return the kinds of tunnels with the identifier (VNI, key) of the innermost one that has any, as `vxlan 42`."""
    network = tunnel & (1 << KIND_SHIFT) - 1
    return f"{tunnel_kinds(tunnel)} {network}" if network else tunnel_kinds(tunnel)


def inner_text(name: str, packets: int) -> str:
    """Return the sentence about packets in tunnels that are not looked into further."""
    return (
        f"{name}: {packets} packets in tunnels count by their outer headers, since the inner ones were not kept whole "
        "or are not understood"
    )


def series(
    trace: Trace, *, flows: Mask | None = None, column: str = "wire_bytes", width_ns: int | None = None
) -> tuple[Ints, Ints]:
    """Sum one column of the bins over some flows, in every bin from the trace's first packet to its last.

    Return (starts_ns, sums), gaps filled with 0. `flows` is a mask over Trace.flows (default: those counted);
    `width_ns` a multiple of the bins' own width. CaptureError for more bins than memory holds.
    """
    bins, chosen = trace.bins, trace.flows.counted if flows is None else flows
    width = bins.width_ns if width_ns is None else width_ns
    if width % bins.width_ns:
        raise ValueError(f"{width} ns is no multiple of the bins' {bins.width_ns} ns")
    if not len(bins):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    begin, end = trace.first_ns // width, trace.last_ns // width
    if end - begin > _MOST_STEPS:
        raise CaptureError(f"{end - begin:,} bins from the first packet to the last are too many", hint="wider bins")
    picked = chosen[bins.flow]
    places = bins.start_ns[picked] // width - begin
    sums = np.zeros(end - begin + 1, np.int64)
    np.add.at(sums, places, getattr(bins, column)[picked])
    return (begin + np.arange(len(sums))) * width, sums


def moving_average(values: Ints | Floats, bins: int) -> Floats:
    """Return the mean over the last `bins` values at each place; at the beginning over those that there are."""
    total = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    ends = np.arange(1, len(total))
    begins = np.maximum(0, ends - bins)
    return (total[ends] - total[begins]) / np.maximum(1, ends - begins)


def matrix(trace: Trace, column: str = "wire_bytes", *, flows: Mask | None = None) -> Ints:
    """Return the traffic matrix (hosts, hosts): sums of a column of Flows from host (row) to host (column).

    `flows` selects flows (default: counted).
    """
    chosen = trace.flows.counted if flows is None else flows
    sums = np.zeros((len(trace.hosts), len(trace.hosts)), np.int64)
    np.add.at(sums, (trace.flows.src[chosen], trace.flows.dst[chosen]), getattr(trace.flows, column)[chosen])
    return sums
