"""Reduces the capture files of one port to rows: whose flows they were, and what they carried over time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from orchestrator.analysis.capture import accounting
from orchestrator.analysis.capture.flowtable import Ends, FlowTable
from orchestrator.analysis.capture.rotation import in_order
from orchestrator.core.errors import CaptureError
from orchestrator.parts.launch import Flow
from orchestrator.parts.rows import BIN_NS, Columns

SSH_PORT = 22
_SSH = Flow(kind="control", name="ssh", port=SSH_PORT)
_NOBODY = Flow(kind="other", name="")
_MOST_HELD = 1 << 20

Direction = Literal["out", "in"]
Rows = np.ndarray[Any, np.dtype[np.int64]]


def reduce(
    files: Sequence[Path],
    *,
    port: str,
    addresses: Sequence[str] = (),
    peers: Sequence[str] = (),
    flows: Sequence[Flow] = (),
    offset_ns: int = 0,
    bin_ns: int = BIN_NS,
    segment: int | None = None,
) -> tuple[Columns, Columns, list[str]]:
    """Columns of `capture_flows` and of `packets` for a (rotated) set of files of one port, and what was wrong with it.

    `addresses` are the node's own on that port; at a switch's port, which has none, `peers` are those of the host
    behind it. A frame is "out" when it leaves the node: by its source or destination address, else by its hardware
    addresses, which are learned from frames whose address told; else it counts as "in". `offset_ns` is added to every
    stamp. The files may be given in any order. Problems are sentences for people; no file is fatal, since the other
    files still count. `segment` is the MTU of a device that cuts packets after they are captured, or joins them
    before (segmentation offload): wire bytes are then those of such frames. Arguments and results can be pickled, so
    that a worker process can do it.
    """
    totals = _Totals(flows, own=frozenset(addresses), peers=frozenset(peers))
    table = FlowTable(offset_ns=offset_ns, bin_ns=bin_ns, segment=segment, on_bins=totals.add)
    ordered, problems = in_order(files)
    for file in ordered:
        try:
            end = table.add(file)
        except CaptureError as error:
            problems.append(error.message)
            continue
        problems += end.problems
    if unsure := int(table.figures(accounting.UNSURE).sum()):
        problems.append(
            f"{port}: {unsure} bytes that count as repeated may be new: "
            f"over {accounting.MOST_HOLES} gaps were open at once"
        )
    return _flow_rows(table, totals, port), _packet_rows(totals, port=port, bin_ns=bin_ns), problems


def classify(flow: Ends, flows: Iterable[Flow]) -> Flow:
    """The first Flow that matches in either direction; else SSH is control, and the rest "other" without a name."""
    if flow.protocol_name not in ("tcp", "udp"):
        return _NOBODY
    for rule in (*flows, _SSH):
        if rule.port is not None and rule.port not in (flow.src_port, flow.dst_port):
            continue
        for one, other in ((flow.src, flow.dst), (flow.dst, flow.src)):
            if rule.src in (None, one) and rule.dst in (None, other):
                return rule
    return _NOBODY


class _Totals:
    """Sums bins over the flows of a class while the files are read, so that memory follows time and not packets.

    A group is (kind, name, direction); where no address tells the direction the source's hardware address stands in
    its place until the end.
    """

    def __init__(self, rules: Sequence[Flow], *, own: Collection[str], peers: Collection[str]) -> None:
        self._rules = tuple(rules)
        self._own = own
        self._peers = peers
        self._groups: dict[tuple[str, str, Direction | int], int] = {}
        self._group_of: list[int] = []
        self._own_macs: set[int] = set()
        self._parts: list[Rows] = []
        self._held = 0
        self.known: list[tuple[Ends, Flow]] = []

    def add(self, table: FlowTable, bins: Rows) -> None:
        """Take rows of bins, as accounting lays them out, as the reader hands them out."""
        for row in range(len(self.known), table.directions):
            self._learn(table.ends(row))
        if len(bins):
            grouped = bins.copy()
            grouped[:, 0] = np.array(self._group_of, np.int64)[bins[:, 0]]
            self._parts.append(_summed(grouped))
            self._held += len(self._parts[-1])
        if self._held > _MOST_HELD:
            self.merged()
            self._held = 0

    def merged(self) -> Rows:
        """All rows so far as (group, bin, ...), each group and bin once, in their order."""
        if self._parts:
            self._parts = [_summed(np.concatenate(self._parts))]
        return self._parts[0] if self._parts else np.zeros((0, accounting.BIN_WORDS), np.int64)

    def groups(self) -> list[tuple[str, str, Direction]]:
        return [(kind, name, self._resolved(way)) for kind, name, way in self._groups]

    def direction(self, flow: Ends) -> Direction:
        return self._resolved(self._way(flow))

    def _learn(self, flow: Ends) -> None:
        rule = classify(flow, self._rules)
        way = self._way(flow)
        if way == "out":
            self._own_macs.add(flow.src_mac)
        self.known.append((flow, rule))
        self._group_of.append(self._groups.setdefault((rule.kind, rule.name, way), len(self._groups)))

    def _way(self, flow: Ends) -> Direction | int:
        if flow.src in self._own or flow.dst in self._peers:
            return "out"
        if flow.dst in self._own or flow.src in self._peers:
            return "in"
        return flow.src_mac

    def _resolved(self, way: Direction | int) -> Direction:
        if isinstance(way, int):
            return "out" if way in self._own_macs else "in"
        return way


def _summed(rows: Rows) -> Rows:
    """Rows of (group, bin, figures...) with equal group and bin added up, in order."""
    ordered = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    heads = np.flatnonzero(np.any(np.diff(ordered[:, :2], axis=0) != 0, axis=1)) + 1
    starts = np.concatenate(([0], heads))
    total = np.add.reduceat(ordered, starts, axis=0)
    total[:, :2] = ordered[starts, :2]
    return total


def _flow_rows(table: FlowTable, totals: _Totals, port: str) -> Columns:
    packets = table.figures(accounting.PACKETS)
    rows = np.flatnonzero(packets)
    known = [totals.known[row] for row in rows]
    figures = {
        "packets": accounting.PACKETS,
        "wire_bytes": accounting.WIRE,
        "payload_bytes": accounting.PAYLOAD_SUM,
        "repeated_bytes": accounting.REPEATED,
        "first_ns": accounting.FIRST,
        "last_ns": accounting.LAST,
    }
    return {
        "port": [port] * len(known),
        "direction": [totals.direction(flow) for flow, _ in known],
        "protocol": [flow.protocol_name for flow, _ in known],
        "src": [flow.src for flow, _ in known],
        "src_port": [flow.src_port for flow, _ in known],
        "dst": [flow.dst for flow, _ in known],
        "dst_port": [flow.dst_port for flow, _ in known],
        "kind": [rule.kind for _, rule in known],
        "name": [rule.name for _, rule in known],
        **{name: table.figures(column)[rows] for name, column in figures.items()},
    }


def _packet_rows(totals: _Totals, *, port: str, bin_ns: int) -> Columns:
    rows = totals.merged()
    names = totals.groups()
    # Two groups can turn out to be one once their directions are known.
    same = list(dict.fromkeys(names))
    rows = rows.copy()
    rows[:, 0] = np.array([same.index(name) for name in names] or [0], np.int64)[rows[:, 0]]
    rows = _summed(rows) if len(rows) else rows
    groups = [same[group] for group in rows[:, 0]]
    return {
        "port": [port] * len(rows),
        "direction": [group[2] for group in groups],
        "kind": [group[0] for group in groups],
        "name": [group[1] for group in groups],
        "bin_ns": rows[:, 1] * bin_ns,
        "packets": rows[:, 2],
        "wire_bytes": rows[:, 3],
        "payload_bytes": rows[:, 4],
        "repeated_bytes": rows[:, 5],
        "frames": rows[:, 6],
        "captured_bytes": rows[:, 7],
    }
