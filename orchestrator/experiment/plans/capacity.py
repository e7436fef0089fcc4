"""What a run takes of a machine, and whether the machine has it: pure, from footprints that were measured."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.core.machines.machine import Machine
from orchestrator.experiment.plans.plan import RunPlan
from orchestrator.parts.launch import Launch

NODE_BYTES = 20e6  # an agent, and where the node is a container its sshd
NODE_START_S = 0.3  # of a processor
CONTROLLER_BYTES = 300e6  # on the machine of a local testbed: this process, and the one that makes the tables
START_SHARE = 0.8  # of the time that ranks have to get ready, which starting all of them may take
TIGHT_SHARE = 0.8  # of the memory that is free

ANYWAY = "--force starts all the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a run takes of one machine.

    `memory` in bytes; `start_s` seconds of a processor until every rank is ready, for which they have `within_s`;
    `busy` processors while it is measured.
    """

    ranks: int
    memory: float
    start_s: float
    within_s: float
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Sentences with their figures and what to do: `refused` keeps a run from starting, `told` does not."""

    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def need(plan: RunPlan, nodes: Collection[str], *, controller: bool) -> Need:
    """What the run takes of a machine that has these nodes, and the `controller` if it is the same.

    Of several windows, whose traffic comes one after the other, the one that takes most counts.
    """
    standing = [launch for launch in _standing(plan) if launch.node in nodes]
    ranks = [launch for launch in standing if launch.rank is not None]
    windows = [[launch for source in window.sources for launch in source.launches] for window in plan.windows]
    traffic = max(sum(one.footprint.memory for one in window if one.node in nodes) for window in windows)
    own = NODE_BYTES * len(nodes) + (CONTROLLER_BYTES if controller else 0.0)
    return Need(
        ranks=len(ranks),
        memory=own + traffic + sum(launch.footprint.memory for launch in standing),
        start_s=sum(launch.footprint.start_s for launch in ranks),
        within_s=min((launch.ready_within_s for launch in ranks), default=math.inf),
        busy=sum(launch.footprint.busy for launch in standing),
    )


def judge(wanted: Need, machine: Machine, *, scales: bool) -> Verdict:
    """Hold what is wanted against what there is; `scales` says whether a larger scale makes what ranks hold smaller."""
    refused = [*_memory(wanted, machine, scales=scales), *_start(wanted, machine)]
    return Verdict(
        refused=tuple(refused), warnings=() if refused else (*_tight(wanted, machine), *_busy(wanted, machine))
    )


def _memory(wanted: Need, machine: Machine, *, scales: bool) -> list[str]:
    if wanted.memory <= machine.memory:
        return []
    larger = ", a larger scale" if scales else ""
    return [
        f"{_ranks(wanted)} and what runs beside them take about {gib(wanted.memory)} of memory, and "
        f"{gib(machine.memory)} is free; remedy: fewer ranks{larger}, or a machine with more; {ANYWAY}"
    ]


def _start(wanted: Need, machine: Machine) -> list[str]:
    lasts_s = wanted.start_s / machine.processors
    if lasts_s <= START_SHARE * wanted.within_s:
        return []
    most = math.floor(wanted.ranks * START_SHARE * wanted.within_s / lasts_s)
    return [
        f"{_ranks(wanted)} take about {wanted.start_s:.0f} s of processor time to start and meet, {lasts_s:.0f} s on "
        f"{processors(machine)}, and have {wanted.within_s:.0f} s to be ready; remedy: at most {most} ranks here, or "
        f"more processors; {ANYWAY}"
    ]


def _tight(wanted: Need, machine: Machine) -> list[str]:
    if wanted.memory <= TIGHT_SHARE * machine.memory:
        return []
    return [f"{_ranks(wanted)} take about {gib(wanted.memory)} of the {gib(machine.memory)} of memory that is free"]


def _busy(wanted: Need, machine: Machine) -> list[str]:
    if wanted.busy <= machine.processors:
        return []
    return [
        f"{_ranks(wanted)} keep about {wanted.busy:.1f} processors busy, and there are {machine.processors:g}: the "
        "processors, not the network, will set their times; remedy: fewer ranks, or longer or emulated compute"
    ]


def gib(size: float) -> str:
    """Bytes in GiB, for people."""
    return f"{size / 2**30:.1f} GiB"


def processors(machine: Machine) -> str:
    """How many there are, for people."""
    return f"{machine.processors:g} processor{'s' if machine.processors != 1 else ''}"


def _ranks(wanted: Need) -> str:
    return f"{wanted.ranks} rank{'s' if wanted.ranks != 1 else ''}"


def _standing(plan: RunPlan) -> list[Launch]:
    return [*plan.helper_processes(), *plan.collectors, *(launch for job in plan.jobs for launch in job.launches)]
