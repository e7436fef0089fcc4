"""Compare causes of differing times, the order of kinds of traffic, and repeated windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.analysis.compare import curves
from orchestrator.analysis.compare.curves import NO_TRAFFIC, Check, CurvePoint, Series
from orchestrator.analysis.stats import agreement
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic import congestion
from orchestrator.papers.salamy.published import Point, Salamy
from orchestrator.papers.salamy.repeated import times_at
from orchestrator.papers.salamy.tables import beside, is_near
from orchestrator.report.study.content import NOTHING, Comparison, Rows, Section, Table, claimed, gbps, off, seconds
from orchestrator.report.tables import percent

if TYPE_CHECKING:
    from orchestrator.papers.salamy.model import Analysed

NEXT_TO_BPS = 1e9  # a queue is told of a printed load where a point was measured this close to it
ORDER_AT_GBPS = 20.0  # 80 % of the link, where the thesis compares kinds of traffic
ORDER = ("iperf", "websearch", "websearch-burst")  # from the least to the most harmful: section 3.4.2


def causes(found: Sequence[Analysed], printed: Salamy) -> Table:
    """Show, where times are not expected to agree, how much of the link ours and the thesis' left unused."""
    rows: Rows = []
    for one, theirs, ours in beside(found, printed):
        if is_near(ours, theirs, printed) or math.isnan(ours):
            continue
        series = one.series
        left_bps = series.capacity_bps - theirs.load_gbps * 1e9
        spare_bps = left_bps - congestion.theory_bps(series.theory_bytes, ours)
        their_spare_bps = left_bps - congestion.theory_bps(series.theory_bytes, theirs.iteration_s)
        rows.append(
            (
                f"{theirs.model}, {theirs.traffic}",
                f"{theirs.load_gbps:g}",
                off(ours, theirs.iteration_s),
                gbps(spare_bps),
                gbps(their_spare_bps),
                *_queue(series, theirs.load_gbps * 1e9),
                f"{series.kind.transport or 'unknown'}, {theirs.transport}",
                _fitted(theirs, printed),
            )
        )
    head = (
        "curve",
        "load (Gbit/s)",
        "difference",
        "ours left unused",
        "theirs",
        "link idle",
        "queue (ms)",
        "drops/s",
        "transport: ours, theirs",
        "the thesis' own fit there (s)",
    )
    caption = (
        "Unused (Gbit/s): what the load leaves of the link, less what theory's volume takes in the iteration time "
        "(section 3.4; Table 3.8 averages it). Link idle (Gbit/s), queue and drops are ours, measured in the queue "
        "that training and cross traffic share, at the measured point next to that load: what is unused and not idle "
        "are headers, acknowledgements and what was sent twice. A training that leaves less unused than the thesis' is "
        "faster than hers by just that; where both leave the same, times agree."
    )
    return Table("Where the times differ, and why", caption, head, rows)


def _queue(series: Series, load_bps: float) -> tuple[str, str, str]:
    point = _next_to(series, load_bps)
    if point is None or not point.links:
        return NOTHING, NOTHING, NOTHING
    count = len(point.links)
    sent = sum(link.sent_bps for link in point.links) / count
    waiting = sum(link.waiting_s for link in point.links) / count
    drops = sum(link.drops_per_s for link in point.links) / count
    return gbps(max(0.0, series.capacity_bps - sent)), f"{waiting * 1e3:.1f}", f"{drops:.0f}"


def _next_to(series: Series, load_bps: float) -> CurvePoint | None:
    near = min(series.points, key=lambda point: abs(point.load_bps - load_bps), default=None)
    return near if near is not None and abs(near.load_bps - load_bps) <= NEXT_TO_BPS else None


def _fitted(theirs: Point, printed: Salamy) -> str:
    """Return the times of the thesis' own fits at one of its points, where they name the transport."""
    values = [
        f"{curve.seconds_at(theirs.load_gbps, printed.capacity_gbps):.3g}"
        for curve in printed.fits
        if (curve.model, curve.traffic, curve.transport) == (theirs.model, theirs.traffic, theirs.transport)
    ]
    return ", ".join(values) or NOTHING


