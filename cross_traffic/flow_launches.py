"""Plan the processes of sinks and senders of single flows, for drawn and for recorded schedules."""

from __future__ import annotations

import heapq
import json
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field

from cross_traffic.agents import flow_drawing
from cross_traffic.agents.flow_drawing import StreamSpec
from cross_traffic.agents.flow_sender import RecordedSpec, SenderSpec
from cross_traffic.agents.flow_sink import SinkSpec
from cross_traffic.schedule_files import FlowLine
from orchestrator.core.fields import Model
from orchestrator.core.units import rate_text
from orchestrator.parts.launch import Flow, Launch, Line, Requirement, Stop
from orchestrator.parts.protocols import Problem, Sent, Source
from orchestrator.parts.shared import named_hosts, rails
from orchestrator.parts.topology import Topology

AGENTS = Path(__file__).parent / "agents"
SENDER = "flow_sender.py"
PER_PROCESS_BPS = 10e9  # what one sending or receiving process carries
MOST_PROCESSES = 4
MOST_OPEN = 8000
DRAIN_S = 10.0
START_WITHIN_S = 40.0


class SendingConfig(Model):
    """Options of sending flows, common to drawn and recorded schedules."""

    rail: int = Field(default=0, ge=0)
    """Number of the rail that all of it crosses, from 0."""
    connections: Literal["new", "pool"] = "new"
    """A new TCP connection a flow, or idle ones again."""
    congestion: str | None = None
    """TCP congestion control of the senders, such as "cubic"; the host's own when left out."""
    dscp: int = Field(default=0, ge=0, le=63)
    """Differentiated services code point of every packet."""
    realtime: bool = False
    """Send with real-time priority, where the host allows that: flows start more exactly on busy processors."""
    most_open: int = Field(default=MOST_OPEN, ge=1, le=1_000_000)
    """Flows of one sender that may be open at once; beyond it they are shed, and the window does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A sending host: its receivers, and its drawn or recorded flows."""

    host: str
    sinks: tuple[str, ...]
    rate: float  # layer-2 bit/s, scaled
    streams: tuple[StreamSpec, ...] = ()
    recorded: RecordedSpec | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The flows of a sending host in order, each with its start in seconds as they pass there, bytes and receiver.

    They come again every `length_s`. `wire` has their layer-2 bytes by receiver. Sizes are unscaled.
    """

    flows: Iterable[FlowLine]
    wire: Mapping[str, int]
    length_s: float


def processes(rate_bps: float) -> int:
    """Return how many processes carry so many bits a second (as they are on the wire)."""
    return int(min(MOST_PROCESSES, max(1, -(-rate_bps // PER_PROCESS_BPS))))


def host_problems(option: str, hosts: Sequence[str], topology: Topology) -> list[Problem]:
    """Find what is wrong with a list of hosts that must be there, each once."""
    known = [host.name for host in topology.hosts]
    accepted = named_hosts.one_of(known)
    if not hosts:
        return [Problem(at=(option,), message="names no host", accepted=accepted)]
    found = []
    for place, host in enumerate(hosts):
        at = (option, place) if len(hosts) > 1 else (option,)
        if host not in known:
            found.append(Problem(at=at, message=named_hosts.absent(host), accepted=accepted))
        elif host in hosts[:place]:
            found.append(Problem(at=at, message=f"{host!r} stands here twice", accepted="each name once"))
    return found


def load_problem(load: float, hosts: Sequence[str], topology: Topology, *, rail: int) -> list[Problem]:
    """Find what is wrong with a load (layer-2 bit/s, unscaled) that crosses the links of these hosts' rail together."""
    if found := rails.problems(rail, topology):
        return found
    if 0 < load <= sum(topology.carries_bps(host, rail) for host in hosts):
        return []
    message = f"{rate_text(load)} does not fit the links of {', '.join(hosts)}" if load else "is no traffic"
    most = f"more than 0, at most {topology.carries_text(hosts, rail)}"
    return [Problem(at=("load",), message=message, accepted=most)]


def requirements(config: SendingConfig, senders: Sequence[str], *, needed_by: str) -> list[Requirement]:
    """Return the requirement of real-time priority, the only one of a host."""
    if not config.realtime:
        return []
    remedy = "leave out `realtime`, or set `sudo: true` in the inventory: orch-agent does not grant this"
    right = "CAP_SYS_NICE"
    return [
        Requirement(node=node, kind="privilege", what=right, remedy=remedy, needed_by=needed_by) for node in senders
    ]


def recorded_launches(
    config: SendingConfig, source: Source, topology: Topology, *, schedules: Mapping[str, Recorded]
) -> list[Launch]:
    """Return launches of sinks, then of the senders in `schedules`, with their flows in the form that they read."""
    receiving: dict[str, float] = defaultdict(float)
    senders = []
    for host, schedule in schedules.items():
        sinks = tuple(schedule.wire)
        lines = [f"{round(flow.start_s * 1e9)},{flow.size},{sinks.index(flow.to)}\n" for flow in schedule.flows]
        rates = {to: wire * 8 / schedule.length_s / topology.scale for to, wire in schedule.wire.items()}
        for to, rate in rates.items():
            receiving[to] += rate
        recorded: RecordedSpec = {"path": "flows.csv", "factor": 1 / topology.scale, "length_s": schedule.length_s}
        sender = Sender(
            host=host,
            sinks=sinks,
            rate=sum(rates.values()),
            recorded=recorded,
            files={"flows.csv": "".join(lines).encode()},
        )
        senders.append(sender)
    return launches(config, source, topology, senders=senders, receiving=receiving)


