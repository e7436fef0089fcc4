"""Reduce the capture files of one port to the run's tables in one reading: flows, bins over time, sightings.

A `Job` goes in and `Tables` come out. Both can be pickled, so that any `concurrent.futures.Executor` can do it: a
worker process here, or one where the files lie.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.capture import binning
from orchestrator.analysis.capture.directions import Directions, HostNumbers
from orchestrator.analysis.capture.flowtable import MEMORY, FlowTable
from orchestrator.analysis.capture.oneway import Sightings
from orchestrator.analysis.capture.pcap import in_order
from orchestrator.analysis.capture.stages import segments
from orchestrator.analysis.capture.trace import inner_text, protocol_name, tunnel_name
from orchestrator.core.errors import CaptureError
from orchestrator.parts.launch import Flow
from orchestrator.parts.rows import BIN_NS, Columns
from orchestrator.parts.shared.capture_files import CapturePoint

FINE_NS = 1_000_000  # what shows a burst of a millisecond
MOST_FINE = 2_000_000  # rows of fine bins of a capture; beyond, those of small flows are summed

Ints = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

SSH_PORT = 22
_SSH = Flow(kind="control", name="ssh", port=SSH_PORT)
_NOBODY = Flow(kind="other", name="")
_TCP, _UDP = 6, 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The capture files of one port, in any order, with what is needed to assign its flows to jobs and sources.

    `addresses` are the node's own on that port; at a switch's port, which has none, `peers` are those of the host
    behind it. `flows` name what passes; `generated` are those of flow generators, whose bursts are followed.
    `offset_ns` is added to every stamp. `segment` is the MTU of a device that cuts packets after they are captured, or
    joins them before (segmentation offload): wire bytes are then those of such frames. `bin_ns`, the width of the bins
    of all packets of a kind, is a multiple of `fine_ns`, that of a flow's.
    """

    files: tuple[Path, ...]
    port: str
    addresses: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    flows: tuple[Flow, ...] = ()
    generated: tuple[Flow, ...] = ()
    offset_ns: int = 0
    segment: int | None = None
    bin_ns: int = BIN_NS
    fine_ns: int = FINE_NS
    most_fine: int = MOST_FINE
    memory: int = MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables made of a port's captures; `problems` are sentences for people."""

    capture_flows: Columns
    packets: Columns
    cross_packets: Columns  # of generated flows alone
    flow_packets: Columns
    sightings: Ints
    problems: tuple[str, ...]


def job_of(point: CapturePoint, files: Sequence[Path]) -> Job:
    """Return the job that reads a capture point of a run."""
    return Job(
        files=tuple(files),
        port=point.port,
        addresses=point.addresses,
        peers=point.peers,
        flows=point.flows,
        generated=point.generated,
        offset_ns=point.offset_ns,
        segment=point.segment,
        bin_ns=BIN_NS * point.dilation,
        fine_ns=FINE_NS * point.dilation,
    )


def reduce(job: Job) -> Tables:
    """Read the files of a port into tables. No file is fatal, since the other files still count."""
    return Reading(job).tables(job)


