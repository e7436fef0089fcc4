"""Read the captures of one or several points, each a file or a rotated set, into the tables of one trace."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import numpy as np

from orchestrator.analysis.capture import binning, trace
from orchestrator.analysis.capture.binning import BIN_BUDGET
from orchestrator.analysis.capture.directions import Directions, HostNumbers, address_text, split_via
from orchestrator.analysis.capture.flowtable import MEMORY, MOST_CONVERSATIONS, FlowTable
from orchestrator.analysis.capture.pcap import PIECE_BYTES, in_order
from orchestrator.analysis.capture.stages import decoding, queuepairs, segments
from orchestrator.analysis.capture.trace import (
    OVERFLOW,
    Flows,
    Ints,
    Part,
    QueuePairs,
    Trace,
    TracePoint,
    inner_text,
    tunnel_kinds,
)
from orchestrator.core import memory as process_memory
from orchestrator.core.errors import CaptureError, ConfigError

_COMPRESSED = re.compile(r"\.(gz|zst|zstd|lz4|bz2)$")
_COOKED = 113
_ROTATED = (
    re.compile(r"(?<=\.)(pcap|pcapng|cap|dmp)\d+$"),  # tcpdump -C and -W: x.pcap, x.pcap1, x.pcap02
    re.compile(r"_\d{5,}_\d{12,14}(?=\.|$)"),  # dumpcap -b: x_00001_20260131120000.pcapng
    re.compile(
        r"[-_.]?\d{4}-?\d\d-?\d\d[-_T.]?\d\d[-_:.]?\d\d([-_:.]?\d\d)?(?=\.|$)"
    ),  # tcpdump -G: x-%F_%H:%M:%S.pcap
)

_FIGURES = {  # columns of Flows that `segments` keeps of directions
    "packets": segments.PACKETS, "wire_bytes": segments.WIRE, "payload_bytes": segments.PAYLOAD_SUM,
    "first_ns": segments.FIRST, "last_ns": segments.LAST, "repeated": segments.AGAIN,
    "repeated_bytes": segments.REPEATED, "late": segments.LATE, "unsure_bytes": segments.UNSURE,
    "syns": segments.SYNS, "fins": segments.FINS, "resets": segments.RESETS, "zero_windows": segments.ZERO_WINDOWS,
    "window_bytes": segments.MOST_WINDOW,
}  # fmt: skip

NEAR_NS = 10_000_000  # between two interfaces of a host that a packet passes


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSet:
    """The capture files of one point: those of a rotation, in any order. `offset_ns` is added to every stamp."""

    name: str
    files: tuple[Path, ...]
    offset_ns: int = 0


def grouped(arguments: Sequence[str | Path], *, offsets_ns: Mapping[str, int] | None = None) -> list[CaptureSet]:
    """Group files into capture sets as a user names them: NAME=FILE, or FILE, or a folder of files.

    Files of one NAME are one set. Without a name, files of a folder that differ only in what tcpdump and dumpcap add
    when they rotate (a number behind .pcap, a number and an instant, an instant) are one, named after what is common.
    ConfigError for an offset of a name that is none of the sets'.
    """
    sets: dict[tuple[str, str], list[Path]] = {}
    for argument in arguments:
        name, given, rest = str(argument).partition("=")
        named = bool(given) and "/" not in name and not os.path.lexists(argument)
        path = Path(rest if named else argument)
        for file in _files(path) or [path]:
            key = ("", name) if named else (str(file.parent), _common(file.name))
            sets.setdefault(key, []).append(file)
    names = _names(list(sets))
    wanted = dict(offsets_ns or {})
    found = [
        CaptureSet(name=name, files=tuple(dict.fromkeys(files)), offset_ns=wanted.pop(name, 0))
        for name, files in zip(names, sets.values(), strict=True)
    ]
    if wanted:
        raise ConfigError(f"there is no capture named {next(iter(wanted))}", hint=f"there are {', '.join(names)}")
    return found


def _files(path: Path) -> list[Path]:
    """Return the files of a folder; none of anything else, nor of a folder that cannot be listed."""
    try:
        return sorted(one for one in path.iterdir() if one.is_file())
    except OSError:
        return []


def _common(name: str) -> str:
    """Return a file's name without what a rotation and a compression add to it."""
    plain = _COMPRESSED.sub("", name)
    plain = _ROTATED[0].sub(r"\1", plain)
    for pattern in _ROTATED[1:]:
        plain = pattern.sub("", plain)
    return plain or name


