"""What links that are not the slowest could give away without a training slowing down."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.analysis.traffic import periodicity, traffic
from orchestrator.questions.captured import Captured, Floats, windows
from orchestrator.questions.iterations import chosen
from orchestrator.questions.registry import source
from orchestrator.questions.rows import Measured, Rows, by_run

GBIT, MB = 1e9, 1e6
_BINS_AN_ITERATION = 200  # in which sending is told from silence


class _Direction(NamedTuple):
    """One direction of a host's link in a window: bytes in bins of the training and of all else, on the wire."""

    host: str
    way: str  # out or in
    mine: Floats
    others: Floats
    rate_bps: float  # layer 2, at full size


@source
def slack(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return what each link has to carry while the slowest one carries its share: a row a direction, point and run.

    A ring moves at the pace of its slowest link; what the others have beyond that pace is oversupplied (Salamy 2022,
    chapter 5, future work ii). `host` and `way` ("out", "in") name the direction of a link that carries the first
    training: `rate_gbps` is its rate by the topology (not one that a condition sets), `others_gbps` what other traffic
    has of it, `carried_mb` what the training sends over it an iteration (layer 2), `busy_s` for how long, `share` how
    full it is meanwhile. `slowest` is the fullest direction; all others may take as long as that one takes:
    `needed_gbps` is what a link then has to carry, other traffic included, and `slack_pct` the rest of its rate.
    `seconds` is the mean iteration. Rates and sizes are at full size, means over the captured windows of a run.
    `columns`, `defaults` and `where` as of `volumes`.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        found: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}
        for one in windows(point):
            for direction, values in _directions(point, one):
                found.setdefault(direction, []).append((one.run.id, values))
        for (host, way), of in sorted(found.items()):
            rows += by_run(point, of, {**keys, "host": host, "way": way})
    return rows


def _directions(point: MeasuredPoint, one: Captured) -> list[tuple[tuple[str, str], dict[str, Any]]]:
    """Return the values of each direction of a window that carries the training."""
    seconds = float(one.window.iterations(point.job.name).seconds.mean())
    width_ns = _width_ns(one, seconds)
    found = []
    for link in _links(point, one, width_ns):
        sending = periodicity.busy(link.mine)
        if sending.any():
            full = float((link.mine + link.others)[sending].sum()) * 8 * one.run.scale
            busy_s = float(sending.sum()) * width_ns / 1e9
            found.append((link, busy_s, full / busy_s / link.rate_bps))
    if not found:
        return []
    slowest, slowest_s, _ = max(found, key=lambda each: each[2])
    rows = []
    for link, busy_s, share in found:
        bits = float(link.mine.sum()) * 8 * one.run.scale
        others_bps = float(link.others.mean()) * 8 * one.run.scale / (width_ns / 1e9)
        needed_bps = others_bps + bits / slowest_s
        values = {
            "rate_gbps": link.rate_bps / GBIT,
            "others_gbps": others_bps / GBIT,
            "carried_mb": bits / 8 / one.steps / MB,
            "busy_s": busy_s / one.steps,
            "share": share,
            "slowest": link is slowest,
            "needed_gbps": needed_bps / GBIT,
            "slack_pct": 100 * (1 - needed_bps / link.rate_bps),
            "seconds": seconds,
        }
        rows.append(((link.host, link.way), values))
    return rows


def _width_ns(one: Captured, seconds: float) -> int:
    """Return the width of bins, a multiple of the traffic's own."""
    least = one.traffic.width_ns
    return max(1, round(seconds * 1e9 / _BINS_AN_ITERATION / least)) * least


def _links(point: MeasuredPoint, one: Captured, width_ns: int) -> list[_Direction]:
    """Return both directions of every host's link that carries payload of the training."""
    seen, mine = one.traffic, traffic.of_job(one.traffic, point.job.name)
    rates = {link.host: point.manifest.topology.carries_bps(link.host) for link in point.manifest.topology.links}
    found = []
    for number, host in enumerate(seen.hosts):
        for way, ends in (("out", seen.src), ("in", seen.dst)):
            here = (ends == number) & (seen.src != seen.dst)
            if host in rates and int(seen.payload_bytes[here & mine].sum()) > 0:
                own, others = (
                    traffic.series(seen, np.asarray(of), width_ns=width_ns) for of in (here & mine, here & ~mine)
                )
                found.append(_Direction(host=host, way=way, mine=own, others=others, rate_bps=rates[host]))
    return found
