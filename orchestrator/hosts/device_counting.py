"""Measure what the counters of hosts' devices count, once for each state of a device, and keep it for runs.

Two hosts at a time send each other some megabytes over each rail, beside a packet socket (`agents/device_exchange.py`),
and packets and bytes are held against the counters by the readings of the gate `capture-nic`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError
from orchestrator.core.opendata import JsonObject
from orchestrator.execution.nodes import device_readings
from orchestrator.execution.nodes.device_readings import DeviceState, KeptReading
from orchestrator.execution.session import MEASURING, opening_s
from orchestrator.hosts.greeting import greeted
from orchestrator.parts.protocols import Testbed
from orchestrator.parts.topology import TRAFFIC_PORT, Topology
from orchestrator.remote.agent_client import AgentClient
from orchestrator.store.manifests import coding
from orchestrator.validity.gates import capture_nic
from orchestrator.validity.window import PortBytes

PROGRAM = Path(__file__).parents[1] / "agents" / "device_exchange.py"
EXCHANGE_S = 40.0  # that the program takes at most
Counts = Mapping[str, tuple[str, ...]]  # readings by direction


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    packets: coding.Whole
    bytes: coding.Whole
    frames: coding.Whole
    wire: coding.Whole
    counted_packets: coding.Whole
    counted_bytes: coding.Whole
    edge_packets: coding.Whole
    edge_bytes: coding.Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchanged:
    dropped: coding.Whole
    ways: Mapping[str, _Way]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two hosts that exchange data over a rail."""

    one: str
    other: str
    rail: int


def lines(testbed: Testbed, topology: Topology, facts: Mapping[str, JsonObject]) -> Iterator[str]:
    """Yield a line on what each device of these hosts counts, measured now where it is not kept; by their `facts`.

    What is measured is kept. The testbed is open; a line says why where nothing could be measured.
    """
    states = {
        (host, device): device_readings.state(facts[host], topology.node(host), device)
        for host in facts
        for device in topology.node(host).devices
    }
    kept = device_readings.kept()
    missing = {place: now for place, now in states.items() if now is not None and now not in kept}
    try:
        found = _measured(testbed, topology, missing, sorted(facts)) if missing else {}
    except OrchError as error:
        found = dict.fromkeys(missing, error.message)
    now_ns = time.time_ns()
    new = {
        state: KeptReading(state=state, counts=counts, when_ns=now_ns)
        for place, state in missing.items()
        if isinstance(counts := found.get(place), Mapping)
    }
    if new:
        try:
            device_readings.keep(new.values())
        except OSError as error:
            yield f"warning: what devices count is not kept: {error}"
    for place, state in states.items():
        yield f"{place[0]}: {place[1]}: {_told(state, kept, new, found.get(place))}"


def _told(
    state: DeviceState | None,
    kept: Mapping[DeviceState, KeptReading],
    new: Mapping[DeviceState, KeptReading],
    found: Counts | str | None,
) -> str:
    unknown = "what its counters count is not known"
    if state is None:
        return f"{unknown}: its facts are not whole (`ip`, `ethtool -i` and `-k`)"
    if one := new.get(state) or kept.get(state):
        ways = "; ".join(f"{way}: {' or '.join(counts)}" for way, counts in one.counts.items())
        when = (
            "measured now" if state in new else f"measured {time.strftime('%Y-%m-%d', time.gmtime(one.when_ns / 1e9))}"
        )
        return f"its counters count {ways} ({when})"
    return f"{unknown}: {found}"