class Reading:
    """The files of a port, read one after the other.

    Files of the job may be read before its others exist, and before it is known whose flows they have.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._seen = Sightings()
        self._table = FlowTable(
            offset_ns=job.offset_ns, bin_ns=job.fine_ns, segment=job.segment, sightings=self._seen, memory=job.memory
        )
        self._read: list[Path] = []
        self._problems: list[str] = []

    def add(self, file: Path) -> None:
        """Read the next file, of those that `in_order` gives."""
        self._read.append(file)
        try:
            self._problems += self._table.add(file).problems
        except CaptureError as error:
            self._problems.append(error.message)

    def tables(self, job: Job) -> Tables:
        """Read the files of a job that are left, and return its tables, as `reduce` does."""
        files, unreadable = in_order(job.files)
        if files[: len(self._read)] != self._read or _marks(job) != _marks(self._job):
            return reduce(job)
        for file in files[len(self._read) :]:
            self.add(file)
        self._table.finish()
        return _tables(job, self._table, self._seen, [*unreadable, *self._problems])


def _marks(job: Job) -> tuple[int, int, int | None]:
    """Return the parameters of a job that change how packets are read."""
    return job.fine_ns, job.offset_ns, job.segment


def _tables(job: Job, table: FlowTable, seen: Sightings, problems: list[str]) -> Tables:
    too_many = table.conversations.bins.count > job.most_fine
    directions = Directions(table, with_others=too_many)
    unsure_bytes, src_mac, wire_bytes = directions.figures(segments.UNSURE, segments.FROM_MAC, segments.WIRE)
    if unsure := int(unsure_bytes.sum()):
        problems.append(
            f"{job.port}: {unsure} bytes that count as repeated may be new: "
            f"over {segments.MOST_HOLES} gaps were open at once"
        )
    hosts = HostNumbers()
    protocol, src, dst, src_port, dst_port = directions.ends(hosts)
    outer_src, outer_dst = directions.outer(hosts)
    ends = Ends(
        hosts=hosts.names,
        protocol=protocol,
        src=src,
        dst=dst,
        src_port=src_port,
        dst_port=dst_port,
        outer_src=outer_src,
        outer_dst=outer_dst,
        src_mac=src_mac,
    )
    if table.tally.inner:
        problems.append(inner_text(job.port, table.tally.inner))
    out = leaving(ends, own=frozenset(job.addresses), peers=frozenset(job.peers))
    rule, rules = rules_of(ends, job.flows)
    made, made_rules = rules_of(ends, job.generated)
    return Tables(
        capture_flows=_flow_rows(job, directions, ends, out, [rules[place] for place in rule]),
        packets=_packet_rows(job, directions, out, [rules[place] for place in rule], bin_ns=job.bin_ns),
        cross_packets=_packet_rows(
            job, directions, out, [made_rules[place] for place in made], bin_ns=job.fine_ns, kind="cross"
        ),
        flow_packets=_fine_rows(job, table, directions, wire_bytes),
        sightings=seen.rows(),
        problems=tuple(problems),
    )


def _flow_rows(job: Job, directions: Directions, ends: Ends, out: Mask, rules: Sequence[Flow]) -> Columns:
    names = np.array(ends.hosts, object)
    protocols, place = np.unique(ends.protocol, return_inverse=True)
    tunnels, inside = np.unique(directions.came_by()[1], return_inverse=True)
    figures = {
        "packets": segments.PACKETS,
        "wire_bytes": segments.WIRE,
        "payload_bytes": segments.PAYLOAD_SUM,
        "repeated_bytes": segments.REPEATED,
        "first_ns": segments.FIRST,
        "last_ns": segments.LAST,
    }
    return {
        "port": [job.port] * directions.flows,
        "direction": _way(out),
        "protocol": np.array([protocol_name(int(one)) for one in protocols], object)[place.ravel()],
        "src": names[ends.src],
        "src_port": ends.src_port,
        "dst": names[ends.dst],
        "dst_port": ends.dst_port,
        "tunnel": np.array([tunnel_name(int(one)) for one in tunnels], object)[inside.ravel()],
        "outer_src": np.append(names, "")[ends.outer_src],
        "outer_dst": np.append(names, "")[ends.outer_dst],
        "kind": [rule.kind for rule in rules],
        "name": [rule.name for rule in rules],
        **dict(zip(figures, directions.figures(*figures.values()), strict=True)),
    }


def _packet_rows(
    job: Job, directions: Directions, out: Mask, rules: Sequence[Flow], *, bin_ns: int, kind: str | None = None
) -> Columns:
    """Return rows of the bins of all packets, by name and direction; of one kind, or of all."""
    groups: dict[tuple[str, str, bool], int] = {}
    group_of = np.array(
        [
            groups.setdefault((rule.kind, rule.name, bool(leaves)), len(groups)) if kind in (None, rule.kind) else -1
            for rule, leaves in zip(rules, out, strict=True)
        ],
        np.int64,
    )
    group, number, figures = binning.summed(directions.spool, group_of, wider=bin_ns // job.fine_ns)
    kinds, names, ways = (np.array([one[place] for one in groups], object)[group] for place in range(3))
    return {
        "port": [job.port] * len(group),
        "direction": _way(ways),
        "kind": kinds,
        "name": names,
        "bin_ns": number * bin_ns,
        "packets": figures[0],
        "wire_bytes": figures[1],
        "payload_bytes": figures[2],
        "repeated_bytes": figures[3],
        **({"frames": figures[4], "captured_bytes": figures[5]} if kind is None else {}),
    }


def _fine_rows(job: Job, table: FlowTable, directions: Directions, wire_bytes: Ints) -> Columns:
    bins, _ = binning.bins(
        directions.spool,
        wire_bytes,
        budget=job.most_fine,
        width_ns=job.fine_ns,
        others=0,
        in_order=not table.conversations.back_bins,
    )
    return {
        "port": [job.port] * len(bins),
        "flow": bins.flow,
        "bin_ns": bins.start_ns,
        "width_ns": np.full(len(bins), bins.width_ns),
        "packets": bins.packets,
        "wire_bytes": bins.wire_bytes,
        "payload_bytes": bins.payload_bytes,
        "repeated_bytes": bins.repeated_bytes,
    }


def _way(out: Any) -> Any:
    return np.array(["in", "out"], object)[np.asarray(out, np.int64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Columns of flows: protocol (as of trace.Flows), ends as numbers of `hosts`, ports, hardware address sent from.

    `outer_src` and `outer_dst`: ends of the outermost headers of what came in a tunnel, -1 elsewhere.
    """

    hosts: Sequence[str]
    protocol: Ints
    src: Ints
    dst: Ints
    src_port: Ints
    dst_port: Ints
    outer_src: Ints
    outer_dst: Ints
    src_mac: Ints


