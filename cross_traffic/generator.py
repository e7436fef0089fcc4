"""What sources of single flows share: sinks and senders as launches, and the reading of what they logged."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from cross_traffic import schedule
from cross_traffic.agents import flow_schedule, flow_sender
from orchestrator.core.errors import StoreError
from orchestrator.core.units import Model, rate_text
from orchestrator.parts import named_hosts
from orchestrator.parts.launch import Flow, Launch, Line, Requirement, Stop
from orchestrator.parts.protocols import Problem, Source
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

AGENTS = Path(__file__).parent / "agents"
PER_PROCESS_BPS = 10e9  # what one sending or receiving process carries
MOST_PROCESSES = 4
MOST_OPEN = 8000
DRAIN_S = 10.0
START_WITHIN_S = 40.0

RECORD = np.dtype(
    [(name, "<i8") for name in ("number", "planned", "start", "connected", "last", "acked", "size", "sent")]
    + [(name, "<u2") for name in ("sink", "sport", "dport", "error")]
    + [("retransmits", "<u4"), ("unused", "<u4")]
)
_ERRORS = {
    flow_sender.SHED: "shed: too many flows were open",
    flow_sender.STARVED: "shed: the sender had no processor time for it",
    flow_sender.UNFINISHED: "unfinished when the sender was stopped",
    flow_sender.CLOSED: "closed by the sink",
}


class Sending(Model):
    """How flows are sent, whatever makes them."""

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
    """One host that sends: to which hosts, and the part of its spec file that says what."""

    host: str
    sinks: tuple[str, ...]
    what: Mapping[str, Any]
    rate: float  # layer-2 bit/s, scaled
    files: Mapping[str, bytes]


def processes(rate_bps: float) -> int:
    """Processes that carry so many bits a second (as they are on the wire)."""
    return int(min(MOST_PROCESSES, max(1, -(-rate_bps // PER_PROCESS_BPS))))


def host_problems(option: str, hosts: Sequence[str], topology: Topology) -> list[Problem]:
    """What is wrong with a list of hosts that must be there, each once."""
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


def load_problem(load: float, hosts: Sequence[str], topology: Topology) -> list[Problem]:
    """What is wrong with a load (layer-2 bit/s, unscaled) that crosses the links of these hosts together."""
    most = sum(topology.link(host).rate for host in hosts)
    if 0 < load <= most:
        return []
    message = f"{rate_text(load)} does not fit the links of {', '.join(hosts)}" if load else "is no traffic"
    return [Problem(at=("load",), message=message, accepted=f"more than 0, at most {rate_text(most)}")]


def requirements(config: Sending, senders: Sequence[str], *, needed_by: str) -> list[Requirement]:
    """Real-time priority is the only thing that a host may lack."""
    if not config.realtime:
        return []
    remedy = "leave out `realtime`, or set `sudo: true` in the inventory: orch-agent does not grant this"
    right = "CAP_SYS_NICE"
    return [
        Requirement(node=node, kind="privilege", what=right, remedy=remedy, needed_by=needed_by) for node in senders
    ]


def launches(
    config: Sending, source: Source, topology: Topology, *, senders: Sequence[Sender], receiving: Mapping[str, float]
) -> list[Launch]:
    """A sink on every host in `receiving` (the bit/s that it gets, scaled), then the senders, which start together."""
    name = f"{source.window}.{source.name}" if source.window else source.name
    ports = {host: [source.port + i for i in range(processes(rate))] for host, rate in receiving.items()}
    first = senders[0].sinks[0]
    found = []
    for host in receiving:
        node = topology.node(host)
        mine = [topology.node(sender.host).address for sender in senders if host in sender.sinks]
        starting = [topology.node(sender.host).address for sender in senders] if host == first else []
        spec = {
            "address": node.address,
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
                files={"flow_sink.py": AGENTS / "flow_sink.py", "spec.json": schedule.dumped(spec)},
                ready=Line(pattern="^listening$"),
                stop=Stop(signals=((signal.SIGTERM, 3.0),), ok=(0,)),
            )
        )
    found += [_sender(config, source, topology, sender, name=name, ports=ports, first=first) for sender in senders]
    return found


def _sender(
    config: Sending,
    source: Source,
    topology: Topology,
    sender: Sender,
    *,
    name: str,
    ports: Mapping[str, list[int]],
    first: str,
) -> Launch:
    node = topology.node(sender.host)
    spec = {
        "source": node.address,
        "start": {"address": topology.node(first).address, "port": ports[first][0]},
        "sinks": [{"address": topology.node(host).address, "ports": ports[host]} for host in sender.sinks],
        "streams": [],
        "recorded": None,
        **sender.what,
        "mtu": topology.mtu,
        "workers": processes(sender.rate),
        "most_open": config.most_open,
        "drain_s": DRAIN_S,
        "dscp": config.dscp,
        "congestion": config.congestion or "",
        "pool": config.connections == "pool",
        "realtime": config.realtime,
    }
    agents = {f"{stem}.py": AGENTS / f"{stem}.py" for stem in ("flow_sender", "flow_schedule")}
    return Launch(
        name=f"{name}.sender",
        node=sender.host,
        role="traffic",
        argv=(node.python, "-I", "-S", "-B", "flow_sender.py", "spec.json"),
        files={**agents, "spec.json": schedule.dumped(spec), **sender.files},
        order=1,
        ready=Line(pattern="^sending$"),
        ready_within_s=START_WITHIN_S,
        stop=Stop(signals=((signal.SIGTERM, 5.0),), ok=(0,)),
        privileged=config.realtime,
        flows=tuple(
            Flow(
                kind="cross", name=source.name, src=node.address, dst=topology.node(host).address, port=port
            )
            for host in dict.fromkeys((*sender.sinks, first))
            for port in ports[host]
        ),
    )  # fmt: skip


# What came home


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `flows`, `schedules` and `sizes` from a sender, of `counters` from a sink; none when it never began."""
    found: dict[str, Columns] = {}
    logs = [log for log in sorted(output.folder.glob("flows.*.bin")) if log.stat().st_size >= flow_sender.HEAD.size]
    spec = _spec(output.folder / "spec.json")
    if logs and spec is not None:
        found.update(_sent(output, logs, spec))
    if any(output.folder.glob("received.*.csv")):
        found["counters"] = _received(output)
    return {name: columns for name, columns in found.items() if len(next(iter(columns.values())))}


