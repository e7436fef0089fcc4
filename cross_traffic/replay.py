"""Cross traffic from a schedule file: each line is a flow with its start, size and receiver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import Field

from cross_traffic import flow_launches, flow_records, schedule_files
from cross_traffic.agents import flow_drawing
from cross_traffic.agents.flow_sender import RecordedSpec
from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Duration
from orchestrator.core.paths.lookup import NamedFile
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Demand, Escalation, Problem, Source
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.shared import rails
from orchestrator.parts.topology import Topology

NAME = "replay"

# For the demand of a file, whatever network it meets, with IPv4: a larger one makes up to 4 % less of it, IPv6 1 % more
MTU = 1500
MOST_FLOWS = 10_000_000


class Config(flow_launches.SendingConfig):
    """Flows of a schedule file, again and again."""

    src: str = Field(alias="from")
    """Host that sends."""
    to: str | None = None
    """Host that receives what the file gives no receiver for."""
    schedule: NamedFile
    """File of lines start_s,bytes or start_s,bytes,to; sizes are divided by the testbed's scale. Looked up beside the
    file that names it, then from the current folder."""
    length: Duration | None = Field(default=None, gt=0)
    """After how long it begins again; when left out, after the last start and a mean gap."""


@dataclass(frozen=True, slots=True)
class _File:
    """Totals of a schedule file: layer-2 bytes by receiver, and its length in seconds."""

    wire: Mapping[str, int]
    length_s: float


def _file(config: Config) -> _File:
    try:
        status = config.schedule.stat()
    except OSError as error:
        raise ConfigError(f"{config.schedule}: cannot be read: {error.strerror}") from None
    return _measured(config.schedule, config.to or "", config.length, config.connections, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _measured(path: Path, to: str, length_s: float | None, connections: str, _changed_ns: int) -> _File:
    overhead = flow_drawing.SEGMENT_HEADER_BYTES[4] if connections == "pool" else None
    framing = flow_drawing.Framing(MTU, 4, overhead)
    wire: dict[str, int] = defaultdict(int)
    count, last_s = 0, 0.0
    for flow in schedule_files.read_schedule(path):
        count += 1
        if count > MOST_FLOWS:
            raise ConfigError(f"{path}: more than {MOST_FLOWS} flows")
        wire[flow.to or to] += framing.wire_bytes(flow.size)
        last_s = flow.start_s
    if length_s is not None and length_s <= last_s:
        raise ConfigError(f"{path}: its last flow starts at {last_s:g} s, after the {length_s:g} s of `length`")
    return _File(dict(wire), length_s or last_s + (last_s / (count - 1) if count > 1 and last_s > 0 else 1.0))


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = flow_launches.host_problems("from", [config.src], topology)
    try:
        measured = _file(config)
    except ConfigError as error:
        return [*found, Problem(at=("schedule",), message=error.message, accepted=error.hint or "a schedule file")]
    if "" in measured.wire:
        return [
            *found,
            Problem(at=("to",), message="some flows of the file name no receiver", accepted="the host for those"),
        ]
    found += flow_launches.host_problems("schedule", tuple(measured.wire), topology)
    found += rails.problems(config.rail, topology)
    if config.src in measured.wire:
        found.append(Problem(at=("schedule",), message=f"sends from {config.src!r} to itself", accepted="another host"))
    return found


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - the same on every testbed
    return flow_launches.requirements(config, [config.src], needed_by=NAME)


def demands(config: Config) -> list[Demand]:
    measured = _file(config)
    return [
        Demand(
            src=config.src,
            dst=to,
            rate=wire * 8 / measured.length_s,
            over_s=max(1.0, min(measured.length_s, 10.0)),
            rail=config.rail,
        )
        for to, wire in measured.wire.items()
    ]


def remarks(config: Config, topology: Topology) -> list[str]:  # noqa: ARG001 - it does what its configuration says
    return []


def escalate(config: Config) -> Escalation | None:  # noqa: ARG001 - it opens a connection a flow from the first
    return None


def launches(config: Config, source: Source, topology: Topology) -> list[Launch]:
    """Return launches of sinks, then of the sender with the file in the form that it reads."""
    measured = _file(config)
    length_s = measured.length_s * (1 if config.length is not None else topology.dilation)  # `length` is dilated
    sinks = tuple(measured.wire)
    lines = [
        f"{round(flow.start_s * topology.dilation * 1e9)},{flow.size},{sinks.index(flow.to or config.to or '')}\n"
        for flow in schedule_files.read_schedule(config.schedule)
    ]
    receiving = {to: wire * 8 / length_s / topology.scale for to, wire in measured.wire.items()}
    recorded: RecordedSpec = {"path": "flows.csv", "factor": 1 / topology.scale, "length_s": length_s}
    sender = flow_launches.Sender(
        host=config.src,
        sinks=sinks,
        rate=sum(receiving.values()),
        recorded=recorded,
        files={"flows.csv": "".join(lines).encode()},
    )
    return flow_launches.launches(config, source, topology, senders=[sender], receiving=receiving)


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read rows of `flows`, one a flow; from the sinks rows of `counters`."""
    return flow_records.read(output)
