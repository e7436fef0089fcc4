"""What each rank does to its processors: cycles, instructions, cache misses, context switches, by `perf stat`.

Counters of each rank, the port being its launch ("training-rank0"), cumulative from when the rank waited at its gate,
of all its threads and of what they start: "perf.task-clock_s" (processor time in seconds), "perf.cycles",
"perf.instructions", "perf.cache-misses" and "perf.context-switches". What a machine does not count is left out and
told, once a host: many virtual machines have no unit that counts cycles, instructions and cache misses. Without root or
CAP_PERFMON, where kernel.perf_event_paranoid is 2, they are those of user space alone, and there are no context
switches, since these happen in the kernel.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.core.fields import Duration, Model
from orchestrator.parts import samplers
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "perf"

EVENTS = ("task-clock", "cycles", "instructions", "cache-misses", "context-switches")
PACKAGES = "install perf: package linux-perf on Debian, linux-tools-generic on Ubuntu, perf on RHEL's family"
RIGHTS = "let root run `sysctl kernel.perf_event_paranoid=2` there, or give the agent root or CAP_PERFMON"
OWN_BYTES = 15e6  # of perf for each rank
# perf's own clock, value, unit, event ("cpu_core/cycles/u" where processors have cores of several kinds).
_LINE = re.compile(
    r" *\d+\.\d+,(\d+(?:\.\d+)?|<not (?:counted|supported)>),([^,]*),"
    rf"(?:\w+/)?({'|'.join(EVENTS)})(/?:?\w*)(?:,|$)"
)


class Config(Model):
    """Performance events of each rank."""

    hosts: tuple[str, ...] | None = None
    """Hosts whose ranks are watched; all that have ranks when left out."""
    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 0.1
    """Time between samples, in whole milliseconds from 10 on."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = samplers.hosts_problems(config.hosts, [host.name for host in topology.hosts])
    if round(config.every * 1000) < 10:
        message = "perf samples in whole milliseconds, no fewer than 10"
        return [*found, Problem(at=("every",), message=message, accepted="10ms to 10s")]
    return [*found, *samplers.interval_problems("every", config.every)]


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    return [
        need
        for host in samplers.chosen_hosts(topology, config.hosts)
        for need in (
            Requirement(node=host.name, kind="program", what="perf", remedy=PACKAGES, needed_by=NAME),
            Requirement(node=host.name, kind="privilege", what="perf events", remedy=RIGHTS, needed_by=NAME),
        )
    ]


def rank_launches(config: Config, ranks: Sequence[Launch], topology: Topology) -> list[Launch]:
    options = ("-x", ",", "-I", str(round(config.every * 1000)), "-e", ",".join(EVENTS), "--log-fd", "1")
    return samplers.rank_launches(
        NAME,
        ("perf", "stat", *options, "-p", "{pid}"),
        [rank for rank in ranks if config.hosts is None or rank.node in config.hosts],
        topology,
        first_line_s=config.every,
        required=config.required,
        privileged=True,
        memory=OWN_BYTES,
    )


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `counters`, the port being the rank."""
    return samplers.counter_rows(_counters(output))


def _counters(output: LaunchOutput) -> Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    counted: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    absent, user_space = set(), set()
    for rank, number, instant, line in samplers.rank_lines(output):
        match = _LINE.match(line)
        if match is None:
            if line.strip() and not line.startswith("#"):
                output.unread.add(f"{rank}.csv", "lines", line=number, text=line)
            continue
        said, unit, event, modifier = match.groups()
        if said == "<not supported>":
            absent.add(event)
            continue
        if "u" in modifier:
            user_space.add(event)
        value = 0.0 if said == "<not counted>" else float(said) * (1e-3 if unit == "msec" else 1.0)
        counted[rank, event].append((instant, value))
    for (rank, event), samples in counted.items():
        if not (event == "context-switches" and event in user_space):  # which a rank does in the kernel
            instants, values = zip(*samples, strict=True)
            name = f"{event}_s" if event == "task-clock" else event
            yield f"{rank}|{NAME}.{name}", np.array(instants, dtype=np.int64), np.cumsum(values)
    if absent := absent - {event for _, event in counted}:
        output.unread.note(f"this machine does not count {', '.join(sorted(absent))}")
    if user_space:
        output.unread.note(f"counted in user space alone, and so without context switches: {RIGHTS}")