def _measured(
    testbed: Testbed, topology: Topology, missing: Mapping[tuple[str, str], DeviceState], hosts: Sequence[str]
) -> dict[tuple[str, str], Counts | str]:
    """Return what each missing device counts, or why it is not known."""
    found: dict[tuple[str, str], Counts | str] = dict.fromkeys(missing, "no other host can exchange data with it")
    rounds = list(_rounds(topology, missing, hosts))
    needed = list(dict.fromkeys(host for pairs in rounds for pair in pairs for host in (pair.one, pair.other)))
    run = f"doctor-{time.time_ns()}"
    deadline = Deadline.after(opening_s(len(needed)) + EXCHANGE_S * (len(rounds) + 1))
    with ExitStack() as stack:
        clients = {
            host: stack.enter_context(greeted(testbed, topology, host, run=run, deadline=deadline)) for host in needed
        }
        for host in sorted(clients):
            clients[host].lock(MEASURING, deadline)  # beside a run it would be measured, and measure that
        for pairs in rounds:
            ends = [(pair, host) for pair in pairs for host in (pair.one, pair.other)]
            answers = fanout.each(
                ends,
                lambda end: _exchanged(clients, topology, *end),
                deadline=deadline,
                what="exchanging data",
                together=True,
                apart=False,
            )
            for (pair, host), answer in answers.items():
                place = host, topology.node(host).rails[pair.rail].device
                if place in missing:
                    found[place] = answer
    return found


def _rounds(
    topology: Topology, missing: Mapping[tuple[str, str], DeviceState], hosts: Sequence[str]
) -> Iterator[list[_Pair]]:
    """Yield pairs of different hosts, rail by rail, until each missing device was in one."""
    for rail in range(topology.rails):
        ends = [host for host in hosts if rail < len(topology.node(host).rails)]
        todo = [host for host in ends if (host, topology.node(host).rails[rail].device) in missing]
        if pairs := [_Pair(one, other, rail) for one, other in zip(todo[::2], todo[1::2], strict=False)]:
            yield pairs
        if len(todo) % 2 and (others := [host for host in ends if host != todo[-1]]):
            yield [_Pair(todo[-1], others[0], rail)]


def _exchanged(clients: Mapping[str, AgentClient], topology: Topology, pair: _Pair, host: str) -> Counts | str:
    """Run one end of an exchange; return the readings of the device by direction, or why there are none."""
    node, peer = topology.node(host), topology.node(pair.other if host == pair.one else pair.one)
    here, there = node.rails[pair.rail], peer.rails[pair.rail]
    role = "listen" if host == pair.one else "connect"
    words = (role, here.device, here.address, there.address, str(TRAFFIC_PORT))
    argv = (node.python or sys.executable, "-I", "-S", "-B", "-", *words)
    done = clients[host].run(argv, Deadline.after(EXCHANGE_S), stdin=PROGRAM.read_bytes())
    if done.status != 0:
        last = (done.stderr.strip().splitlines() or [f"status {done.status}"])[-1]
        return f"exchanging data with {peer.name} at port {TRAFFIC_PORT}: {last}"
    try:
        seen = coding.decoded(done.stdout.encode(), _Exchanged)
    except ValueError:
        return f"exchanging data with {peer.name}: what its program says cannot be read"
    if seen.dropped:
        return f"{seen.dropped} packets were too fast for the packet socket: let `orch doctor` try again"
    return _readings(seen, here.device)


def _readings(seen: _Exchanged, device: str) -> Counts | str:
    counts = {}
    for way in ("in", "out"):
        if (one := seen.ways.get(way)) is None:
            return "what its program says cannot be read"
        counts[way] = tuple(capture_nic.readings(_port_bytes(one, device, way)))
        if not counts[way]:
            return (
                f"{way}: it counted {one.counted_packets} packets and {one.counted_bytes} bytes where {one.packets} "
                f"and {one.bytes} were seen ({one.frames} and {one.wire} as frames), which no reading explains"
            )
    return counts


def _port_bytes(one: _Way, device: str, way: str) -> PortBytes:
    return PortBytes(
        node="",
        port=device,
        direction=way,
        captured=one.bytes,
        counted=one.counted_bytes,
        edges=one.edge_bytes,
        packet_edges=one.edge_packets,
        packets=one.packets,
        frames=one.frames,
        wire=one.wire,
        counted_packets=one.counted_packets,
    )
