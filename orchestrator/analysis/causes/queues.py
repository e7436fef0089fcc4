"""Name causes at queues for which training waits: slow links, others who share a link, flows that collide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.causes import ports as measured
from orchestrator.analysis.causes.evidence import Cost, Evidence, share_of_rate
from orchestrator.analysis.causes.ports import Port
from orchestrator.analysis.causes.sharing import shared
from orchestrator.core.units import rate_text

Floats = npt.NDArray[np.float64]

QUEUED = 0.4  # of the exposed time a port must hold a queue to be what training waits for
BESIDE = 0.2  # likewise of a port beside another for which it waits: both are full at once
BEYOND = 2.0  # times the usual queue of the other ports
FREE_RATE = 0.85  # a queue that never leaves faster than this share of its link's rate is on a slower link
PEAK_STEPS = 5  # a slow link is slow in any so many steps; a short queue that is full now and then leaves at full rate
HIGHEST = 0.98  # quantile of the rates of a queue: what it can leave at
OTHERS = 0.08  # of a link's rate: others that take more of it are named
COLLIDED = 0.2  # of the time for which a queue is waited for, in which flows collide


@dataclass(frozen=True, slots=True)
class _Claim:
    """A cost at a port, and the share of each step that it claims; claims of one name and place are one cause."""

    name: str
    cost: Cost
    steps: Floats


def at_queues(evidence: Evidence) -> tuple[tuple[Cost, ...], tuple[Port, ...]]:
    """Return what queues cost, and the ports that are full.

    Once a port is found, the next is looked for among the others. Time in which several are full is shared.
    """
    full: list[Port] = []
    claims: list[list[_Claim]] = []
    left = _known(evidence)
    while (port := _fullest(evidence, left, beside=bool(full))) is not None:
        left.remove(port)
        found = list(_claims(evidence, port))
        if found or _rate_of_queue(evidence, port)[0] >= FREE_RATE:
            full.append(port)
            claims.append(found)
    whole = np.array([np.sum([claim.steps for claim in found], axis=0) for found in claims if found])
    costs: dict[tuple[str, ...], Cost] = {}
    for found, all_of_port, given in zip(filter(None, claims), whole, shared(whole), strict=True):
        part = np.divide(given, all_of_port, out=np.zeros_like(given), where=all_of_port > 0)
        for claim in found:
            seconds = evidence.seconds(claim.steps * part)
            key = claim.cost.cause, claim.name, *claim.cost.hosts
            first = costs.setdefault(key, claim.cost)
            costs[key] = replace(first, seconds=first.seconds + seconds)
    return tuple(costs.values()), tuple(full)


def _known(evidence: Evidence) -> list[Port]:
    known = [port for port in evidence.ports if port.carried is not None and port.backlog is not None]
    return known or [port for port in evidence.ports if port.carried is not None]


def _fullest(evidence: Evidence, known: Sequence[Port], *, beside: bool) -> Port | None:
    """Return the port whose queue training waits for, of those that nothing is known of yet; None: none stands out.

    Where no queue is sampled it is the port that carries packets for much longer than the others, of the sender where
    both ends of a hop do: whoever waits for it sends in bursts.
    """
    shares = [queued_share(evidence, port) for port in known]
    least = BESIDE if beside else QUEUED
    found = [
        (share, port)
        for port, share in zip(known, shares, strict=True)
        if share >= max(least, BEYOND * _usual_share(known, shares, port))
    ]
    sampled = any(port.backlog is not None for port in known)
    if beside and not sampled:
        return None  # the hop's other end, or one that waits for it
    return max(found, key=lambda one: (not sampled and one[1].direction == "out", one[0]), default=(0.0, None))[1]


def _usual_share(known: Sequence[Port], shares: Sequence[float], port: Port) -> float:
    """Return the median share of the other ports of a direction; 0 where these are too few."""
    same = [
        share
        for other, share in zip(known, shares, strict=True)
        if other.direction == port.direction and other is not port
    ]
    return float(np.median(same)) if len(same) > 1 else 0.0


def queued_share(evidence: Evidence, port: Port) -> float:
    """Return the share of the time in which training waits for the network, for which a port holds a queue."""
    exposed = evidence.axis.exposed
    whole = float(exposed.sum())
    return float((exposed * port.queued(evidence.mtu)).sum()) / whole if whole > 0 else 0.0


def _rate_of_queue(evidence: Evidence, port: Port) -> tuple[float, float]:
    """Return mean and highest rate at which a port's queue leaves, as shares of its link's."""
    queued = port.queued(evidence.mtu)
    weight = evidence.axis.exposed * queued
    if port.carried is None or not weight.any():
        return 0.0, 0.0
    rate = share_of_rate(port, measured.smoothed(port.carried))
    peaks = share_of_rate(port, measured.smoothed(port.carried, PEAK_STEPS))
    return float(np.average(rate, weights=weight)), float(np.quantile(peaks[queued], HIGHEST))


def _claims(evidence: Evidence, port: Port) -> Iterator[_Claim]:
    """Yield what a queue costs beyond the link's own rate: others who share it, a slower link, flows that collide."""
    queued = port.queued(evidence.mtu)
    carried = port.carried
    weight = evidence.axis.exposed * queued
    if carried is None or not weight.any():
        return
    rate = share_of_rate(port, measured.smoothed(carried))
    mean, highest = _rate_of_queue(evidence, port)
    what = "it carried" if port.backlog is None else "its queue held"
    waits = (
        f"{what} packets for {queued_share(evidence, port):.0%} of the time in which training waited for the network"
    )
    scale = evidence.manifest.topology.wire_scale
    whole = _rate(port.rate_bps * scale)
    none = np.zeros(len(evidence.passes.iteration))
    for name, values in port.others.items():
        part = share_of_rate(port, measured.smoothed(values))
        taken = float(np.average(part, weights=weight))
        if taken >= OTHERS:
            cost = Cost(
                cause="job" if any(name == job.name for job in evidence.manifest.jobs) else "load",
                place=f"{name} on {port.name}",
                hosts=(port.host,),
                seconds=none,
                of="network",
                evidence=(waits, f"{name} took {_rate(taken * port.rate_bps * scale)} of its {whole} then"),
                strength=taken / OTHERS,
            )
            yield _Claim(name, cost, np.where(queued, part, 0.0))
    if mean < FREE_RATE and highest < FREE_RATE:
        others = [one for one in evidence.ports if one is not port and one.direction == port.direction]
        fast = [float(np.quantile(share_of_rate(one, one.carried), 0.95)) for one in others if one.carried is not None]
        seen = f"; others reached {_rate(max(fast) * port.rate_bps * scale)}" if fast else ""
        cost = Cost(
            cause="link-rate",
            place=port.name,
            hosts=(port.host,),
            seconds=none,
            of="network",
            evidence=(waits, f"it left at {_rate(mean * port.rate_bps * scale)} of {whole}{seen}"),
            strength=FREE_RATE / max(mean, 0.01),
        )
        yield _Claim(port.name, cost, np.where(queued, 1 - rate, 0.0))
    elif port.collided is not None and (met := float(np.average(port.collided > 0, weights=weight))) >= COLLIDED:
        cost = Cost(
            cause="collision",
            place=port.name,
            hosts=(port.host,),
            seconds=none,
            of="network",
            evidence=(waits, f"for {met:.0%} of that, large flows shared it while another uplink of its leaf was idle"),
            strength=met / COLLIDED,
        )
        yield _Claim(port.name, cost, np.where(queued, port.collided, 0.0))


def _rate(bps: float) -> str:
    """Return a rate (bit/s) at full size, to three digits."""
    return rate_text(float(f"{bps:.3g}"))
