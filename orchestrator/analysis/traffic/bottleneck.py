"""Pick the flows at a bottleneck: training alone on its link, training on a shared link, and cross traffic.

After Salamy, figure 3-9: flow 1 is training on a link of its own, flow 2 training on the link that it shares with
flow 3, the cross traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic import periodicity, traffic
from orchestrator.analysis.traffic.traffic import CROSS, TRAINING, Floats, Mask, Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One of the three sets of flows: its description, and a mask of its flows."""

    label: str
    flows: Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Mean rate in bit/s over the whole time, while sending, and the highest in a bin."""

    mean: Estimate
    sending: float
    peak: float


def three(found: Traffic) -> list[Share]:
    """Return flows 1, 2 and 3 of the traffic; none when no link carries both training and cross traffic.

    A link is a host and a direction. The shared one is that with most cross traffic among those that training uses;
    the training on its own is that of the host with the least cross traffic in the same direction.
    """
    training, cross = found.of(TRAINING), found.of(CROSS)
    ends = {"out of": found.src, "into": found.dst}
    loads = {}
    for way, end in ends.items():
        mine = _sums(found, end, training)
        others = _sums(found, end, cross)
        uses = mine >= 0.1 * max(mine.max(initial=0.0), 1.0)
        for host in np.flatnonzero(uses & (others > 0)).tolist():
            loads[way, host] = others[host]
    if not loads:
        return []
    way, host = max(loads, key=lambda link: loads[link])
    end = ends[way]
    mine, others = _sums(found, end, training), _sums(found, end, cross)
    alone = [other for other in np.flatnonzero(mine >= 0.5 * mine.max()).tolist() if other != host]
    shares = []
    if alone:
        free = min(alone, key=lambda other: (others[other], -mine[other]))
        label = (
            f"flow 1: training {way} {found.hosts[free]}, alone"
            if others[free] < 0.01 * others[host]
            else (f"flow 1: training {way} {found.hosts[free]}, less shared")
        )
        shares.append(Share(label=label, flows=training & (end == free)))
    shares.append(Share(label=f"flow 2: training {way} {found.hosts[host]}, shared", flows=training & (end == host)))
    shares.append(Share(label=f"flow 3: cross traffic {way} {found.hosts[host]}", flows=cross & (end == host)))
    return shares


def rates(found: Traffic, flows: Mask, *, width_ns: int, cycle_s: float) -> Rates:
    """Return rates of some flows in bins of `width_ns`; `cycle_s` is the longest period in them (0: none)."""
    values = traffic.series(found, flows, width_ns=width_ns) * 8e9 / width_ns
    sending = values[periodicity.busy(values)]
    return Rates(
        mean=periodicity.batch_means(values, longest_cycle=max(1, round(cycle_s * 1e9 / width_ns))),
        sending=float(sending.mean()) if len(sending) else 0.0,
        peak=float(values.max(initial=0.0)),
    )


def _sums(found: Traffic, end: traffic.Ints, flows: Mask) -> Floats:
    return np.bincount(end[flows], found.wire_bytes[flows], len(found.hosts)).astype(np.float64)