def _spec(path: Path) -> dict[str, Any] | None:
    """What an agent was told; None when that did not come home whole."""
    try:
        spec: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return spec


def records(log: Path) -> tuple[int, Any]:
    """A sender's log: its clock (nanoseconds since the epoch) at the schedule's zero, and an array of RECORD.

    StoreError when it is none; a record that was cut off by a crash is left out.
    """
    with log.open("rb") as file:
        head = file.read(flow_sender.HEAD.size)
        if len(head) < flow_sender.HEAD.size or not head.startswith(flow_sender.MAGIC):
            raise StoreError(f"{log} is no log of flows")
        zero_ns = int(flow_sender.HEAD.unpack(head)[1])
        data = file.read()
    return zero_ns, np.frombuffer(data, RECORD, count=len(data) // RECORD.itemsize)


def error_text(code: int) -> str:
    """What a record's error means; empty for none."""
    return "" if code == 0 else _ERRORS.get(code) or os.strerror(code)


def _sent(output: LaunchOutput, logs: Sequence[Path], spec: Mapping[str, Any]) -> dict[str, Columns]:
    read = [records(log) for log in logs]
    zero_ns = read[0][0] + output.offset_ns
    rows = np.concatenate([part for _, part in read])
    rows = rows[np.argsort(rows["number"], kind="stable")]
    count = len(rows)
    sinks = [sink["address"] for sink in spec["sinks"]]
    words = {int(code): error_text(int(code)) for code in np.unique(rows["error"])}
    flows: Columns = {
        "source": [output.source or ""] * count,
        "window_name": [output.window or ""] * count,
        "flow": rows["number"],
        "src": [spec["source"]] * count,
        "dst": [sinks[sink] for sink in rows["sink"].tolist()],
        "src_port": rows["sport"].astype(np.int64),
        "dst_port": rows["dport"].astype(np.int64),
        "planned_start_ns": rows["planned"] + zero_ns,
        "start_ns": rows["start"] + zero_ns,
        "connected_ns": _instants(rows["connected"], zero_ns),
        "last_byte_ns": _instants(rows["last"], zero_ns),
        "end_ns": _instants(rows["acked"], zero_ns),
        "planned_bytes": rows["size"],
        "bytes": rows["sent"],
        "retransmits": rows["retransmits"].astype(np.int64),
        "error": [words[code] for code in rows["error"].tolist()],
    }
    return {"flows": flows, **_planned(output, spec, sinks, zero_ns)}


def _instants(values: Any, zero_ns: int) -> list[int | None]:
    return [value + zero_ns if value >= 0 else None for value in values.tolist()]


def _planned(output: LaunchOutput, spec: Mapping[str, Any], sinks: Sequence[str], zero_ns: int) -> dict[str, Columns]:
    """The schedule as it was asked for."""
    streams = spec["streams"]
    bursts = [stream["burst"] or {} for stream in streams]
    count = len(streams)
    schedules: Columns = {
        "source": [output.source or ""] * count,
        "window_name": [output.window or ""] * count,
        "dst": [sinks[stream["sink"]] for stream in streams],
        "zero_ns": [zero_ns] * count,
        "load_bps": [float(stream["load_bps"]) for stream in streams],
        "flow_bytes": [stream["flow_bytes"] for stream in streams],
        "arrivals": [stream["arrivals"] for stream in streams],
        "largest_bytes": [flow_schedule.largest_bytes(stream) for stream in streams],
        "burst_width_s": [burst.get("width_s") for burst in bursts],
        "burst_period_s": [burst.get("period_s") for burst in bursts],
        "burst_height": [burst.get("height") for burst in bursts],
    }
    points = schedule.size_points(streams[0]) if streams and not bursts[0] else []
    sizes: Columns = {
        "source": [output.source or ""] * len(points),
        "window_name": [output.window or ""] * len(points),
        "bytes": [float(size) for size, _ in points],
        "cdf": [float(share) for _, share in points],
    }
    return {"schedules": schedules, "sizes": sizes}


def _received(output: LaunchOutput) -> Columns:
    names: list[str] = []
    times: list[int] = []
    values: list[float] = []
    for log in sorted(output.folder.glob("received.*.csv")):
        port = log.name.split(".")[1]
        for cells in _lines(log):
            at, *counts = cells
            for what, value in zip(("bytes", "flows", "open", "refused"), counts, strict=True):
                names.append(f"{output.source}.{port}.received_{what}")
                times.append(at + output.offset_ns)
                values.append(float(value))
    return {"port": [""] * len(names), "time_ns": times, "counter": names, "value": values}


def _lines(log: Path) -> Iterator[list[int]]:
    """Whole lines of numbers; the last one may have been cut off."""
    for line in log.read_text(encoding="ascii").splitlines()[1:]:
        cells = line.split(",")
        if len(cells) == 5 and all(cell.isdigit() for cell in cells):
            yield [int(cell) for cell in cells]
