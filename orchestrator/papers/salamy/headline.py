"""Compare the thesis' main numbers: model sizes, slow-downs, speed-ups, scatter, use of the link."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.analysis.compare.curves import NO_TRAFFIC, CurvePoint, Series
from orchestrator.analysis.stats import fits
from orchestrator.analysis.stats.agreement import over_runs
from orchestrator.analysis.stats.statistics import UNKNOWN
from orchestrator.analysis.traffic import congestion
from orchestrator.papers.salamy.published import Factor, Salamy, Scatter, SquareFit
from orchestrator.report.study.content import Comparison, Section, apart, judged

if TYPE_CHECKING:
    from orchestrator.papers.salamy.model import Analysed

LOW, HIGH = 0.35, 0.75  # of the link: loads up to the first are low, from the second on high; Fig 3-5 has 30 and 80 %
BURSTS = "bursts do not scale with the link, and are held to nothing"
VARIANCE = "of what is not printed; here of all iterations of a point, over their mean (s)"
TAIL = "the average over points, of which the thesis has more than a hundred iterations each"


def sections(found: Sequence[Analysed], printed: Salamy) -> tuple[Section, ...]:
    """Return all sections; a number without a measurement cannot be compared."""
    series = [one.series for one in found]
    return (
        Section(title="Table 2.1: sizes of the models", comparisons=tuple(_sizes(series, printed))),
        Section(
            title="Equation 3.6: fits with the square beside bursts",
            text="R2 of t = A exp(B / (C - load)^2) over all points of a curve, in ln t.",
            comparisons=tuple(_square(series, fit) for fit in printed.square_fits),
        ),
        Section(
            title="Slow-downs and what a better use of the link would gain",
            text=(
                "Slow-down: the mean at a load over that at the lowest load of the curve. Speed-up: the mean over the "
                "time that theory's volume takes at all of the rate that the load leaves. Both between measured points."
            ),
            comparisons=(
                *(_factor("slow-down", slowdown, series, one) for one in printed.slowdowns),
                *(_factor("speed-up", speedup, series, one) for one in printed.speedups),
                _utilization(series, printed),
            ),
        ),
        Section(
            title="Scatter of iterations",
            text=f"Averages over points at up to {LOW:.0%} of the link (low) and from {HIGH:.0%} on (high).",
            comparisons=tuple(_scatter(series, one) for one in printed.scatter),
        ),
    )


def slowdown(of: Series, load_bps: float) -> float:
    """Return the mean at a load over that at the lowest load; NaN where the load was not reached."""
    return of.seconds_at(load_bps) / of.points[0].mean_s if of.points else math.nan


def speedup(of: Series, load_bps: float) -> float:
    """Return the speed-up of an iteration that would use all that the load leaves; NaN where it was not reached."""
    return of.seconds_at(load_bps) * (of.capacity_bps - load_bps) / (of.theory_bytes * 8)


def variance(point: CurvePoint) -> float:
    """Return the variance of all iterations of a point over their mean, in seconds; NaN of a single one."""
    seconds = np.concatenate(point.seconds)
    return float(np.var(seconds, ddof=1) / np.mean(seconds)) if len(seconds) > 1 else math.nan


def tail(point: CurvePoint) -> float:
    """Return the share by which the 99th percentile exceeds the mean."""
    return point.p99_s / point.mean_s - 1


CATALOG = "what is trained here beside a table: nothing is measured"
RISES = "whatever grows with the load has a high R2: the form is judged against others"


def _sizes(series: Sequence[Series], printed: Salamy) -> Iterator[Comparison]:
    for shape in printed.shapes:
        mine = next((one for one in series if one.kind.model == shape.model), None)
        ours = (
            math.nan if mine is None else float(round(mine.theory_bytes / congestion.theory_bytes(1, mine.kind.ranks)))
        )
        what = f"parameters of {shape.model}"
        yield apart(what, ours, shape.parameters, source=shape.source, why=shape.note or CATALOG)


def _square(series: Sequence[Series], theirs: SquareFit) -> Comparison:
    mine = [one for one in _of(series, "websearch-burst") if theirs.model in ("", one.kind.model)]
    found = [fits.fit(of.load_bps, of.seconds, capacity_bps=of.capacity_bps, n=2) for of in (one.curve for one in mine)]
    known = [fit.r2 for fit in found if fit is not None]
    what = f"R2, {theirs.model or f'mean over models ({len(known)})'}"
    return apart(what, float(np.mean(known)) if known else math.nan, theirs.r2, source=theirs.source, why=RISES)


def _factor(
    name: str, work_out: Callable[[Series, float], float], series: Sequence[Series], theirs: Factor
) -> Comparison:
    mine = [one for one in _of(series, theirs.traffic) if one.kind.model == theirs.model]
    known = [value for one in mine if not math.isnan(value := work_out(one, theirs.load_gbps * 1e9))]
    what = f"{name} of {theirs.model}, {theirs.traffic} at {theirs.load_gbps:g} Gbit/s"
    why = f"{BURSTS}; the thesis: {theirs.note}" if theirs.note else BURSTS
    return apart(what, known[0] if known else math.nan, theirs.times, unit="times", source=theirs.source, why=why)


def _scatter(series: Sequence[Series], theirs: Scatter) -> Comparison:
    points = [
        point
        for one in series
        if one.kind.traffic != NO_TRAFFIC and theirs.traffic in ("", one.kind.traffic)
        for point in one.points
        if _is(theirs.load, point.load_bps / one.capacity_bps)
    ]
    values = [(variance if theirs.what == "variance" else tail)(point) for point in points]
    known = [value for value in values if not math.isnan(value)]
    quantity = {"variance": "variance over the mean", "p99": "99th percentile above the mean"}[theirs.what]
    what = f"{quantity}, {theirs.load} loads{f', {theirs.traffic}' if theirs.traffic else ''}, {len(known)} points"
    return apart(
        what,
        100 * float(np.mean(known)) if known else math.nan,
        100 * theirs.share,
        unit="%",
        source=theirs.source,
        why=VARIANCE if theirs.what == "variance" else TAIL,
    )


def _is(load: str, share: float) -> bool:
    return 0 < share <= LOW if load == "low" else share >= HIGH


def _utilization(series: Sequence[Series], printed: Salamy) -> Comparison:
    (theirs,) = printed.utilization
    used = [
        over_runs(link.sent_bps / one.capacity_bps for link in point.links)
        for one in _of(series, "websearch-burst")
        for point in one.points
        if point.links
    ]
    return judged(
        printed.check("utilization"),
        "highest use of the bottleneck beside bursts",
        max(used, key=lambda of: of.value, default=UNKNOWN),
        theirs.share,
        source=theirs.source,
    )


def _of(series: Sequence[Series], traffic: str) -> list[Series]:
    return [one for one in series if one.kind.traffic == traffic]
