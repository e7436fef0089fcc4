"""Reads the captures of one or several points, each a file or a rotated set, into the tables of a Trace."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.capture import accounting, decoding, merging, queuepairs
from orchestrator.analysis.capture.binning import BIN_BUDGET, BinStore
from orchestrator.analysis.capture.flowtable import FlowTable, address_text
from orchestrator.analysis.capture.merging import HostNumbers
from orchestrator.analysis.capture.rotation import in_order
from orchestrator.analysis.capture.trace import Flows, Point, QueuePairs, Trace
from orchestrator.core.errors import CaptureError, ConfigError

_COMPRESSED = re.compile(r"\.(gz|zst|zstd)$")
_ROTATED = (
    re.compile(r"(?<=\.)(pcap|pcapng|cap|dmp)\d+$"),  # tcpdump -C and -W: x.pcap, x.pcap1, x.pcap02
    re.compile(r"_\d{5,}_\d{12,14}(?=\.|$)"),  # dumpcap -b: x_00001_20260131120000.pcapng
    re.compile(
        r"[-_.]?\d{4}-?\d\d-?\d\d[-_T.]?\d\d[-_:.]?\d\d([-_:.]?\d\d)?(?=\.|$)"
    ),  # tcpdump -G: x-%F_%H:%M:%S.pcap
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSet:
    """What was captured at one point: the files of a rotation, in any order. `offset_ns` is added to every stamp."""

    name: str
    files: tuple[Path, ...]
    offset_ns: int = 0


def grouped(arguments: Sequence[str | Path], *, offsets_ns: Mapping[str, int] | None = None) -> list[CaptureSet]:
    """Capture sets of files as a user names them: NAME=FILE, or FILE, or a folder of files.

    Files of one NAME are one set. Without a name, files of a folder that differ only in what tcpdump and dumpcap add
    when they rotate (a number behind .pcap, a number and an instant, an instant) are one, named after what is common.
    ConfigError for an offset of a name that is none of the sets'.
    """
    sets: dict[tuple[str, str], list[Path]] = {}
    for argument in arguments:
        name, given, rest = str(argument).partition("=")
        named = bool(given) and "/" not in name and not Path(argument).exists()
        path = Path(rest if named else argument)
        files = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
        for file in files:
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


def _common(name: str) -> str:
    """A file's name without what a rotation and a compression add to it."""
    plain = _COMPRESSED.sub("", name)
    plain = _ROTATED[0].sub(r"\1", plain)
    for pattern in _ROTATED[1:]:
        plain = pattern.sub("", plain)
    return plain or name


def _names(keys: Sequence[tuple[str, str]]) -> list[str]:
    """Short names of sets: without the extension, with the folder where that alone tells them apart."""
    short = [re.sub(r"\.(pcap|pcapng|cap|dmp)$", "", name) for _, name in keys]
    return [
        name if short.count(name) == 1 else str(Path(folder, name)) if folder else name
        for name, (folder, _) in zip(short, keys, strict=True)
    ]


