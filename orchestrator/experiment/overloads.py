"""Cross traffic that a host's link cannot carry: the loads of a window together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from orchestrator.core.units import rate_text
from orchestrator.experiment.experiment import WindowSpec
from orchestrator.parts import registry
from orchestrator.parts.protocols import Problem, end_name
from orchestrator.parts.topology import Topology

Direction = tuple[str, str, int]  # "from" or "to", the host, and the rail


def problems(window: WindowSpec, topology: Topology) -> Iterator[Problem]:
    """Sources that together ask for more than the link of a host carries from or to it."""
    for (way, host, rail), total in _totals(window).items():
        if total > topology.carries_bps(host, rail):
            end = end_name(host, rail)
            yield Problem(
                at=(),
                message=f"the loads {way} {end} add up to {rate_text(total)}, more than its link carries",
                accepted=f"at most {topology.carries_text([host], rail)} together",
            )


def _totals(window: WindowSpec) -> dict[Direction, float]:
    totals: dict[Direction, float] = defaultdict(float)
    for choice in window.traffic:
        for demand in registry.traffic(choice.name).demands(choice.config):
            totals["from", demand.src, demand.rail] += demand.rate
            totals["to", demand.dst, demand.rail] += demand.rate
    return totals
