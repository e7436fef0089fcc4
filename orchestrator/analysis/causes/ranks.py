"""Name ranks whose passes or steps the others wait for, and other work on the processors of their hosts."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.causes.evidence import Cost, Evidence
from orchestrator.analysis.causes.explanation import LEAST_SHARE
from orchestrator.core.units import span_text

Floats = npt.NDArray[np.float64]

LONGER = 0.04  # of its passes, by which a slow rank's are longer
STEADY = 0.5  # of how much longer its passes are: a slow rank's vary by less (standard deviation)
STALL_SHARE = 0.34  # of the iterations at most hold a stall's time
DISK = 0.25  # of the time that others wait for a rank, for which its host waits: pressure is by busy processors
WAITED = 0.05  # of the window, for which ranks waited for processors that other work used
_Z = 1.96  # half widths of 95 % intervals, in standard errors


def of_ranks(evidence: Evidence) -> Iterator[Cost]:
    """Yield ranks whose passes, or whose steps, the others wait for."""
    found = evidence.passes
    if len(found.ranks) < 2 or len(found.iteration) < 3:
        return
    yield from _in_passes(evidence)
    yield from _between_passes(evidence)


def _in_passes(evidence: Evidence) -> Iterator[Cost]:
    found, split = evidence.passes, evidence.split
    culprits = _waited_for(split.behind)
    rest = np.delete(found.passes_s, culprits, axis=0)
    computing = rest[rest.any(axis=1)]  # servers compute nothing
    if not len(computing):
        return
    others = np.median(computing, axis=0)
    usual = float(others.mean())
    for place in culprits:
        longer = found.passes_s[place] - others
        mean, varies = float(longer.mean()), float(longer.std(ddof=1))
        if mean - _Z * varies / math.sqrt(len(longer)) > 0 and mean > LONGER * usual:
            spread = float(found.passes_s[place].std(ddof=1)) / usual
            took = span_text(float(found.passes_s[place].mean()))
            yield Cost(
                cause="slow-rank" if varies < STEADY * mean else "jittery-rank",
                place=f"rank {found.ranks[place]} on {found.nodes[place]}",
                hosts=(found.nodes[place],),
                seconds=split.behind[place],
                of="computing",
                evidence=(
                    f"its passes take {took}, those of the others {span_text(usual)}",
                    f"they vary by {spread:.0%} (standard deviation)",
                ),
                strength=mean / (LONGER * usual),
            )


def _between_passes(evidence: Evidence) -> Iterator[Cost]:
    found, split = evidence.passes, evidence.split
    for place in _waited_for(split.held):
        held = split.held[place]
        if held.mean() > LEAST_SHARE * split.total.mean():
            by = np.sort(held)[::-1]
            few = int(np.searchsorted(np.cumsum(by), 0.8 * held.sum())) + 1
            said = [f"others wait {span_text(float(by[:few].mean()))} for it in {few} of {len(held)} iterations"]
            said.append("before its next pass, and not in its passes")
            disk = _of_disk(evidence, found.nodes[place], held)
            if disk >= DISK:
                said.append(f"for {disk:.0%} of that some process of its machine waited for a disk, and not else")
            stalls = "stall" if few <= STALL_SHARE * len(held) else "slow-step"
            yield Cost(
                cause="slow-disk" if disk >= DISK else stalls,
                place=f"rank {found.ranks[place]} on {found.nodes[place]}",
                hosts=(found.nodes[place],),
                seconds=held,
                of="computing",
                evidence=tuple(said),
                strength=2.0,
            )


def _of_disk(evidence: Evidence, host: str, held: Floats) -> float:
    """Return for which share of the time that others wait for a rank its host waited for a disk, beyond the usual."""
    if host not in evidence.disks:
        return 0.0
    ends = evidence.passes.end.max(axis=0)
    begins = np.concatenate((evidence.passes.start.min(axis=0)[:1], ends[:-1]))
    instants, waited = evidence.disks[host]
    grown = np.interp(ends, instants, waited) - np.interp(begins, instants, waited)
    large = held > held.max() / 2
    usual = float(np.median(grown[~large])) if not large.all() else 0.0
    return min(1.0, max(0.0, float((grown[large] - usual).sum() / held[large].sum())))


def _waited_for(amounts: Floats) -> list[int]:
    """Return the ranks that the others wait for, longest first, of amounts of time (ranks by iterations).

    Together they have more than half of it, each at least twice as much as any of the rest; at most half of the ranks.
    """
    each = amounts.sum(axis=1)
    order = [int(place) for place in np.argsort(-each, kind="stable")]
    for count in range(len(order) // 2, 0, -1):
        first, rest = each[order[:count]], each[order[count:]]
        if first.sum() > 0.5 * each.sum() and first[-1] >= 2 * rest.max():
            return order[:count]
    return []


def of_processors(evidence: Evidence) -> Iterator[Cost]:
    """Yield other work on the hosts' processors: what it adds to passes, and to what no queue explains.

    Hosts that share one kernel share its processors, so that none of them can be named.
    """
    host, waited = max(evidence.others_wait.items(), key=lambda one: one[1], default=("", 0.0))
    if waited < WAITED:
        return
    kernels = {evidence.manifest.kernels.nodes.get(rank.node, rank.node) for rank in evidence.job.ranks}
    shared = len(kernels) == 1 < len(evidence.job.nodes)
    split = evidence.split
    stretched = np.clip(split.computing - np.quantile(split.computing, 0.05), 0, None)
    even = split.behind.sum(axis=0) + split.held.sum(axis=0)
    cost = stretched + even + min(1.0, waited) * evidence.idle
    most = waited * split.total.sum()  # nobody waited longer than that
    yield Cost(
        cause="processor",
        place="the hosts' one machine" if shared else host,
        hosts=() if shared else (host,),
        seconds=cost * min(1.0, most / cost.sum()) if cost.any() else cost,
        of="both",
        evidence=(f"threads of ranks waited {waited:.0%} of the window for processors that other work used",),
        strength=waited / WAITED,
    )