def read(
    sets: Sequence[CaptureSet], *, bin_ns: int = 1_000_000, workers: int | None = None, bin_budget: int = BIN_BUDGET
) -> Trace:
    """Read capture sets side by side, a thread each while there are cores, into the tables of one trace.

    What is wrong with a file is told in its point's `damage`, and everything before it counts. CaptureError when not
    one file can be read. `bin_budget`: rows of bins that are kept over all sets; bins get wider where that is too few.
    """
    most = min(len(sets), len(os.sched_getaffinity(0)) if workers is None else workers)
    budget = max(1, bin_budget // max(1, len(sets)))
    stop = threading.Event()
    with ThreadPoolExecutor(max(1, most)) as pool:
        pending = [pool.submit(read_set, one, bin_ns=bin_ns, bin_budget=budget, stop=stop) for one in sets]
        try:
            parts = [one.result() for one in pending]
        finally:  # Ctrl-C comes to this thread alone
            stop.set()
    if sets and not any(part.points[0].link_types or part.points[0].packets for part in parts):
        raise CaptureError("; ".join(problem for part in parts for problem in part.points[0].damage))
    return merging.merged(parts)


def read_set(
    one: CaptureSet, *, bin_ns: int, bin_budget: int = BIN_BUDGET, stop: threading.Event | None = None
) -> Trace:
    """Read one capture set, up to where `stop` is set from another thread."""
    store = BinStore(width_ns=bin_ns, budget=bin_budget)
    table = FlowTable(offset_ns=one.offset_ns, bin_ns=bin_ns, on_bins=store.add, stop=stop)
    files, damage = in_order(one.files)
    for file in files:
        try:
            damage += table.add(file).problems
        except CaptureError as error:
            damage.append(error.message)
    return _trace(one, table, store, tuple(damage))


def _trace(one: CaptureSet, table: FlowTable, store: BinStore, damage: tuple[str, ...]) -> Trace:
    rows = np.flatnonzero(table.figures(accounting.PACKETS))
    hosts = HostNumbers()
    flows = _flows(table, rows, hosts)
    row_of = np.full(table.directions, -1, np.int64)
    row_of[rows] = np.arange(len(rows))
    counts, seen = table.counts, int(table.counts[accounting.SEEN])
    point = Point(
        name=one.name,
        files=tuple(str(file) for file in one.files),
        offset_ns=one.offset_ns,
        link_types=tuple(sorted({decoding.LINK_TYPES[link] for link in table.link_types})),
        packets=seen,
        wire_bytes=int(counts[accounting.WIRE_BYTES]),
        captured_bytes=int(counts[accounting.KEPT_BYTES]),
        first_ns=int(counts[accounting.FIRST_NS]) if seen else 0,
        last_ns=int(counts[accounting.LAST_NS]) if seen else 0,
        snapped=int(counts[accounting.SNAPPED]),
        backwards=int(counts[accounting.BACKWARDS]),
        undecoded=int(table.undecoded[decoding.UNDECODED]),
        damage=damage,
    )
    queue_pairs = _queue_pairs(table.queue_pairs, hosts)
    bins = store.bins(row_of, in_order=not counts[accounting.BACK_BINS])
    return Trace(
        points=(point,), hosts=tuple(hosts.names), flows=flows, bins=bins, queue_pairs=queue_pairs,
        notes=tuple(_notes(one, table, store)),
    )  # fmt: skip


def _notes(one: CaptureSet, table: FlowTable, store: BinStore) -> list[str]:
    notes = []
    if later := int(table.undecoded[decoding.FRAGMENTS]):
        notes.append(f"{one.name}: {later} later fragments of IP packets, which have no ports, are rows of their own")
    if unsure := int(table.figures(accounting.UNSURE).sum()):
        notes.append(
            f"{one.name}: {unsure} bytes that count as repeated may be new: over {accounting.MOST_HOLES} gaps were open"
            " at once"
        )
    if more := int(table.figures(accounting.PACKETS)[:2].sum()):
        notes.append(
            f"{one.name}: {more} packets are of conversations beyond the first {accounting.MOST_CONVERSATIONS:,}, and "
            "count together"
        )
    if store.width_ns > store.asked_ns:
        notes.append(
            f"{one.name}: bins are {store.width_ns / 1e6:g} ms wide: those of {store.asked_ns / 1e6:g} ms would be "
            f"more than {store.budget:,} rows"
        )
    if cut := int(table.queue_pairs.counts[0]):
        notes.append(f"{one.name}: {cut} RoCEv2 packets were kept too short to tell their queue pair")
    if beyond := int(table.queue_pairs.counts[1]):
        notes.append(
            f"{one.name}: {beyond} RoCEv2 packets are of queue pairs beyond the first {queuepairs.MOST_ROWS:,}"
        )
    return notes


def _flows(table: FlowTable, rows: Any, hosts: HostNumbers) -> Flows:
    def column(name: int) -> Any:
        return table.figures(name)[rows]

    ends = [table.ends(int(row)) for row in rows]
    scales = table.figures(accounting.SHIFT)
    both = (scales >= 0) & (scales[np.arange(len(scales)) ^ 1] >= 0)
    return Flows(
        point=np.zeros(len(rows), np.int64),
        conversation=rows // 2,
        protocol=np.array([end.protocol for end in ends], np.int64),
        src=np.array([hosts.number(end.src) for end in ends], np.int64),
        dst=np.array([hosts.number(end.dst) for end in ends], np.int64),
        src_port=np.array([end.src_port for end in ends], np.int64),
        dst_port=np.array([end.dst_port for end in ends], np.int64),
        packets=column(accounting.PACKETS),
        wire_bytes=column(accounting.WIRE),
        payload_bytes=column(accounting.PAYLOAD_SUM),
        first_ns=column(accounting.FIRST),
        last_ns=column(accounting.LAST),
        opens=table.shared(accounting.OPENER)[rows // 2] == rows % 2,
        handshake_ns=table.shared(accounting.HANDSHAKE)[rows // 2],
        repeated=column(accounting.AGAIN),
        repeated_bytes=column(accounting.REPEATED),
        late=column(accounting.LATE),
        unsure_bytes=column(accounting.UNSURE),
        syns=column(accounting.SYNS),
        fins=column(accounting.FINS),
        resets=column(accounting.RESETS),
        zero_windows=column(accounting.ZERO_WINDOWS),
        window_bytes=column(accounting.MOST_WINDOW) << np.where(both, scales, 0)[rows],
        counted=np.ones(len(rows), np.bool_),
    )


def _queue_pairs(table: queuepairs.QueuePairTable, hosts: HostNumbers) -> QueuePairs:
    ends = [table.ends(row) for row in range(table.rows)]
    stats, opcodes = table.stats[: table.rows], table.opcodes[: table.rows]
    return QueuePairs(
        point=np.zeros(table.rows, np.int64),
        src=np.array([hosts.number(address_text(v6, *src)) for v6, src, _, _ in ends], np.int64),
        dst=np.array([hosts.number(address_text(v6, *dst)) for v6, _, dst, _ in ends], np.int64),
        queue_pair=np.array([pair for _, _, _, pair in ends], np.int64),
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