def order(found: Sequence[Analysed], printed: Salamy) -> Section:
    """Compare kinds of cross traffic at one high load, from the least to the most harmful."""
    rows: Rows = []
    comparisons: list[Comparison] = []
    for model, differs in dict.fromkeys((one.series.kind.model, one.series.kind.differs) for one in found):
        mine = {
            one.series.kind.traffic: one.series
            for one in found
            if (one.series.kind.model, one.series.kind.differs) == (model, differs) and one.series.kind.traffic in ORDER
        }
        if len(mine) < 2:
            continue
        reached = min(series.curve.load_bps[-1] for series in mine.values()) / 1e9
        load_gbps = min(ORDER_AT_GBPS, math.floor(reached * 10) / 10)
        times = {traffic: series.seconds_at(load_gbps * 1e9) for traffic, series in mine.items()}
        ours = sorted((value, traffic) for traffic, value in times.items() if not math.isnan(value))
        expected = [traffic for traffic in ORDER if traffic in times]
        called = f"{model} ({differs})" if differs else model
        rows.append(
            (
                called,
                f"{load_gbps:g}",
                " < ".join(f"{traffic} {seconds(value)}" for value, traffic in ours),
                " < ".join(expected),
                "; ".join(_their_times(model, load_gbps, printed)) or NOTHING,
            )
        )
        comparisons += [
            claimed(
                printed.check("order"),
                f"{called} at {load_gbps:g} Gbit/s: time beside {high} over that beside {low}",
                agreement.ratio(*(times_at(mine[traffic], load_gbps * 1e9) for traffic in (high, low))),
                printed="longer",
                source="section 3.4.2, Fig 3-6",
            )
            for low, high in itertools.pairwise(expected)
        ]
    head = ("model", "load (Gbit/s)", "ours (s)", "printed order", "the thesis' own fits there (s)")
    caption = (
        "Iteration times at one load, the least harmful kind of cross traffic first (section 3.4.2, Fig 3-6). iperf is "
        "measured with four ranks, web search with three, as in the thesis."
    )
    table = Table("Order of the kinds of traffic", caption, head, rows)
    return Section(title=table.title, comparisons=tuple(comparisons), tables=(table,))


def _their_times(model: str, load_gbps: float, printed: Salamy) -> Iterator[str]:
    for curve in printed.fits:
        if curve.model == model:
            fitted_s = curve.seconds_at(load_gbps, printed.capacity_gbps)
            yield f"{curve.traffic} over {curve.transport} {fitted_s:.3g}"


def same(found: Sequence[Check]) -> Table:
    """Compare windows among others with the same alone in a run of its own."""
    rows: Rows = [
        (
            f"{one.kind.model}, {one.kind.traffic}" if one.kind.traffic != NO_TRAFFIC else one.kind.model,
            gbps(one.load_bps),
            _estimate(one.among),
            _estimate(one.alone),
            off(one.alone.value, one.among.value),
        )
        for one in found
    ]
    together = curves.agreement(found)
    interval = (
        "needs two checks"
        if math.isnan(together.low)
        else f"{percent(together.low - 1)} to {percent(together.high - 1)}"
    )
    head = ("curve", "load (Gbit/s)", "while ranks stayed up (s)", "in a fresh run (s)", "difference")
    caption = (
        "Ranks stayed up while windows of different traffic followed one another; of each curve one point was measured "
        "again in a run of its own. Medians, with 95 % intervals within each run. The mean difference over all checks, "
        f"with the check as the unit, has a 95 % interval: {interval}."
    )
    return Table("Windows against fresh runs", caption, head, rows)


def _estimate(of: Estimate) -> str:
    return f"{seconds(of.value)} ({'unknown' if math.isnan(of.low) else f'{seconds(of.low)} to {seconds(of.high)}'})"
