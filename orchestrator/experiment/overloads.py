"""Cross traffic that a host's link cannot carry: the loads of a window together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from orchestrator.core.units import rate_text
from orchestrator.experiment.experiment import WindowSpec
from orchestrator.parts import registry
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Topology

Direction = tuple[str, str]  # "from" or "to", and the host


def problems(window: WindowSpec, topology: Topology) -> Iterator[Problem]:
    """Sources that together ask for more than the link of a host carries from or to it."""
    for (way, host), total in _totals(window).items():
        if total > topology.carries_bps(host):
            yield Problem(
                at=(),
                message=f"the loads {way} {host} add up to {rate_text(total)}, more than its link carries",
                accepted=f"at most {topology.carries_text([host])} together",
            )


def _totals(window: WindowSpec) -> dict[Direction, float]:
    totals: dict[Direction, float] = defaultdict(float)
    for choice in window.traffic:
        for demand in registry.traffic(choice.name).demands(choice.config):
            totals["from", demand.src] += demand.rate
            totals["to", demand.dst] += demand.rate
    return totals
