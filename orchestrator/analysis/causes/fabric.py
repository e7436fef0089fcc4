"""What uplinks of a fabric carried while the network was on the critical path, and which large flows shared one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.causes.ports import STEP_NS, Axis, Port, grouped, queues, smoothed
from orchestrator.parts.topology import Topology, Uplink

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LARGE = 0.1  # of an uplink's rate: a flow that takes more is large, an uplink that carries less is idle (Hedera)
FEWEST_SHARE = 0.01  # of all bytes between leaves: a flow with less is never counted as large

_Ends = tuple[str, int, str, int]


@dataclass(frozen=True, slots=True)
class _Flow:
    """A flow between leaves, or several small ones of one name: whose it is, and bytes of each step."""

    leaf: str
    to_leaf: str
    spine: str
    name: str
    sent: Floats
    one: bool


def uplinks(
    topology: Topology, job: str, *, captured: Any, packets: Any, paths: Any, counters: Any, over: Axis
) -> tuple[Port, ...]:
    """Return both directions of each link between switches.

    What each flow sent is captured at its sender; by which spine it went is what its leaf says of most of its bytes. No
    flows collide while a link of the fabric is down, since the idle uplink cannot be used then.
    All but `topology` are tables of the run (pyarrow).
    """
    fabric = topology.fabric
    if fabric is None:
        return ()
    flows = list(_flows(topology, captured, packets, _spines(paths), over))
    failed = np.zeros(over.steps, bool)
    for one in away(paths):
        begin, end = over.of(np.array([one.begin_ns, one.end_ns])).clip(0, over.steps)
        failed[begin:end] = True
    backlogs = queues(counters, over)
    found = []
    for uplink in fabric.uplinks:
        for direction, end in zip(("up", "down"), uplink.ends, strict=True):
            own = np.zeros(over.steps)
            others: dict[str, Floats] = {}
            for flow in flows:
                if (flow.leaf if direction == "up" else flow.to_leaf, flow.spine) == (uplink.leaf, uplink.spine):
                    if flow.name == job:
                        own += flow.sent
                    else:
                        others[flow.name] = others.get(flow.name, np.zeros(over.steps)) + flow.sent
            backlog, drops = backlogs.get(end, (None, math.nan))
            found.append(
                Port(
                    host=uplink.name,
                    device=end[1],
                    direction=direction,
                    rate_bps=uplink.rate / topology.wire_scale,
                    own=own if flows else None,
                    others=others,
                    backlog=backlog,
                    drops=drops,
                    collided=np.where(failed, 0.0, _collided(topology, flows, uplink))
                    if direction == "up" and flows
                    else None,
                )
            )
    return tuple(found)


def _spines(paths: Any) -> dict[_Ends, str]:
    """Return the spine by which most bytes of each flow went."""
    bytes_by: dict[_Ends, dict[str, int]] = {}
    for row in paths.select(["src", "src_port", "dst", "dst_port", "spine", "bytes"]).to_pylist():
        by = bytes_by.setdefault((row["src"], row["src_port"], row["dst"], row["dst_port"]), {})
        by[row["spine"]] = by.get(row["spine"], 0) + row["bytes"]
    return {ends: max(by, key=lambda spine: by[spine]) for ends, by in bytes_by.items()}


def _flows(topology: Topology, captured: Any, packets: Any, spines: Mapping[_Ends, str], over: Axis) -> Iterator[_Flow]:
    """Yield large flows between leaves one by one, and what the rest of each name sends by each spine."""
    leaf_of = {address: leaf for leaf, addresses in _addresses(topology).items() for address in addresses}
    known: dict[tuple[str, str], list[tuple[str, str, str, str] | None]] = {}
    for row in captured.select(
        ["node", "launch", "direction", "src", "src_port", "dst", "dst_port", "name", "kind"]
    ).to_pylist():
        leaf, to_leaf = leaf_of.get(row["src"], ""), leaf_of.get(row["dst"], "")
        spine = spines.get((row["src"], row["src_port"], row["dst"], row["dst_port"]), "")
        between = row["direction"] == "out" and leaf and to_leaf and leaf != to_leaf and spine
        label = (leaf, to_leaf, spine, row["name"] or row["kind"]) if between else None
        known.setdefault((row["node"], row["launch"]), []).append(label)
    sizes = packets["wire_bytes"].to_numpy().astype(np.int64)
    at = over.of(packets["bin_ns"].to_numpy().astype(np.int64))
    inside = (at >= 0) & (at < over.steps)
    found: list[tuple[tuple[str, str, str, str], int, Ints]] = []
    for (node, launch, number), mine in grouped(packets, ("node", "launch", "flow")):
        labels = known.get((node, launch), [])
        whose = labels[number] if number < len(labels) else None
        rows = mine[inside[mine]]
        if whose is not None and len(rows):
            found.append((whose, int(sizes[rows].sum()), rows))
    whole = sum(size for _, size, _ in found)
    rest: dict[tuple[str, str, str, str], Floats] = {}
    for of_flow, size, rows in found:
        sent = np.bincount(at[rows], sizes[rows], over.steps).astype(np.float64)
        if size >= FEWEST_SHARE * whole:
            yield _Flow(*of_flow, sent=sent, one=True)
        else:
            rest[of_flow] = rest.get(of_flow, np.zeros(over.steps)) + sent
    for of_rest, sent in rest.items():
        yield _Flow(*of_rest, sent=sent, one=False)


def _addresses(topology: Topology) -> dict[str, set[str]]:
    """Return the addresses of the hosts at each leaf."""
    switch_of = {link.host: link.switch for link in topology.links}
    found: dict[str, set[str]] = {}
    for host in topology.hosts:
        if host.name in switch_of:
            found.setdefault(switch_of[host.name], set()).update(host.addresses)
    return found


def _collided(topology: Topology, flows: Sequence[_Flow], uplink: Uplink) -> Floats:
    """Return by which share of each step large flows of an uplink would take less, were idle ones of its leaf used.

    Of n large flows on one uplink beside i idle ones, the fullest would have ceil(n / (1 + i)) of them.
    """
    steps = len(flows[0].sent)
    large, idle = np.zeros(steps), np.zeros(steps)
    for one in topology.fabric.uplinks_of(uplink.leaf) if topology.fabric else ():
        least = LARGE * one.rate / topology.wire_scale * STEP_NS / 8e9
        mine = [flow for flow in flows if (flow.leaf, flow.spine) == (one.leaf, one.spine)]
        if one is uplink:
            for flow in mine:
                large += flow.one & (smoothed(flow.sent) >= least)
        else:
            idle += smoothed(np.sum([np.zeros(steps), *(flow.sent for flow in mine)], axis=0)) < least
    return np.where(large > 1, 1 - np.ceil(large / (1 + idle)) / np.maximum(large, 1), 0.0)


@dataclass(frozen=True, slots=True)
class Away:
    """A time in which flows went another way than before: the links of the way that they left, from when to when."""

    links: tuple[str, ...]
    begin_ns: int
    end_ns: int


def away(paths: Any) -> list[Away]:
    """Return when flows left their way and came back, in order of time: a hash moves no flow, a link that fails does.

    A flow's way is the one that its first sample tells. `paths` is the table (pyarrow), whose samples bound the times.
    """
    spans: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    homes: dict[tuple[Any, ...], str] = {}
    for row in paths.sort_by("begin_ns").to_pylist():
        flow = row["node"], row["src"], row["src_port"], row["dst"], row["dst_port"]
        home = homes.setdefault(flow, row["spine"])
        if row["spine"] != home:
            links = tuple(sorted({f"{row['node']}-{home}", f"{row['to_leaf']}-{home}"}))
            spans.setdefault(links, []).append((row["begin_ns"], row["end_ns"]))
    found = []
    for links, each in spans.items():
        begin, end = each[0]
        for following in each[1:]:
            if following[0] > end:
                found.append(Away(links, begin, end))
                begin = following[0]
            end = max(end, following[1])
        found.append(Away(links, begin, end))
    return sorted(found, key=lambda one: one.begin_ns)
