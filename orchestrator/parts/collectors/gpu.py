"""What GPUs do: use, memory, clocks, power, heat, and traffic over PCI Express and NVLink, as NVML tells it.

Counters of each GPU, the port being "gpu0" and so on: "gpu.busy_share" and "gpu.memory_busy_share" (0 to 1, of the
driver's own last sample period), "gpu.memory_used_bytes", "gpu.sm_clock_hz", "gpu.memory_clock_hz", "gpu.power_w",
"gpu.temperature_c", "gpu.throttle_reasons" (a mask of NVML's), and cumulative "gpu.pcie_tx_bytes", "gpu.pcie_rx_bytes",
"gpu.nvlink_tx_bytes", "gpu.nvlink_rx_bytes" (payload, all links together). What a GPU does not tell is left out.
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

NAME = "gpu"

LIBRARY = "libnvidia-ml.so.1"
ROLLS_OVER_AT = 1 << 32  # the counters of PCI Express

# How NVML's units become SI: the end of a name, what stands in its place, and the factor.
_UNITS = (("_percent", "_share", 0.01), ("_mhz", "_hz", 1e6), ("_mw", "_w", 1e-3), ("_kib", "_bytes", 1024.0))


class Config(Model):
    """GPUs of the hosts, by NVML."""

    hosts: tuple[str, ...] | None = None
    """Hosts to watch; those that have GPUs by the testbed's file when left out."""
    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 0.1
    """Time between samples; a driver refreshes what it tells a few times a second, its counters at once."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    known = [host.name for host in topology.hosts]
    found = [*samplers.hosts_problems(config.hosts, known), *samplers.interval_problems("every", config.every)]
    if config.hosts is None and not _hosts(config, topology):
        accepted = "`gpus: N` at hosts of the testbed's file, or hosts named here"
        found.append(Problem(at=(), message="no host has GPUs by the testbed's file", accepted=accepted))
    return found


def _hosts(config: Config, topology: Topology) -> tuple[str, ...]:
    with_gpus = tuple(host.name for host in topology.hosts if host.gpus)
    return with_gpus if config.hosts is None else config.hosts


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    remedy = "install NVIDIA's driver (apt-get install nvidia-driver-535, or a newer one)"
    return [
        Requirement(node=host.name, kind="program", what="nvidia-smi", remedy=remedy, needed_by=f"collector {NAME}")
        for host in samplers.chosen_hosts(topology, _hosts(config, topology))
    ]


def launches(config: Config, topology: Topology) -> list[Launch]:
    arguments = (f"{config.every:.9g}", LIBRARY)
    return [
        samplers.sampler_launch(NAME, host, arguments, required=config.required)
        for host in samplers.chosen_hosts(topology, _hosts(config, topology))
    ]


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `counters`, the port being the GPU."""
    return samplers.counter_rows(_in_units(output))


def _in_units(output: LaunchOutput) -> Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    for name, instants, values in samplers.counters(output):
        if "|gpu.pcie_" in name:
            yield name, instants, unrolled(values)
            continue
        for ending, unit, factor in _UNITS:
            if name.endswith(ending):
                yield name.removesuffix(ending) + unit, instants, values * factor
                break
        else:
            yield name, instants, values


def unrolled(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a cumulative counter without its roll-overs: each step back is one of 2^32."""
    back = np.concatenate([[0], np.cumsum(np.diff(values) < 0)]) if len(values) else np.zeros(0)
    return np.asarray(values + back * ROLLS_OVER_AT)
