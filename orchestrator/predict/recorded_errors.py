"""Say how far recorded runs were from predictions, and what interval of a prediction follows from that.

The intervals of inputs do not hold what the model itself gets wrong. So an interval is widened until all recorded
settings of the workload lie inside: split conformal prediction with the distance beyond a given interval as the score
(Romano, Patterson and Candes, "Conformalized quantile regression", NeurIPS 2019), for each end by itself. Where nothing
like a setting was recorded there is none. What was recorded is in docs/measurements/predict.*.json, and a test computes
the numbers below from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.parts.topology import Job, Topology

RATES_BPS = (10e9, 40e9)  # slowest and fastest link of a recorded setting, at full size
WITHIN = 0.2  # of a term, that counts as met


@dataclass(frozen=True, slots=True)
class Margin:
    """Logarithms of by how much recorded runs were below and above the inputs' intervals, over so many `settings`."""

    below: float
    above: float
    settings: int


MARGINS: Mapping[str, Margin] = MappingProxyType({"ddp": Margin(0.0, 0.1707, 21), "ptd": Margin(0.064, 0.0, 13)})

# Of each term of the recorded settings: how many were within WITHIN of themselves, and of how many.
TERMS_MET: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "compute": (34, 34),
        "tensor": (6, 12),
        "pipeline": (0, 9),
        "data": (17, 31),
        "embedding": (5, 9),
        "bubble": (13, 13),
        "other": (0, 2),
    }
)


def margin(recorded: Iterable[tuple[float, float, float]]) -> Margin:
    """Return the margin that takes all of these in: low and high end by the inputs, and measured, in one unit."""
    found = list(recorded)
    return Margin(
        below=max([0.0, *(math.log(low / measured) for low, _, measured in found)]),
        above=max([0.0, *(math.log(measured / high) for _, high, measured in found)]),
        settings=len(found),
    )


def interval(workload: str, by_inputs: tuple[float, float]) -> tuple[float, float]:
    """Return the interval of an iteration (s) by that of its inputs, widened by the workload's margin."""
    widened = MARGINS[workload]
    return by_inputs[0] * math.exp(-widened.below), by_inputs[1] * math.exp(widened.above)


def nothing_like(workload: str, job: Job, topology: Topology) -> str:
    """Return why no recorded setting tells how far a prediction may be off; empty where some do."""
    rates = [topology.link(node).rate for node in job.nodes]
    if workload not in MARGINS:
        return f"no run of {workload} was held against its prediction"
    if topology.kind != "local":
        return "predictions were held against runs of local testbeds alone"
    if topology.dilation > 1:
        return "no run with dilated time was held against its prediction"
    if topology.rails > 1:
        return "no run over several rails was held against its prediction"
    if min(rates) < RATES_BPS[0] or max(rates) > RATES_BPS[1]:
        return "predictions were held against runs over links of 10 to 40 Gbit/s alone"
    return ""
