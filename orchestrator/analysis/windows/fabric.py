"""Measure a fabric over a window: how much of its rate each link carried, and which elephants shared an uplink.

A flow is large in a sample in which it takes LARGE_SHARE of an uplink's rate; an uplink that carries less than that is
idle. Large flows collide where two or more of them leave by one uplink while another uplink of their leaf is idle
(Al-Fares et al., "Hedera", NSDI 2010, whose elephants take 10 % of a host's link).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from orchestrator.analysis.traffic import sharedlink, throughput
from orchestrator.parts.rows import Row
from orchestrator.parts.topology import Fabric, Topology

LARGE_SHARE = 0.1

Flow = tuple[str, int, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """A direction of a link in a window: a row of the table `fabric_links`."""

    link: str
    node: str
    port: str
    rate_bps: float
    used: float
    waiting_s: float
    drops: float
    flows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collisions:
    """What large flows of a leaf did in a window: a row of the table `collisions`."""

    leaf: str
    samples: int
    collided: int
    share: float
    pairs: int


def links(
    counters: throughput.CachedTable, paths: Any, topology: Topology, span_ns: tuple[int, int]
) -> tuple[LinkUse, ...]:
    """Return both directions of every link whose queues were sampled; `paths` is the run's table (pyarrow)."""
    seconds = (span_ns[1] - span_ns[0]) / 1e9
    queues = {(queue.node, queue.port): queue for queue in sharedlink.queues(counters, span_ns)}
    large = _large_flows(paths, topology, span_ns) if len(paths) else None
    found = []
    for name, ends, rate_bps, crossed in _directions(topology, large):
        queue = queues.get(ends)
        if queue is not None and seconds > 0:
            wire_bps = rate_bps / topology.scale
            found.append(
                LinkUse(
                    link=name,
                    node=ends[0],
                    port=ends[1],
                    rate_bps=rate_bps,
                    used=queue.sent_bytes * 8 / seconds / wire_bps,
                    waiting_s=queue.backlog_bytes * 8 / wire_bps,
                    drops=queue.drops,
                    flows=crossed,
                )
            )
    return tuple(found)


def _directions(
    topology: Topology, large: dict[tuple[str, str], set[Flow]] | None
) -> Iterator[tuple[str, tuple[str, str], float, int | None]]:
    """Yield each direction of a link: its name, the end that sends, its rate, and how many large flows crossed it."""
    for link in topology.links:
        yield f"{link.switch}-{link.host}", (link.host, link.device), link.rate, None
        yield f"{link.switch}-{link.host}", (link.switch, link.switch_port), link.rate, None
    for uplink in topology.fabric.uplinks if topology.fabric else ():
        for place, end in enumerate(uplink.ends):
            key = (uplink.leaf, uplink.spine) if place == 0 else (uplink.spine, uplink.leaf)
            yield uplink.name, end, uplink.rate, None if large is None else len(large[key])


def _large_flows(paths: Any, topology: Topology, span_ns: tuple[int, int]) -> dict[tuple[str, str], set[Flow]]:
    """Return the flows that were large in some sample of a window, by the ends of each direction between switches."""
    found: dict[tuple[str, str], set[Flow]] = defaultdict(set)
    for leaf, _, rows in _samples(paths, span_ns):
        for row in _large(rows, topology):
            found[leaf, row["spine"]].add(_flow(row))
            found[row["spine"], row["to_leaf"]].add(_flow(row))
    return found


def collisions(paths: Any, topology: Topology, span_ns: tuple[int, int]) -> tuple[Collisions, ...]:
    """Count the collisions of each leaf of which there are samples; `paths` is the run's table (pyarrow)."""
    fabric = topology.fabric
    if fabric is None:
        return ()
    taken: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    pairs: dict[str, set[tuple[Flow, Flow]]] = defaultdict(set)
    for leaf, width_ns, rows in _samples(paths, span_ns):
        met = _met(rows, fabric, leaf, topology)
        taken[leaf].append((width_ns, bool(met)))
        pairs[leaf] |= met
    return tuple(
        Collisions(
            leaf=leaf,
            samples=len(samples),
            collided=sum(collided for _, collided in samples),
            share=sum(width for width, collided in samples if collided) / sum(width for width, _ in samples),
            pairs=len(pairs[leaf]),
        )
        for leaf, samples in sorted(taken.items())
    )


def _met(rows: list[Row], fabric: Fabric, leaf: str, topology: Topology) -> set[tuple[Flow, Flow]]:
    """Return the pairs of large flows of one sample of a leaf that shared an uplink while another one was idle."""
    carried = dict.fromkeys((uplink.spine for uplink in fabric.uplinks_of(leaf)), 0.0)
    for row in rows:
        carried[row["spine"]] = carried.get(row["spine"], 0.0) + row["bytes"]
    least = {uplink.spine: _large_bytes(uplink.rate, rows[0], topology) for uplink in fabric.uplinks_of(leaf)}
    if not any(amount < least.get(spine, 0.0) for spine, amount in carried.items()):
        return set()
    by_spine: dict[str, set[Flow]] = defaultdict(set)
    for row in _large(rows, topology):
        by_spine[row["spine"]].add(_flow(row))
    return {pair for flows in by_spine.values() for pair in combinations(sorted(flows), 2)}


def _large(rows: list[Row], topology: Topology) -> Iterator[Row]:
    rates = {(uplink.leaf, uplink.spine): uplink.rate for uplink in topology.fabric.uplinks} if topology.fabric else {}
    for row in rows:
        rate = rates.get((row["node"], row["spine"]))
        if rate is not None and row["bytes"] >= _large_bytes(rate, row, topology):
            yield row


def _large_bytes(rate_bps: float, row: Row, topology: Topology) -> float:
    """Return the bytes of a large flow in the sample of a row."""
    return float(LARGE_SHARE * rate_bps / topology.scale / 8 * (row["end_ns"] - row["begin_ns"]) / 1e9)


def _flow(row: Row) -> Flow:
    return row["src"], row["src_port"], row["dst"], row["dst_port"], row["protocol"]


def _samples(paths: Any, span_ns: tuple[int, int]) -> Iterator[tuple[str, int, list[Row]]]:
    """Yield leaf, width in nanoseconds and rows of each sample that lies within a span."""
    import pyarrow.compute as pc

    inside = pc.and_(pc.greater_equal(paths["begin_ns"], span_ns[0]), pc.less_equal(paths["end_ns"], span_ns[1]))
    samples: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in paths.filter(inside).to_pylist():
        samples[row["node"], row["end_ns"]].append(row)
    for (leaf, _), rows in sorted(samples.items()):
        width_ns = rows[0]["end_ns"] - rows[0]["begin_ns"]
        if width_ns > 0:
            yield leaf, width_ns, rows