def _names(keys: Sequence[tuple[str, str]]) -> list[str]:
    """Return short names of sets.

    Names are without the extension, and with it or with the folder where only these tell sets apart.
    """
    short = [re.sub(r"\.(pcap|pcapng|cap|dmp)$", "", name) for _, name in keys]
    folders = [str(Path(folder, name)) if folder else name for name, (folder, _) in zip(short, keys, strict=True)]
    whole = [str(Path(folder, name)) if folder else name for folder, name in keys]
    return [
        next(
            name
            for name, among in zip(ways, (short, folders, whole), strict=True)
            if among.count(name) == 1 or among is whole
        )
        for ways in zip(short, folders, whole, strict=True)
    ]


class ReadOptions(TypedDict, total=False):
    """Options of `read`: nanoseconds a bin, rows of bins to keep, and bytes for tables."""

    bin_ns: int
    bin_budget: int
    memory: int


def read(
    sets: Sequence[CaptureSet],
    *,
    bin_ns: int = 1_000_000,
    bin_budget: int = BIN_BUDGET,
    memory: int = MEMORY,
    engine: Executor | None = None,
) -> Trace:
    """Read capture sets into the tables of one trace, sets side by side, as many as there are cores.

    What is wrong with a file is told in its point's `damage`, and everything else in it counts; a file that cannot be
    read at all is in its `unread`. CaptureError when not one file can be read. `bin_budget`: rows of bins that are kept
    over all sets; where that is too few, those of small flows are summed. `memory`: bytes for tables while files are
    read, beyond which they go on on disk. `engine` reads each set by itself (`read_set`), wherever it finds the files;
    by default these are threads here.
    """
    beside = max(1, min(len(sets), len(os.sched_getaffinity(0))))
    settings: ReadOptions = {
        "bin_ns": bin_ns,
        "bin_budget": max(1, bin_budget // max(1, len(sets))),
        "memory": memory // beside,
    }
    if engine is not None:
        pending = [engine.submit(read_set, one, **settings) for one in sets]
        parts = [one.result() for one in pending]
    else:
        parts = _read_here(sets, beside, settings)
    points = [part.points[0] for part in parts]
    if sets and all(len(point.unread) == len(point.files) for point in points):
        raise CaptureError("; ".join(problem for point in points for problem in point.unread))
    made = merged(parts)
    process_memory.give_back()
    return made


def _read_here(sets: Sequence[CaptureSet], beside: int, settings: ReadOptions) -> list[Trace]:
    stop = threading.Event()
    with ThreadPoolExecutor(beside) as pool:
        pending = [pool.submit(read_set, one, stop=stop, **settings) for one in sets]
        try:
            return [one.result() for one in pending]
        finally:  # Ctrl-C comes to this thread alone
            stop.set()


def read_set(
    one: CaptureSet,
    *,
    bin_ns: int = 1_000_000,
    bin_budget: int = BIN_BUDGET,
    memory: int = MEMORY,
    most: int = MOST_CONVERSATIONS,
    piece_bytes: int = PIECE_BYTES,
    stop: threading.Event | None = None,
) -> Trace:
    """Read one capture set, up to where `stop` is set from another thread; arguments as of `read` and FlowTable."""
    files, unread = in_order(one.files)
    damage: list[str] = []
    table = FlowTable(
        offset_ns=one.offset_ns, bin_ns=bin_ns, memory=memory, most=most, piece_bytes=piece_bytes, stop=stop
    )
    for file in files:
        try:
            damage += table.add(file).problems
        except CaptureError as error:
            unread.append(error.message)
    table.finish()
    return _trace(one, table, tuple(unread), tuple(damage), bin_budget)


def _trace(
    one: CaptureSet, table: FlowTable, unread: tuple[str, ...], damage: tuple[str, ...], bin_budget: int
) -> Trace:
    too_many = table.conversations.bins.count > bin_budget
    directions = Directions(table, with_others=too_many)
    hosts, interfaces = HostNumbers(), HostNumbers()
    flows = _flows(table, directions, hosts, interfaces)
    tally = table.tally
    point = TracePoint(
        name=one.name,
        files=tuple(str(file) for file in one.files),
        offset_ns=one.offset_ns,
        link_types=tuple(sorted({decoding.LINK_TYPES[link] for link in table.link_types})),
        packets=tally.packets,
        wire_bytes=tally.wire_bytes,
        captured_bytes=tally.kept_bytes,
        first_ns=tally.first_ns,
        last_ns=tally.last_ns,
        snapped=tally.snapped,
        backwards=tally.backwards,
        undecoded=tally.undecoded,
        undecoded_inner=tally.inner,
        interfaces=_parts(flows, flows.interface, interfaces.names) if any(interfaces.names) else (),
        tunnels=_tunnels(flows),
        unread=unread,
        damage=damage,
    )
    queue_pairs = _queue_pairs(table, hosts, interfaces)
    table.conversations.release()  # the columns are made, and bins need the memory
    process_memory.give_back()
    bins, chosen = binning.bins(
        directions.spool,
        flows.wire_bytes,
        budget=bin_budget,
        width_ns=table.bin_ns,
        others=0,
        in_order=not table.conversations.back_bins,
    )
    notes = tuple(_notes(one, table, flows, small=int((~chosen & (flows.protocol != OVERFLOW)).sum())))
    return Trace(
        points=(point,),
        hosts=tuple(hosts.names),
        interfaces=tuple(interfaces.names),
        flows=flows,
        bins=bins,
        queue_pairs=queue_pairs,
        notes=notes,
    )


def _parts(flows: Flows, number: Ints, names: Sequence[str]) -> tuple[Part, ...]:
    """Return packets and bytes by interface or kind of tunnel, the most bytes first."""
    packets, wire = (np.bincount(number, column, len(names)) for column in (flows.packets, flows.wire_bytes))
    order = [place for place in np.argsort(-wire, kind="stable").tolist() if packets[place]]
    return tuple(Part(name=names[one], packets=int(packets[one]), wire_bytes=int(wire[one])) for one in order)


def _tunnels(flows: Flows) -> tuple[Part, ...]:
    inside = flows.tunnel > 0
    if not inside.any():
        return ()
    tunnels, place = np.unique(flows.tunnel, return_inverse=True)
    kinds = HostNumbers()
    number = np.array([kinds.number(tunnel_kinds(int(one))) for one in tunnels], np.int64)[place.ravel()]
    return tuple(part for part in _parts(flows, number, kinds.names) if part.name)


def _notes(one: CaptureSet, table: FlowTable, flows: Flows, *, small: int) -> list[str]:
    notes = []
    if later := table.tally.fragments:
        notes.append(f"{one.name}: {later} later fragments of IP packets, which have no ports, are rows of their own")
    if unsure := int(flows.unsure_bytes.sum()):
        notes.append(
            f"{one.name}: {unsure} bytes that count as repeated may be new: over {segments.MOST_HOLES} gaps were open"
            " at once"
        )
    if twice := int(flows.packets[~flows.counted].sum()):
        notes.append(
            f"{one.name}: {twice} packets are of flows of which another interface saw as many or more at the same time;"
            " sums count each flow at one interface"
        )
    if _COOKED in table.link_types:
        notes.append(
            f"{one.name}: {decoding.LINK_TYPES[_COOKED]} does not say which interface a packet passed: one that passed "
            "several counts at each; tcpdump -i any -y LINUX_SLL2 keeps them apart"
        )
    if inner := table.tally.inner:
        notes.append(inner_text(one.name, inner))
    if more := int(flows.packets[flows.protocol == OVERFLOW].sum()):
        notes.append(
            f"{one.name}: {more} packets are of conversations beyond the first {table.most:,}, and count together"
        )
    if small:
        notes.append(
            f"{one.name}: the bins of {small:,} small flows are summed, as those of the protocol others: there are "
            f"{table.conversations.bins.count:,} in all"
        )
    if cut := int(table.queue_pairs.counts[0]):
        notes.append(f"{one.name}: {cut} RoCEv2 packets were kept too short to tell their queue pair")
    if beyond := int(table.queue_pairs.counts[1]):
        notes.append(
            f"{one.name}: {beyond} RoCEv2 packets are of queue pairs beyond the first {queuepairs.MOST_ROWS:,}"
        )
    return notes


def _flows(table: FlowTable, directions: Directions, hosts: HostNumbers, interfaces: HostNumbers) -> Flows:
    number, tunnel = directions.came_by()
    protocol, src, dst, src_port, dst_port = directions.ends(hosts)
    *figures, scales = directions.figures(*_FIGURES.values(), segments.SHIFT)
    named = dict(zip(_FIGURES, figures, strict=True))
    directions.scale(named["window_bytes"], scales)
    outer_src, outer_dst = directions.outer(hosts)
    found = Flows(
        point=np.zeros(directions.flows, np.int64),
        conversation=directions.numbers // 2,
        protocol=protocol,
        src=src,
        dst=dst,
        src_port=src_port,
        dst_port=dst_port,
        interface=_named(table, number, interfaces),
        tunnel=tunnel,
        outer_src=outer_src,
        outer_dst=outer_dst,
        opens=directions.shared(segments.OPENER) == directions.numbers % 2,
        handshake_ns=directions.shared(segments.HANDSHAKE),
        counted=np.ones(directions.flows, np.bool_),
        **named,
    )
    return replace(found, counted=once(found))


def _named(table: FlowTable, number: Ints, interfaces: HostNumbers) -> Ints:
    """Translate a table's interface numbers into those of the trace."""
    found, place = np.unique(number, return_inverse=True)
    names = table.interface_names(found.tolist())
    return np.array([interfaces.number(name) for name in names], np.int64)[place.ravel()]


def _queue_pairs(whole: FlowTable, hosts: HostNumbers, interfaces: HostNumbers) -> QueuePairs:
    table = whole.queue_pairs
    number, tunnel = split_via(table.via)
    ends = [table.ends(row) for row in range(table.rows)]
    stats, opcodes = table.stats[: table.rows], table.opcodes[: table.rows]
    return QueuePairs(
        point=np.zeros(table.rows, np.int64),
        src=np.array([hosts.number(address_text(_scope(v6), *src)) for v6, src, _, _ in ends], np.int64),
        dst=np.array([hosts.number(address_text(_scope(v6), *dst)) for v6, _, dst, _ in ends], np.int64),
        queue_pair=np.array([pair for _, _, _, pair in ends], np.int64),
        interface=_named(whole, number, interfaces),
        tunnel=tunnel,
        packets=stats[:, queuepairs.PACKETS],
        wire_bytes=stats[:, queuepairs.WIRE],
        payload_bytes=stats[:, queuepairs.PAYLOAD_SUM],
        first_ns=stats[:, queuepairs.FIRST],
        last_ns=stats[:, queuepairs.LAST],
        opcodes=opcodes,
        messages=stats[:, queuepairs.MESSAGES],
        message_bytes=stats[:, queuepairs.MESSAGE_BYTES],
        sizes=table.sizes[: table.rows],
        size_edges=queuepairs.size_edges(),
        out_of_sequence=stats[:, queuepairs.OUT_OF_SEQUENCE],
        acknowledged=opcodes[:, queuepairs.ACKNOWLEDGE :: 32].sum(axis=1),
        negative=stats[:, queuepairs.NEGATIVE],
    )


def _scope(v6: bool) -> int:
    return decoding.SCOPE_V6 if v6 else decoding.SCOPE_V4


def merged(parts: Sequence[Trace]) -> Trace:
    """Merge several traces: hosts with the same address are one, and a conversation at many points counts once."""
    if len(parts) == 1:
        return parts[0]
    hosts, interfaces = HostNumbers(), HostNumbers()
    maps = [np.array([hosts.number(name) for name in part.hosts] or [0], np.int64) for part in parts]
    wires = [np.array([interfaces.number(name) for name in part.interfaces] or [0], np.int64) for part in parts]
    width_ns = max((part.bins.width_ns for part in parts), default=1)
    moved, first_conversation, first_point = [], 0, 0
    for part, numbers, places in zip(parts, maps, wires, strict=True):
        moved.append(
            replace(
                part,
                flows=replace(
                    part.flows,
                    point=part.flows.point + first_point,
                    conversation=part.flows.conversation + first_conversation,
                    src=numbers[part.flows.src],
                    dst=numbers[part.flows.dst],
                    interface=places[part.flows.interface],
                    outer_src=_outer(numbers, part.flows.outer_src),
                    outer_dst=_outer(numbers, part.flows.outer_dst),
                ),
                queue_pairs=replace(
                    part.queue_pairs,
                    point=part.queue_pairs.point + first_point,
                    src=numbers[part.queue_pairs.src],
                    dst=numbers[part.queue_pairs.dst],
                    interface=places[part.queue_pairs.interface],
                ),
            )
        )
        first_conversation += int(part.flows.conversation.max(initial=-1)) + 1
        first_point += len(part.points)
    flows = trace.joined(Flows, [part.flows for part in moved])
    return Trace(
        points=tuple(point for part in parts for point in part.points),
        hosts=tuple(hosts.names),
        interfaces=tuple(interfaces.names),
        flows=replace(flows, counted=_counted(flows)),
        bins=binning.joined([(part.bins, len(part.flows)) for part in moved], width_ns=width_ns),
        queue_pairs=trace.joined(QueuePairs, [part.queue_pairs for part in moved], shared=("size_edges",)),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _outer(numbers: trace.Ints, ends: trace.Ints) -> trace.Ints:
    return np.where(ends < 0, -1, numbers[ends])


def once(flows: Flows) -> trace.Mask:
    """Return True for the rows of the interface of a point that saw most packets of a flow.

    Others may be of other times.

    What a tunnel carried on one interface and another interface saw without it is the same flow; what two networks of
    tunnels carried is not. A packet passes a host within NEAR_NS.
    """
    found = np.ones(len(flows), np.bool_)
    if len(np.unique(flows.interface)) < 2:
        return found
    ends = np.stack([flows.protocol, flows.src, flows.dst, flows.src_port, flows.dst_port])
    _, tuples = np.unique(ends, axis=1, return_inverse=True)
    order = np.argsort(tuples.ravel(), kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(tuples.ravel()[order])) + 1)
    for rows in groups:
        interfaces, place = np.unique(flows.interface[rows], return_inverse=True)
        if len(interfaces) > 1:
            packets = np.bincount(place.ravel(), flows.packets[rows])
            apart = [rows[place.ravel() == one] for one in np.argsort(-packets, kind="stable").tolist()]
            _leave_out(flows, apart, found)
    return found


def _leave_out(flows: Flows, interfaces: Sequence[trace.Ints], found: trace.Mask) -> None:
    """Clear the mask of each interface's rows of a 5-tuple that an interface before it saw."""
    known = interfaces[0]
    for rows in interfaces[1:]:
        for tunnel in np.unique(flows.tunnel[rows]).tolist():
            mine = rows[flows.tunnel[rows] == tunnel]
            same = known if tunnel == 0 else known[np.isin(flows.tunnel[known], (0, tunnel))]
            found[mine] = ~_at_the_time(flows, mine, same)
        known = np.concatenate((known, rows[found[rows]]))


def _at_the_time(flows: Flows, rows: trace.Ints, others: trace.Ints) -> trace.Mask:
    """Return a mask of rows that share an instant with one of the others; of short ones also those near to one."""
    if not len(others):
        return np.zeros(len(rows), np.bool_)
    others = others[np.argsort(flows.first_ns[others], kind="stable")]
    begins, ends = flows.first_ns[others], np.maximum.accumulate(flows.last_ns[others])
    first, last = flows.first_ns[rows], flows.last_ns[rows]
    near = np.where(last - first <= NEAR_NS, NEAR_NS, 0)
    place = np.searchsorted(begins, last + near, side="right")
    return np.asarray((place > 0) & (ends[np.maximum(place - 1, 0)] >= first - near))


def _counted(flows: Flows) -> trace.Mask:
    """Return True for the rows of the point that saw most packets of a 5-tuple, the first such point of several.

    Of a 5-tuple that no point saw outside of a tunnel, each network of tunnels is another.
    """
    if not len(flows):
        return np.zeros(0, np.bool_)
    turned = (flows.src > flows.dst) | ((flows.src == flows.dst) & (flows.src_port > flows.dst_port))
    ends = [
        np.where(turned, one, other)
        for one, other in (
            (flows.dst, flows.src),
            (flows.src, flows.dst),
            (flows.dst_port, flows.src_port),
            (flows.src_port, flows.dst_port),
        )
    ]
    _, bare = np.unique(np.stack([flows.protocol, *ends]), axis=1, return_inverse=True)
    plain = np.zeros(int(bare.max()) + 1, np.bool_)
    plain[bare.ravel()[flows.tunnel == 0]] = True
    network = np.where(plain[bare.ravel()], 0, flows.tunnel)
    _, tuples = np.unique(np.stack([bare.ravel(), network]), axis=1, return_inverse=True)
    points = int(flows.point.max()) + 1
    places = tuples.ravel() * points + flows.point
    packets = np.bincount(places, weights=flows.packets * flows.counted, minlength=(int(tuples.max()) + 1) * points)
    best = packets.reshape(-1, points).argmax(axis=1)
    return np.asarray(flows.counted & (best[tuples.ravel()] == flows.point))