def rules_of(ends: Ends, flows: Iterable[Flow]) -> tuple[Ints, list[Flow]]:
    """Return the index of the rule that each flow matches, and the rules.

    The first rule that matches in either direction counts. A flow without one is control where it is SSH, and else
    "other" without a name.
    """
    rules = [*flows, _SSH, _NOBODY]
    number = {name: place for place, name in enumerate(ends.hosts)}
    open_ = np.isin(ends.protocol, (_TCP, _UDP))
    found = np.full(len(ends.src), len(rules) - 1)
    for place, rule in enumerate(rules[:-1]):
        mine = open_.copy()
        if rule.port is not None:
            mine &= (ends.src_port == rule.port) | (ends.dst_port == rule.port)
        mine &= _between(ends.src, ends.dst, rule, number) | _between(ends.dst, ends.src, rule, number)
        found[mine] = place
        open_ &= ~mine
    return found, rules


def _between(one: Ints, other: Ints, rule: Flow, number: dict[str, int]) -> Any:
    """Return a mask of flows with both ends of the rule, in this direction; an unknown address matches nothing."""
    return (rule.src is None or one == number.get(rule.src, -1)) & (
        rule.dst is None or other == number.get(rule.dst, -1)
    )


def leaving(ends: Ends, *, own: Collection[str], peers: Collection[str]) -> Mask:
    """Return whether each flow leaves the capture point: from one of its `own` addresses, or to one of its `peers`.

    By its source or destination address, else by those of the outermost headers of its tunnel, else by its hardware
    addresses, which are learned from flows whose address told; else it reaches the node.
    """
    # Behind all hosts the one that is none, which -1 stands for.
    mine = np.array([*(name in own for name in ends.hosts), False], np.bool_)
    theirs = np.array([*(name in peers for name in ends.hosts), False], np.bool_)
    out = mine[ends.src] | theirs[ends.dst]
    known = out | mine[ends.dst] | theirs[ends.src]
    out |= ~known & (mine[ends.outer_src] | theirs[ends.outer_dst])
    known |= out | mine[ends.outer_dst] | theirs[ends.outer_src]
    found: Mask = out | (~known & np.isin(ends.src_mac, np.unique(ends.src_mac[out])))
    return found
