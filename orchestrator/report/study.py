"""The page that shows measured curves beside those of Salamy's thesis: every figure and table, and the difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.analysis import congestion, fits
from orchestrator.analysis.congestion import CongestionPoint
from orchestrator.analysis.curves import NO_TRAFFIC, Series
from orchestrator.analysis.fits import Fit
from orchestrator.analysis.published import Curve, Point, Salamy, salamy
from orchestrator.errors import StoreError
from orchestrator.report import page, study_figures

HEAVY_SHARE = 0.94  # of the capacity: the thesis leaves "very heavy" points out of Table 3.8 without saying which
HELD_TO, HELD_UP_TO_GBPS = 0.1, 18.2  # where a scale model should agree with the thesis
NOTHING = "-"
Rows = list[tuple[str, ...]]
Table = tuple[str, str, tuple[str, ...], Rows]  # title, caption, head, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """A curve with all that is worked out from it."""

    series: Series
    point: CongestionPoint
    part: congestion.Curve
    candidates: tuple[Fit, ...]
    fit: Fit | None

    @property
    def whole(self) -> bool:
        return len(self.part.seconds) == len(self.series.points)


def analysed(series: Series) -> Analysed:
    """Congestion point, congested part, and the fits of that part."""
    of = series.curve
    point = congestion.congestion_point(of)
    part = congestion.congested_part(of, point)
    found = fits.candidates(part.load_bps, part.seconds, capacity_bps=series.capacity_bps)
    return Analysed(series=series, point=point, part=part, candidates=found, fit=fits.chosen(found))


def render(measured: Sequence[Series], output: Path) -> Path:
    """Write the page, and its figures into `<output's stem>-figures` beside it; StoreError when it cannot."""
    if not measured:
        raise StoreError("no curve to show: none of these runs has a valid window with one job", hint="orch ls")
    printed = salamy()
    found = [analysed(series) for series in measured]
    return page.write("study.html", output, lambda folder: {
        "title": "Training beside cross traffic, and what is published",
        "source": printed.title,
        "curves": [one.series.kind.name for one in found],
        "scales": sorted({scale for one in found for scale in one.series.scales}),
        "emulated": any(one.series.emulated for one in found),
        "tcp": any(one.series.kind.transport == "tcp" for one in found),
        "pictures": study_figures.draw(found, printed, folder),
        "tables": tables(found, printed),
        "notes": [f"{p.model}, {p.traffic} at {p.load_gbps:g} Gbit/s: {p.note}" for p in printed.points if p.note],
    })  # fmt: skip


def tables(found: Sequence[Analysed], printed: Salamy) -> list[Table]:
    """Every table of the page that has a row."""
    made = [
        _baseline(found, printed), _points(found, printed), _fits(found, printed), _congestion(found, printed),
        _most_congested(found, printed), _spare(found, printed), _transports(found, printed),
    ]  # fmt: skip
    return [table for table in made if table[3]]


def _baseline(found: Sequence[Analysed], printed: Salamy) -> Table:
    rows: Rows = []
    for one in _first_of_models(found):
        point = one.series.points[0]
        theirs = next((m for m in printed.models if m.model == one.series.kind.model), None)
        if point.requested_bps > 0:
            continue
        ours_bps = congestion.theory_bps(one.series.theory_bytes, point.mean_s)
        over_tcp, ranks = one.series.kind.transport, one.series.kind.ranks
        rows.append((
            one.series.kind.name, _mb(one.series.theory_bytes), _seconds(point.mean_s),
            _seconds(theirs.iteration_s) if theirs else NOTHING,
            _off(point.mean_s, theirs.iteration_s if theirs else None),
            _gbps(ours_bps), f"{theirs.bandwidth_gbps:.2f}" if theirs and ranks == printed.ring_hosts["A"] else NOTHING,
            over_tcp if over_tcp != "rdma" else "",
        ))  # fmt: skip
    head = ("curve", "theory (MB)", "ours (s)", "printed (s)", "difference", "ours (Gbit/s)", "printed", "transport")
    caption = (
        "Iterations without cross traffic, and the bandwidth that theory's volume takes on average (Table 3.1, RDMA)."
    )
    return "Without cross traffic", caption, head, rows


def _points(found: Sequence[Analysed], printed: Salamy) -> Table:
    rows: Rows = []
    for theirs in printed.points:
        for one in found:
            kind = one.series.kind
            if (kind.model, kind.traffic) != (theirs.model, theirs.traffic):
                continue
            ours = one.series.seconds_at(theirs.load_gbps * 1e9)
            rows.append((
                f"{theirs.model}, {theirs.traffic}", f"{theirs.load_gbps:g}",
                _seconds(ours) if not math.isnan(ours) else "not measured there", _seconds(theirs.iteration_s),
                _off(ours, theirs.iteration_s),
                _held(ours, theirs), f"{kind.transport or 'unknown'}, {theirs.transport}", theirs.source,
            ))  # fmt: skip
    head = ("curve", "load (Gbit/s)", "ours (s)", "printed (s)", "difference", "held to 10 %",
            "transport: ours, theirs", "where")  # fmt: skip
    caption = (
        "Iteration times at the loads that the thesis prints. Ours are interpolated between measured points, in ln t, "
        f"and never beyond them; loads are as captured. Held to {HELD_TO:.0%} are iperf and consistent web search up "
        f"to {HELD_UP_TO_GBPS:g} Gbit/s; all else is shown without a tolerance."
    )
    return "At the printed loads", caption, head, rows


def _fits(found: Sequence[Analysed], printed: Salamy) -> Table:
    rows: Rows = []
    for one in found:
        theirs = _printed_fits(one.series, printed)
        for fit in one.candidates:
            beside = [curve for curve in theirs if curve.n == fit.n and fit.n_interval is None]
            rows.append((
                one.series.kind.name + ("" if one.whole else ", congested part"),
                f"{fit.n:g}" if fit.n_interval is None else f"free: {_with(fit.n, fit.n_interval)}",
                _with(fit.a_s, fit.a_interval_s), _with(fit.b, fit.b_interval), f"{fit.r2:.3f}",
                f"{fit.left_out_error:.1%}" + (" (chosen)" if fit is one.fit else ""),
                "; ".join(_fit_text(curve) for curve in beside) or NOTHING,
            ))  # fmt: skip
    head = ("curve", "n", "A (s)", "B", "R2", "error of a left-out point", "printed")
    caption = (
        "t = A exp(B / (C - load)^n), C the link's capacity, rates in Gbit/s, least squares of ln t (eq. 3.7); 95 % "
        "intervals. Chosen is the n that predicts points best that were left out of its fit."
    )
    return "Fits", caption, head, rows


def _congestion(found: Sequence[Analysed], printed: Salamy) -> Table:
    rows: Rows = []
    for one in found:
        kind, onset = one.series.kind, one.point.onset
        theirs = next(
            (p for p in printed.congestion_points if (p.model, p.traffic) == (kind.model, kind.traffic)), None
        )
        if kind.traffic == NO_TRAFFIC:
            continue
        rows.append((
            kind.name,
            f"{_gbps(onset.crossing_bps)}, point at {_gbps(onset.load_bps)}" if onset else one.point.why,
            f"{_range(one.point.over_rules)} ({one.point.found[0]:.0%} of rules)" if one.point.found[0] else NOTHING,
            _range(one.point.over_draws),
            f"{_mb(onset.volume_bytes)} ({_off(onset.volume_bytes, one.series.theory_bytes)})" if onset else NOTHING,
            f"{theirs.load_gbps:g}" if theirs and theirs.load_gbps else NOTHING,
            f"{theirs.measured_mb or NOTHING} (+{theirs.over_theory_pct:g} %)" if theirs else NOTHING,
        ))  # fmt: skip
    rule = congestion.RULE
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
        f"lowest and highest of {len(congestion.RULES)} rules; over the data: 95 % when the means vary by their errors."
    )
    return "Congestion points", caption, head, rows


def _most_congested(found: Sequence[Analysed], printed: Salamy) -> Table:
    rows: Rows = []
    for one in found:
        kind, ours = one.series.kind, congestion.most_congested(one.series.curve)
        theirs = next((p for p in printed.most_congested if (p.model, p.traffic) == (kind.model, kind.traffic)), None)
        if ours is None or kind.traffic == NO_TRAFFIC:
            continue
        rows.append((
            kind.name, _gbps(ours.load_bps), _gbps(ours.needed_bps), _gbps(ours.used_bps),
            f"{25 - theirs.used_gbps:.2f}" if theirs else NOTHING, f"{theirs.needed_gbps:g}" if theirs else NOTHING,
            f"{theirs.used_gbps:g}" if theirs else NOTHING,
        ))  # fmt: skip
    head = ("curve", "our load", "needed", "left", "printed load", "needed", "left")
    caption = "Gbit/s at the highest load of each curve: needed by theory for the time measured, and left on the link."
    return "The most congested point", caption, head, rows


def _spare(found: Sequence[Analysed], printed: Salamy) -> Table:
    rows: Rows = []
    for one in found:
        kind = one.series.kind
        ours = congestion.spare_bps(one.series.curve, one.point, up_to_bps=HEAVY_SHARE * one.series.capacity_bps)
        theirs = next((p for p in printed.spare_capacity if (p.model, p.traffic) == (kind.model, kind.traffic)), None)
        if kind.traffic != NO_TRAFFIC and not math.isnan(ours):
            rows.append((kind.name, _gbps(ours), f"{theirs.spare_gbps:.2f}" if theirs else NOTHING))
    caption = (
        f"Gbit/s left and not needed, mean over the points from the congestion point on (all under load where there is "
        f"none) up to {HEAVY_SHARE:.0%} of the capacity (Table 3.8)."
    )
    return "Spare capacity", caption, ("curve", "ours", "printed"), rows


def _transports(found: Sequence[Analysed], printed: Salamy) -> Table:
    """Table 3.9; only where the same was measured over both transports."""
    rows: Rows = []
    both: dict[tuple[Any, ...], dict[str, Analysed]] = {}
    for one in found:
        kind = one.series.kind
        both.setdefault((kind.model, kind.traffic, kind.ranks, kind.workload), {})[kind.transport] = one
    for transports in both.values():
        if {"tcp", "rdma"} <= transports.keys():
            for name in ("rdma", "tcp"):
                one = transports[name]
                theirs = "; ".join(_fit_text(c) for c in _printed_fits(one.series, printed) if c.transport == name)
                ours = f"{one.fit.a_s:.3f} exp({one.fit.b:.2f} / (C - load)^{one.fit.n:.3g})" if one.fit else NOTHING
                rows.append((one.series.kind.name, ours, theirs or NOTHING))
    return "TCP against RDMA", "Fits of the same training over both (Table 3.9).", ("curve", "ours", "printed"), rows


def _printed_fits(series: Series, printed: Salamy) -> list[Curve]:
    return [c for c in printed.fits if (c.model, c.traffic) == (series.kind.model, series.kind.traffic)]


def _first_of_models(found: Sequence[Analysed]) -> list[Analysed]:
    first: dict[tuple[Any, ...], Analysed] = {}
    for one in found:
        kind = one.series.kind
        first.setdefault((kind.model, kind.ranks, kind.transport, kind.workload), one)
    return list(first.values())


def _held(ours: float, theirs: Point) -> str:
    if theirs.traffic not in ("iperf", "websearch") or theirs.load_gbps > HELD_UP_TO_GBPS or math.isnan(ours):
        return NOTHING
    return "kept" if abs(ours / theirs.iteration_s - 1) <= HELD_TO else "MISSED"


def _fit_text(curve: Curve) -> str:
    r2 = f", R2 {curve.r2:g}" if curve.r2 is not None else ""
    return f"A {curve.a_s:g}, B {curve.b:g}, n {curve.n:g}{r2} ({curve.transport}, {curve.source})"


def _with(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.3g} ({interval[0]:.3g} to {interval[1]:.3g})"


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _gbps(value: float) -> str:
    return f"{value / 1e9:.2f}"


def _mb(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value / 1e6:.1f}"


def _range(bounds: tuple[float, float] | None) -> str:
    return NOTHING if bounds is None else f"{_gbps(bounds[0])} to {_gbps(bounds[1])}"


def _off(ours: float, theirs: float | None) -> str:
    return NOTHING if not theirs or math.isnan(ours) else f"{(ours / theirs - 1) * 100:+.0f} %"
