"""How busy the hosts are: processor time, memory, swapping, waiting for disks and thermal throttling over time.

Counters of the node as a whole: "cpu.busy_share" and "cpu.steal_share" (0 to 1, of all processors' time since the
sample before), "memory.available_bytes", "swap.free_bytes", the cumulative "swap.in_pages" and "swap.out_pages",
"io.waited_s", cumulative, for which some process waited for a disk (where the kernel measures pressure), and where the
processors tell it "cpu.core_throttles" and "cpu.package_throttles", cumulative and summed. In a container they are
those of the whole machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from orchestrator.core.fields import Duration, Model
from orchestrator.parts import samplers
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.topology import Topology

NAME = "cpu"


class Config(Model):
    """Processor and memory use."""

    hosts: tuple[str, ...] | None = None
    """Hosts to watch; all when left out."""
    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 0.1
    """Time between samples; the kernel counts processor time in steps of 10 ms."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    known = [host.name for host in topology.hosts]
    return [*samplers.hosts_problems(config.hosts, known), *samplers.interval_problems("every", config.every)]


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - the kernel has them all
    return []


def launches(config: Config, topology: Topology) -> list[Launch]:
    arguments = (f"{config.every:.9g}", "/proc", "/sys")
    return [
        samplers.sampler_launch(NAME, host, arguments, required=config.required)
        for host in samplers.chosen_hosts(topology, config.hosts)
    ]


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `counters`, with port ""."""
    return samplers.counter_rows(_in_units(output))


def _in_units(output: LaunchOutput) -> Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Ticks as shares of the time since the sample before, KiB as bytes, microseconds as seconds, the rest as it is."""
    for stem, table in samplers.csv_tables(output):
        for kind in ("busy", "steal"):
            part, whole = (samplers.numbers(table, f"|cpu.{name}_ticks") for name in (kind, "total"))
            known = ~(np.isnan(part) | np.isnan(whole))
            instants = table.column("time_ns").to_numpy()[known] + output.offset_ns
            passed, spent = np.diff(whole[known]), np.diff(part[known])
            some = (passed > 0) & (spent >= 0)  # a counter that goes backwards tells nothing of that time
            if some.any():
                yield f"|cpu.{kind}_share", instants[1:][some], spent[some] / passed[some]
        for name, instants, values in samplers.series(stem, table, output):
            if name.endswith("_kib"):
                yield name.removesuffix("_kib") + "_bytes", instants, values * 1024
            elif name.endswith("_us"):
                yield name.removesuffix("_us") + "_s", instants, values / 1e6
            elif not name.endswith("_ticks"):
                yield name, instants, values
