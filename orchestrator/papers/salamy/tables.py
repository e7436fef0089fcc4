"""Build the tables of a study's page that stand in the thesis, too: ours beside hers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.compare.curves import NO_TRAFFIC, Series
from orchestrator.analysis.traffic import congestion as shared
from orchestrator.papers.salamy.published import Curve, Point, Salamy
from orchestrator.papers.salamy.repeated import time_at
from orchestrator.report.study.content import (
    NOTHING,
    Comparison,
    Rows,
    Section,
    Table,
    apart,
    gbps,
    judged,
    mb,
    not_measured,
    off,
    seconds,
    span,
)

if TYPE_CHECKING:
    from orchestrator.papers.salamy.model import Analysed

HEAVY_SHARE = 0.94  # of the capacity: the thesis leaves "very heavy" points out of Table 3.8 without saying which
HELD_UP_TO_GBPS = 18.2  # where a scale model should agree with the thesis
HELD = ("iperf", "websearch")
INTERVALS = (
    'over runs, where points share runs by the fits without one run each, and none ("no interval") of a single run: '
    "how much runs differ is not known; measure at least two repetitions"
)


def baseline(found: Sequence[Analysed], printed: Salamy) -> Table:
    """Compare Table 3.1: iterations without cross traffic."""
    rows: Rows = []
    for one in _first_of_models(found):
        point = one.series.points[0]
        theirs = next((m for m in printed.models if m.model == one.series.kind.model), None)
        if point.requested_bps > 0:
            continue
        ours_bps = shared.theory_bps(one.series.theory_bytes, point.mean_s)
        over_tcp = one.series.kind.transport
        if one.series.kind.ranks != printed.ring_hosts["A"]:
            theirs = None
        rows.append(
            (
                one.series.kind.name,
                mb(one.series.theory_bytes),
                seconds(point.mean_s),
                seconds(theirs.iteration_s) if theirs else NOTHING,
                off(point.mean_s, theirs.iteration_s if theirs else None),
                gbps(ours_bps),
                f"{theirs.bandwidth_gbps:.2f}" if theirs else NOTHING,
                over_tcp if over_tcp != "rdma" else "",
            )
        )
    head = ("curve", "theory (MB)", "ours (s)", "printed (s)", "difference", "ours (Gbit/s)", "printed", "transport")
    caption = (
        "Iterations without cross traffic, and the bandwidth that theory's volume takes on average (Table 3.1, RDMA, "
        "which prints four ranks alone). Emulated compute was fitted to these times with four ranks, to nothing else."
    )
    return Table("Without cross traffic", caption, head, rows)


def beside(found: Sequence[Analysed], printed: Salamy) -> Iterator[tuple[Analysed, Point, float]]:
    """Yield every printed point under traffic that a curve of ours is about, and our time there (NaN: beyond it)."""
    for theirs in printed.points:
        for one in found:
            kind = one.series.kind
            if (kind.model, kind.traffic) == (theirs.model, theirs.traffic) and theirs.traffic != NO_TRAFFIC:
                yield one, theirs, one.series.seconds_at(theirs.load_gbps * 1e9)


def points(found: Sequence[Analysed], printed: Salamy) -> Section:
    """Compare every iteration time that the thesis prints under cross traffic."""
    return Section(
        title="At the printed loads",
        text=(
            "Iteration times at the loads that the thesis prints. Ours are interpolated between measured points, in "
            "ln t, and never beyond them; loads are as captured. Judged are iperf and consistent web search up to "
            f"{HELD_UP_TO_GBPS:g} Gbit/s, with intervals over runs. Where the thesis' own fits of a curve give another "
            "time at the load of a point than its table prints, the margin is about the range of both; the difference "
            "is to the table."
        ),
        comparisons=tuple(_point(one, theirs, ours, printed) for one, theirs, ours in beside(found, printed)),
    )


def _point(one: Analysed, theirs: Point, ours: float, printed: Salamy) -> Comparison:
    over = one.series.kind.transport or "an unknown transport"
    what = f"{theirs.model}, {theirs.traffic} at {theirs.load_gbps:g} Gbit/s, over {over} (printed: {theirs.transport})"
    if math.isnan(ours) and not _held(theirs):
        return not_measured(what, f"{seconds(theirs.iteration_s)} s", source=theirs.source, why="not measured there")
    at = time_at(one.series, theirs.load_gbps * 1e9)
    if not _held(theirs):
        return apart(what, at, theirs.iteration_s, unit="s", source=theirs.source, why=_not_held(theirs))
    fitted = printed.fitted_s(theirs)
    shown = f"{seconds(theirs.iteration_s)} s"
    if fitted:
        shown += f"; {', '.join(map(seconds, fitted))} s by the thesis' own fits"
    return judged(
        printed.check("time"), what, at, theirs.iteration_s, unit="s", source=theirs.source, shown=shown, also=fitted
    )


def _not_held(theirs: Point) -> str:
    if theirs.traffic not in HELD:
        return "bursts do not scale with the link"
    return f"beyond {HELD_UP_TO_GBPS:g} Gbit/s, where a scale model leaves less of the link unused"


def fits(found: Sequence[Analysed], printed: Salamy) -> Table:
    """Compare eqs. 3.3 to 3.7, and Tables 3.9 and 3.10."""
    rows: Rows = []
    for one in found:
        theirs = _printed_fits(one.series, printed)
        for fit in one.candidates:
            beside = [curve for curve in theirs if curve.n == fit.n and fit.n_interval is None]
            rows.append(
                (
                    one.series.kind.name + ("" if one.whole else ", congested part"),
                    f"{fit.n:g}" if fit.n_interval is None else f"free: {_with(fit.n, fit.n_interval)}",
                    _with(fit.a_s, fit.a_interval_s),
                    _with(fit.b, fit.b_interval),
                    f"{fit.r2:.3f}",
                    f"{fit.left_out_error:.1%}" + (" (chosen)" if fit is one.fit else ""),
                    "; ".join(_fit_text(curve) for curve in beside) or NOTHING,
                )
            )
    head = ("curve", "n", "A (s)", "B", "R2", "error of a left-out point", "printed")
    caption = (
        "t = A exp(B / (C - load)^n), C the link's capacity, rates in Gbit/s, least squares of ln t (eq. 3.7); 95 % "
        f"intervals {INTERVALS}. Chosen is the n that predicts points best that were left out of its fit."
    )
    return Table("Fits", caption, head, rows)


def congestion(found: Sequence[Analysed], printed: Salamy) -> Table:
    """Compare Tables 3.2, 3.4 and 3.6: congestion points."""
    rows: Rows = []
    for one in found:
        kind, onset = one.series.kind, one.point.onset
        theirs = next(
            (p for p in printed.congestion_points if (p.model, p.traffic) == (kind.model, kind.traffic)), None
        )
        if kind.traffic == NO_TRAFFIC:
            continue
        rows.append(
            (
                kind.name,
                f"{gbps(onset.crossing_bps)}, point at {gbps(onset.load_bps)}" if onset else one.point.why,
                f"{span(one.point.over_rules)} ({one.point.found[0]:.0%} of rules)" if one.point.found[0] else NOTHING,
                span(one.point.over_draws),
                f"{mb(onset.volume_bytes)} ({off(onset.volume_bytes, one.series.theory_bytes)})" if onset else NOTHING,
                f"{theirs.load_gbps:g}" if theirs and theirs.load_gbps else NOTHING,
                f"{theirs.measured_mb or NOTHING} (+{theirs.over_theory_pct:g} %)" if theirs else NOTHING,
            )
        )
    rule = shared.RULE
    head = (
        "curve",
        "ours (Gbit/s)",
        "over rules",
        "over the data",
        "volume (MB, over theory)",
        "printed (Gbit/s)",
        "printed volume",
    )
    caption = (
        f"Where the flat line meets the tangent through the first {rule.tangent_points} points above {rule.above:g} "
        "times the lowest time (appendix A.2; the rule was fixed beforehand). The thesis drew it by eye. Over rules: "
        f"lowest and highest of {len(shared.RULES)} rules; over the data: 95 % when the means vary by their errors."
    )
    return Table("Congestion points", caption, head, rows)


def most_congested(found: Sequence[Analysed], printed: Salamy) -> Table:
    """Compare Tables 3.3, 3.5 and 3.7: the most congested points."""
    rows: Rows = []
    for one in found:
        kind, ours = one.series.kind, shared.most_congested(one.series.curve)
        theirs = next((p for p in printed.most_congested if (p.model, p.traffic) == (kind.model, kind.traffic)), None)
        if ours is None or kind.traffic == NO_TRAFFIC:
            continue
        rows.append(
            (
                kind.name,
                gbps(ours.load_bps),
                gbps(ours.needed_bps),
                gbps(ours.used_bps),
                f"{25 - theirs.used_gbps:.2f}" if theirs else NOTHING,
                f"{theirs.needed_gbps:g}" if theirs else NOTHING,
                f"{theirs.used_gbps:g}" if theirs else NOTHING,
            )
        )
    head = ("curve", "our load", "needed", "left", "printed load", "needed", "left")
    caption = "Gbit/s at the highest load of each curve: needed by theory for the time measured, and left on the link."
    return Table("The most congested point", caption, head, rows)


def spare(found: Sequence[Analysed], printed: Salamy) -> Table:
    """Compare Table 3.8: spare capacity."""
    rows: Rows = []
    for one in found:
        kind = one.series.kind
        ours = shared.spare_bps(one.series.curve, one.point, up_to_bps=HEAVY_SHARE * one.series.capacity_bps)
        theirs = next((p for p in printed.spare_capacity if (p.model, p.traffic) == (kind.model, kind.traffic)), None)
        if kind.traffic != NO_TRAFFIC and not math.isnan(ours):
            rows.append((kind.name, gbps(ours), f"{theirs.spare_gbps:.2f}" if theirs else NOTHING))
    caption = (
        f"Gbit/s left and not needed, mean over the points from the congestion point on (all under load where there is "
        f"none) up to {HEAVY_SHARE:.0%} of the capacity (Table 3.8)."
    )
    return Table("Spare capacity", caption, ("curve", "ours", "printed"), rows)


def transports(found: Sequence[Analysed], printed: Salamy) -> Table:
    """Compare Table 3.9; only where the same was measured over both transports."""
    rows: Rows = []
    both: dict[tuple[Any, ...], dict[str, Analysed]] = {}
    for one in found:
        kind = one.series.kind
        both.setdefault((kind.model, kind.traffic, kind.ranks, kind.workload, kind.differs), {})[kind.transport] = one
    for transports in both.values():
        if {"tcp", "rdma"} <= transports.keys():
            for name in ("rdma", "tcp"):
                one = transports[name]
                theirs = "; ".join(_fit_text(c) for c in _printed_fits(one.series, printed) if c.transport == name)
                ours = f"{one.fit.a_s:.3f} exp({one.fit.b:.2f} / (C - load)^{one.fit.n:.3g})" if one.fit else NOTHING
                rows.append((one.series.kind.name, ours, theirs or NOTHING))
    return Table(
        "TCP against RDMA", "Fits of the same training over both (Table 3.9).", ("curve", "ours", "printed"), rows
    )


def _printed_fits(series: Series, printed: Salamy) -> list[Curve]:
    return [c for c in printed.fits if (c.model, c.traffic) == (series.kind.model, series.kind.traffic)]


def _first_of_models(found: Sequence[Analysed]) -> list[Analysed]:
    first: dict[tuple[Any, ...], Analysed] = {}
    for one in found:
        kind = one.series.kind
        first.setdefault((kind.model, kind.ranks, kind.transport, kind.workload, kind.differs), one)
    return list(first.values())


def is_near(ours: float, theirs: Point, printed: Salamy) -> bool:
    """Return whether our time at a printed load is within the margin of what the thesis gives there."""
    bounds = [printed.check("time").bounds(given) for given in (theirs.iteration_s, *printed.fitted_s(theirs))]
    return _held(theirs) and min(low for low, _ in bounds) <= ours <= max(high for _, high in bounds)


def _held(theirs: Point) -> bool:
    """Return whether a scale model should agree with the thesis there."""
    return theirs.traffic in HELD and theirs.load_gbps <= HELD_UP_TO_GBPS


def _fit_text(curve: Curve) -> str:
    r2 = f", R2 {curve.r2:g}" if curve.r2 is not None else ""
    return f"A {curve.a_s:g}, B {curve.b:g}, n {curve.n:g}{r2} ({curve.transport}, {curve.source})"


def _with(value: float, interval: tuple[float, float]) -> str:
    bounds = "no interval" if math.isnan(interval[0]) else f"{interval[0]:.3g} to {interval[1]:.3g}"
    return f"{value:.3g} ({bounds})"
