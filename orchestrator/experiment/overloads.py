"""Cross traffic that a host's link cannot carry: the loads of a window together, against links and conditions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from orchestrator.core.units import rate_text
from orchestrator.experiment.experiment import Choice, WindowSpec
from orchestrator.parts import registry
from orchestrator.parts.conditions import rate
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Topology

Direction = tuple[str, str]  # "from" or "to", and the host


def problems(window: WindowSpec, conditions: Sequence[Choice], topology: Topology) -> Iterator[Problem]:
    """Sources that together ask for more than goes from or to a host."""
    bounds = _bounds(conditions)
    for (way, host), total in _totals(window).items():
        link = topology.link(host).rate
        limit = min(link, bounds.get((way, host), link))
        if total > limit:
            what = "its link" if limit == link else f"the condition {rate.NAME}"
            yield Problem(
                at=(),
                message=f"the loads {way} {host} add up to {rate_text(total)}, above {what} of {rate_text(limit)}",
                accepted=f"at most {rate_text(limit)} together",
            )


def _totals(window: WindowSpec) -> dict[Direction, float]:
    totals: dict[Direction, float] = defaultdict(float)
    for choice in window.traffic:
        for demand in registry.traffic(choice.name).demands(choice.config):
            totals["from", demand.src] += demand.rate
            totals["to", demand.dst] += demand.rate
    return totals


def _bounds(conditions: Sequence[Choice]) -> dict[Direction, float]:
    found = {}
    for choice in conditions:
        if choice.name == rate.NAME:
            way, host, bound = rate.bounded(choice.config)
            found[way, host] = bound
    return found
