"""Compare the quality of fits, causes of differing times, the order of kinds of traffic, and repeated windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.analysis.compare import curves
from orchestrator.analysis.compare.curves import NO_TRAFFIC, Check, CurvePoint, Series
from orchestrator.analysis.stats import fits
from orchestrator.analysis.stats.statistics import TAIL, Estimate, student_t
from orchestrator.analysis.traffic import congestion
from orchestrator.papers.salamy.published import Point, Salamy
from orchestrator.papers.salamy.tables import beside, held
from orchestrator.report.study.content import (
    NOTHING,
    WITHIN,
    Comparison,
    Rows,
    Section,
    Table,
    gbps,
    holds,
    not_measured,
    off,
    seconds,
)
from orchestrator.report.tables import percent

if TYPE_CHECKING:
    from orchestrator.papers.salamy.model import Analysed

FITTED_WELL = 0.95  # R2 that the models which the thesis fits as a whole should reach
WITHOUT_FLAT = ("bert-large", "vgg16")
EXPONENTS = {"iperf": 1.0, "websearch": 0.5}  # eqs. 3.3 and 3.5
NEXT_TO_BPS = 1e9  # a queue is told of a printed load where a point was measured this close to it
ORDER_AT_GBPS = 20.0  # 80 % of the link, where the thesis compares kinds of traffic
ORDER = ("iperf", "websearch", "websearch-burst")  # from the least to the most harmful: section 3.4.2


def fitted(found: Sequence[Analysed], printed: Salamy) -> Section:
    """Compare how well the thesis' fits describe our curves of the models that it fits as a whole."""
    whole = [one for one in found if one.fit is not None and one.series.kind.model in WITHOUT_FLAT]
    return Section(
        title="How well the thesis' fits hold",
        text="R2 of a fit with the thesis' exponent, over its range of loads (eqs. 3.3 and 3.5).",
        comparisons=tuple(_fitted_well(one, printed) for one in whole if one.series.kind.traffic in EXPONENTS),
    )


def _fitted_well(one: Analysed, printed: Salamy) -> Comparison:
    """Compare the fit with the thesis' exponent over its range of loads, and over all points."""
    kind, of = one.series.kind, one.series.curve
    n = EXPONENTS[kind.traffic]
    highest = next(p for p in printed.most_congested if (p.model, p.traffic) == (kind.model, kind.traffic))
    up_to_gbps = printed.capacity_gbps - highest.used_gbps
    inside = of.load_bps <= up_to_gbps * 1e9
    hers = fits.fit(of.load_bps[inside], of.seconds[inside], capacity_bps=of.capacity_bps, n=n)
    bound = f"at least {FITTED_WELL:g}"
    what, source = f"R2 of {kind.model}, {kind.traffic}", "eq 3.3" if kind.traffic == "iperf" else "eq 3.5"
    if hers is None:
        return not_measured(what, bound, source=source, why=f"too few points up to {up_to_gbps:g} Gbit/s")
    all_of_them = next((fit for fit in one.candidates if fit.n == n and fit.n_interval is None), None)
    text = (
        f"{hers.r2:.3f} with the thesis' n {n:g} up to its highest load, {up_to_gbps:g} Gbit/s ({hers.points} points)"
    )
    if all_of_them is not None and all_of_them.points > hers.points:
        text += f"; {all_of_them.r2:.3f} over all {all_of_them.points}"
    if one.fit is not None:
        text += f"; {one.fit.r2:.3f} with n {one.fit.n:.3g}, which predicts best"
    return holds(what, true=hers.r2 >= FITTED_WELL, ours=text, printed=bound, source=source, why=bound)


def causes(found: Sequence[Analysed], printed: Salamy) -> Table:
    """Show, where times are not expected to agree, how much of the link ours and the thesis' left unused."""
    rows: Rows = []
    for one, theirs, ours in beside(found, printed):
        if held(ours, theirs, printed) == WITHIN or math.isnan(ours):
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


def order(found: Sequence[Analysed], printed: Salamy) -> Table:
    """Compare kinds of cross traffic at one high load, from the least to the most harmful."""
    rows: Rows = []
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
        rows.append(
            (
                f"{model} ({differs})" if differs else model,
                f"{load_gbps:g}",
                " < ".join(f"{traffic} {seconds(value)}" for value, traffic in ours),
                " < ".join(expected),
                _ordered(mine, load_gbps * 1e9, expected),
                "; ".join(_their_times(model, load_gbps, printed)) or NOTHING,
            )
        )
    head = ("model", "load (Gbit/s)", "ours (s)", "printed order", "order", "the thesis' own fits there (s)")
    caption = (
        "Iteration times at one load, the least harmful kind of cross traffic first (section 3.4.2, Fig 3-6); two that "
        "differ by less than their intervals' half widths, added in squares, are not distinct. iperf is measured "
        "with four ranks, web search with three, as in the thesis."
    )
    return Table("Order of the kinds of traffic", caption, head, rows)


def _ordered(mine: Mapping[str, Series], load_bps: float, expected: Sequence[str]) -> str:
    """Judge whether the kinds of traffic stand in the expected order, as far as errors of the means allow."""
    doubts = []
    for low, high in itertools.pairwise(expected):
        difference = mine[high].seconds_at(load_bps) - mine[low].seconds_at(load_bps)
        error = math.hypot(*(_half_width(mine[traffic], load_bps) for traffic in (low, high)))
        if not abs(difference) > error:
            doubts.append(f"{low} and {high}")
        elif difference < 0:
            return "ANOTHER"
    return f"cannot tell apart: {'; '.join(doubts)}" if doubts else "as printed"


def _half_width(series: Series, load_bps: float) -> float:
    """Return half the 95 % interval of the mean next to a load; NaN where it is not known."""
    point = min(series.points, key=lambda point: abs(point.load_bps - load_bps))
    return student_t(1 - TAIL, point.freedom) * point.error_s


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