def launches(
    config: SendingConfig,
    source: Source,
    topology: Topology,
    *,
    senders: Sequence[Sender],
    receiving: Mapping[str, float],
) -> list[Launch]:
    """Return launches of sinks on hosts in `receiving` (bit/s, scaled), then of the senders, which start together."""
    name = f"{source.window}.{source.name}" if source.window else source.name
    address = {host.name: host.addresses[config.rail] for host in topology.hosts}
    ports = {host: [source.port + i for i in range(processes(rate))] for host, rate in receiving.items()}
    first = senders[0].sinks[0]
    found = []
    for host in receiving:
        node = topology.node(host)
        mine = [address[sender.host] for sender in senders if host in sender.sinks]
        starting = [address[sender.host] for sender in senders] if host == first else []
        spec: SinkSpec = {
            "address": address[host],
            "ports": ports[host],
            "senders": list(dict.fromkeys(mine + starting)),
            "starters": len(senders),
        }
        found.append(
            Launch(
                name=f"{name}.sink",
                node=host,
                role="traffic",
                argv=(node.python, "-I", "-S", "-B", "flow_sink.py", "spec.json"),
                files={"flow_sink.py": AGENTS / "flow_sink.py", "spec.json": spec_file(spec)},
                ready=Line(pattern="^listening$"),
                ports=tuple(ports[host]),
                stop=Stop(signals=((signal.SIGTERM, 3.0),), ok=(0,)),
            )
        )
    found += [_sender(config, source, topology, sender, name=name, ports=ports, first=first) for sender in senders]
    return found


def _sender(
    config: SendingConfig,
    source: Source,
    topology: Topology,
    sender: Sender,
    *,
    name: str,
    ports: Mapping[str, list[int]],
    first: str,
) -> Launch:
    node = topology.node(sender.host)
    address = {host.name: host.addresses[config.rail] for host in topology.hosts}
    spec: SenderSpec = {
        "source": address[sender.host],
        "start": {"address": address[first], "port": ports[first][0]},
        "sinks": [{"address": address[host], "ports": ports[host]} for host in sender.sinks],
        "streams": list(sender.streams),
        "recorded": sender.recorded,
        "mtu": topology.mtu,
        "ip": topology.ip,
        "workers": processes(sender.rate),
        "most_open": config.most_open,
        "drain_s": DRAIN_S,
        "dscp": config.dscp,
        "congestion": config.congestion or "",
        "pool": config.connections == "pool",
        "realtime": config.realtime,
    }
    agents = {name: AGENTS / name for name in (SENDER, "flow_drawing.py")}
    return Launch(
        name=f"{name}.sender",
        node=sender.host,
        role="traffic",
        argv=(node.python, "-I", "-S", "-B", SENDER, "spec.json"),
        files={**agents, "spec.json": spec_file(spec), **sender.files},
        order=1,
        ready=Line(pattern="^sending$"),
        ready_within_s=START_WITHIN_S,
        stop=Stop(signals=((signal.SIGTERM, 5.0),), ok=(0,)),
        privileged=config.realtime,
        flows=tuple(
            Flow(kind="cross", name=source.name, src=address[sender.host], dst=address[host], port=port)
            for host in dict.fromkeys((*sender.sinks, first))
            for port in ports[host]
        ),
    )


def sent(planned: Sequence[Launch], source: Source, topology: Topology, *, rail: int) -> Iterator[Sent]:
    """Yield the very flows that these launches will send, by the specs that their senders read."""
    host_of = {host.addresses[rail]: host.name for host in topology.hosts}
    return heapq.merge(
        *(_sent_by(launch, host_of, source, rail=rail) for launch in planned if SENDER in launch.files),
        key=lambda one: one.at_s,
    )


def _sent_by(launch: Launch, host_of: Mapping[str, str], source: Source, *, rail: int) -> Iterator[Sent]:
    spec: SenderSpec = json.loads(_content(launch, "spec.json"))
    sinks = [host_of[sink["address"]] for sink in spec["sinks"]]
    framing = flow_drawing.Framing(spec["mtu"], spec["ip"])
    if spec["recorded"] is None:
        events = flow_drawing.merged([flow_drawing.drawn(stream) for stream in spec["streams"]])
    else:
        lines = _content(launch, spec["recorded"]["path"]).decode("ascii").splitlines()
        events = flow_drawing.repeated(lambda: iter(lines), spec["recorded"]["factor"], spec["recorded"]["length_s"])
    for at_ns, size, sink in events:
        if at_ns > source.duration_s * 1e9:
            return
        payload = flow_drawing.payload_bytes(size)
        wire = framing.wire_bytes(size)
        yield Sent(at_ns * 1e-9, launch.node, sinks[sink], rail, payload, wire)


def _content(launch: Launch, name: str) -> bytes:
    content = launch.files[name]
    return content if isinstance(content, bytes) else Path(content).read_bytes()


def spec_file(data: SenderSpec | SinkSpec) -> bytes:
    """Return a spec as the file that a sender or sink reads."""
    return json.dumps(data, indent=1).encode()
