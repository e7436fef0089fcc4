"""Cross traffic from a schedule file: each line is a flow with its start, size and receiver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from pydantic import Field, model_validator

from cross_traffic import flow_launches, flow_records, schedule_files
from cross_traffic.agents import flow_drawing
from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Duration
from orchestrator.core.paths.lookup import NamedFile
from orchestrator.core.units import Mistake
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Demand, Escalation, Problem, Sent, Source
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.shared import rails
from orchestrator.parts.topology import Topology

NAME = "replay"

# For the demand of a file, whatever network it meets, with IPv4: a larger one makes up to 4 % less of it, IPv6 1 % more
MTU = 1500
MOST_FLOWS = 10_000_000


class Config(flow_launches.SendingConfig):
    """Flows of schedule files, again and again: of one host, or of several that begin together."""

    src: str | None = Field(default=None, alias="from")
    """Host that sends, where it is one."""
    to: str | None = None
    """Host that receives what a file gives no receiver for."""
    schedule: NamedFile | None = None
    """Its file, of lines start_s,bytes or start_s,bytes,to; sizes are divided by the testbed's scale. Looked up beside
    the file that names it, then from the current folder."""
    schedules: dict[str, NamedFile] = Field(default_factory=dict)
    """Files of several hosts by the host that sends, instead of `from` and `schedule`. All begin at the same instant,
    and begin again together, after the longest of them where `length` is left out."""
    length: Duration | None = Field(default=None, gt=0)
    """After how long it begins again; when left out, after the last start and a mean gap."""

    @model_validator(mode="after")
    def _one_way(self) -> Config:
        one, files = (self.src, self.schedule), self.schedules
        if (None in one and any(one)) or bool(files) == (None not in one):
            raise Mistake("names no sender with its file", accepted="from and schedule, or schedules: {h1: h1.csv}")
        return self

    @property
    def files(self) -> Mapping[str, Path]:
        """The schedule file of each host that sends."""
        return self.schedules if self.src is None or self.schedule is None else {self.src: self.schedule}


@dataclass(frozen=True, slots=True)
class _File:
    """Totals of a schedule file: layer-2 bytes by receiver, and its length in seconds."""

    wire: Mapping[str, int]
    length_s: float


def _measured(config: Config) -> dict[str, _File]:
    """Return the totals of each sender's file, which all have one length."""
    found = {}
    for host, path in config.files.items():
        try:
            status = path.stat()
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        found[host] = _file(path, config.to or "", config.length, config.connections, status.st_mtime_ns)
    length_s = max(file.length_s for file in found.values())
    return {host: _File(file.wire, length_s) for host, file in found.items()}


@lru_cache(maxsize=64)
def _file(path: Path, to: str, length_s: float | None, connections: str, _changed_ns: int) -> _File:
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
    option, at = ("from", ("schedule",)) if config.src is not None else ("schedules", ("schedules",))
    found = _absent(option, config.files, topology)
    try:
        measured = _measured(config)
    except ConfigError as error:
        return [*found, Problem(at=at, message=error.message, accepted=error.hint or "a schedule file")]
    receivers = dict.fromkeys(to for file in measured.values() for to in file.wire)
    if "" in receivers:
        message = "some flows of the file name no receiver"
        return [*found, Problem(at=("to",), message=message, accepted="the host for those")]
    found += _absent(at[0], receivers, topology)
    found += rails.problems(config.rail, topology)
    found += [
        Problem(at=at, message=f"sends from {host!r} to itself", accepted="another host")
        for host, file in measured.items()
        if host in file.wire
    ]
    return found


def _absent(option: str, hosts: Iterable[str], topology: Topology) -> list[Problem]:
    return [found for host in hosts for found in flow_launches.host_problems(option, [host], topology)]


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - the same on every testbed
    return flow_launches.requirements(config, tuple(config.files), needed_by=NAME)


def demands(config: Config) -> list[Demand]:
    return [
        Demand(
            src=host, dst=to, rate=wire * 8 / file.length_s, over_s=max(1.0, min(file.length_s, 10.0)), rail=config.rail
        )
        for host, file in _measured(config).items()
        for to, wire in file.wire.items()
    ]


def remarks(config: Config, topology: Topology) -> list[str]:  # noqa: ARG001 - it does what its configuration says
    return []


def escalate(config: Config) -> Escalation | None:  # noqa: ARG001 - it opens a connection a flow from the first
    return None


def launches(config: Config, source: Source, topology: Topology) -> list[Launch]:
    """Return launches of sinks, then of the senders with their files in the form that they read."""
    schedules = {
        host: flow_launches.Recorded(
            flows=[
                replace(flow, start_s=flow.start_s * topology.dilation, to=flow.to or config.to or "")
                for flow in schedule_files.read_schedule(config.files[host])
            ],
            wire=file.wire,
            length_s=file.length_s * (1 if config.length is not None else topology.dilation),  # `length` is dilated
        )
        for host, file in _measured(config).items()
    }
    return flow_launches.recorded_launches(config, source, topology, schedules=schedules)


def sent(config: Config, source: Source, topology: Topology) -> Iterator[Sent]:
    """Yield the flows that the launches will send; a pool's connections are as good as new ones to each flow."""
    return flow_launches.sent(launches(config, source, topology), source, topology, rail=config.rail)


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read rows of `flows`, one a flow; from the sinks rows of `counters`."""
    return flow_records.read(output)
