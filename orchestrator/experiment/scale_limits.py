"""Say beyond which cross traffic a scale model without dilation is off: where packets and time-outs decide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.core.units import rate_text
from orchestrator.experiment.plan import PlannedJob, RunPlan
from orchestrator.parts.theory import Theory
from workloads.common import trained_model
from workloads.models.catalog import FORWARD_SHARE

FITS = 10  # a dilation from which results agree with those of larger ones (docs/scale-model.md)


def knees(plan: RunPlan) -> dict[str, float]:
    """Return, for each host whose first link trainings share with cross traffic, the load at which it fills, bit/s.

    Training asks for its bytes of an iteration within a backward pass, which communication overlaps. Beyond the link's
    capacity less that, as fluids, the queue is full and iterations become longer: losses and retransmission time-outs
    then decide by how much, and neither has a scale. 0 where training fills the link alone; full size.
    """
    asked: dict[str, float] = defaultdict(float)
    for job in plan.jobs:
        if (rate := _asked_bps(job, plan)) is not None:
            for rank in job.job.ranks:
                asked[rank.node] += rate
    crossed = {host for loads in _loads(plan).values() for host in loads}
    return {host: max(0.0, plan.topology.carries_bps(host) - asked[host]) for host in asked if host in crossed}


def iteration_s(plan: RunPlan, window: str) -> float | None:
    """Return about how long an iteration of a window takes: computing, then sending at what the link has free.

    Or its period, where that is longer. Of the slowest job, at full size, seconds; None where computing or traffic of
    one is not known, or nothing is free.
    """
    loads = _loads(plan).get(window, {})
    longest = 0.0
    for job in plan.jobs:
        computing = _compute_s(job.config)
        free = min(plan.topology.carries_bps(rank.node) - loads.get(rank.node, 0.0) for rank in job.job.ranks)
        if computing is None or job.theory is None or free <= 0:
            return None
        taken = computing + _wire_bytes(job.theory, plan) * 8 / free
        longest = max(longest, taken, job.pace.every_s or 0.0)
    return longest


def _wire_bytes(theory: Theory, plan: RunPlan) -> float:
    """Return layer-2 bytes that a rank sends in an iteration, at full size."""
    return theory.bytes_per_iteration * plan.topology.scale * plan.topology.wire_per_payload


def remarks(plan: RunPlan) -> Iterator[str]:
    """Yield a sentence on the loads that a scale without dilation can and cannot be used for."""
    topology = plan.topology
    if topology.kind != "local" or topology.scale == 1 or topology.dilation > 1:
        return
    for host, knee in knees(plan).items():
        beyond = [window for window, loads in _loads(plan).items() if loads.get(host, 0.0) > knee]
        carries = f"cross traffic of up to {rate_text(float(f'{knee:.3g}'))}" if knee else "no cross traffic"
        yield (
            f"scale {topology.scale} without dilation: good at {host} for {carries}, where training does not fill the"
            " link yet; beyond it packets and time-outs, which have no scale, decide how long iterations are"
            + (f": for {', '.join(beyond)} say `dilation: {FITS}` (docs/scale-model.md)" if beyond else "")
        )


def _loads(plan: RunPlan) -> Mapping[str, Mapping[str, float]]:
    """Return the load of each window at each host, the larger of both directions, bit/s at full size."""
    found: dict[str, dict[str, float]] = {}
    for window in plan.windows:
        ways: dict[tuple[str, str], float] = defaultdict(float)
        for demand in (demand for source in window.sources for demand in source.demands if demand.rail == 0):
            ways["from", demand.src] += demand.rate
            ways["to", demand.dst] += demand.rate
        loads = found.setdefault(window.name, {})
        for (_, host), rate in ways.items():
            loads[host] = max(loads.get(host, 0.0), rate)
    return found


def _asked_bps(job: PlannedJob, plan: RunPlan) -> float | None:
    """Return what a rank sends over the time of its backward pass, layer 2, full size; None where that is not known."""
    seconds = _compute_s(job.config)
    if seconds is None or job.theory is None:
        return None
    return _wire_bytes(job.theory, plan) * 8 / ((1 - FORWARD_SHARE) * seconds)


def _compute_s(config: Any) -> float | None:
    """Return the seconds that an iteration computes where that is emulated, and known."""
    given: float | None = getattr(config, "compute_time", None)
    if given is not None or not hasattr(config, "compute_time") or getattr(config, "compute", "emulated") == "real":
        return given
    return trained_model.compute_time(config)
