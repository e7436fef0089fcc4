"""Whether processors were there for a run: whose work they did, and how long its processes waited for one.

Every run has this collector, on every node that takes part: the gate `processor` rests on it. Counters of the node as a
whole, in seconds, cumulative: "processor.busy_s" (work of processes and of the kernel on their behalf),
"processor.interrupt_s", "processor.steal_s" (taken by the hypervisor) and "processor.pressure_s" (while some process
waited, by the kernel's pressure stall information) of the whole kernel, "processor.own_s" of the run's processes on
this node, "processor.throttled_s" (while a control group's limit stopped them); and "processor.count". What the kernel
does not count is left out. The table `tasks` has what the threads of each launch used and waited for. Of each processor
there are "processor.cpu0.busy_s", "processor.cpu0.steal_s" and "processor.cpu0.own_s", and the table `waits` has the
threads that waited, with the processor that they were on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from orchestrator.core.fields import Duration, Model
from orchestrator.parts import samplers
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "processor"


class Config(Model):
    """Whose work the processors do, and who waits for them."""

    hosts: tuple[str, ...] | None = None
    """Nodes to watch; all that take part when left out."""
    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 1.0
    """Time between samples; the kernel counts processor time in steps of 10 ms."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    known = list(samplers.ports(topology, None))
    return [*samplers.hosts_problems(config.hosts, known), *samplers.interval_problems("every", config.every)]


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - what is missing is told
    return []


def launches(config: Config, topology: Topology) -> list[Launch]:
    proc, containers = samplers.PROCESSES
    arguments = (f"{config.every:.9g}", proc, "/sys/fs/cgroup", containers)
    beside = (samplers.RUN_PROCESSES,)
    return [
        samplers.sampler_launch(NAME, topology.node(name), arguments, required=config.required, beside=beside)
        for name in samplers.ports(topology, config.hosts)
    ]


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `counters`, with port "", of `tasks`, one a launch and sample, and of `waits`, one a waiting thread."""
    import pyarrow as pa

    tables: dict[str, list[pa.Table]] = {"tasks": [], "waits": []}
    series: list[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    for stem, table in samplers.csv_tables(output):
        if stem in tables:
            tables[stem] += [table] if len(table) else []
        else:
            series += samplers.series(stem, table, output)
    found: dict[str, Columns] = {}
    for name, wholes in (("tasks", ("threads",)), ("waits", ("thread", "processor"))):
        if tables[name]:
            table = pa.concat_tables(tables[name], promote_options="default")
            found[name] = {
                "time_ns": table.column("time_ns").to_numpy() + output.offset_ns,
                "process": samplers.texts(table, "process"),
                **{column: samplers.wholes(samplers.numbers(table, column)) for column in wholes},
                "run_s": samplers.numbers(table, "run_ns") / 1e9,
                "wait_s": samplers.numbers(table, "wait_ns") / 1e9,
            }
    return {**found, **samplers.counter_rows(iter(series))}
