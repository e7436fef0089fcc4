"""Draw fits: both kinds of web search (3-7), trend lines on straightened axes (B-2), congestion points (A-1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrator.analysis.stats import fits
from orchestrator.analysis.stats.fits import Fit
from orchestrator.papers.salamy.figures import logarithmic
from orchestrator.papers.salamy.form import EXPONENTS
from orchestrator.report.style import LINES, SERIES, SOFT, Picture, figure, legend, look, save

if TYPE_CHECKING:
    from orchestrator.papers.salamy.model import Analysed

WEBSEARCH = ("websearch", "websearch-burst")
_MOST_PANELS = 6
_AXES = {1.0: "1 / (C - load)", 0.5: "1 / sqrt(C - load)", 2.0: "1 / (C - load)^2"}


def draw(found: Sequence[Analysed], folder: Path) -> list[Picture]:
    """Draw the figures that have curves; rates are in Gbit/s, times in seconds."""
    with look():
        return [
            Picture(name=name, title=title, caption=caption, saved=save(drawing, folder / name))
            for name, title, caption, drawing in (*_websearch(found), *_trends(found), *_onsets(found))
        ]


_Drawn = tuple[str, str, str, Any]


def _websearch(found: Sequence[Analysed]) -> Iterator[_Drawn]:
    """Draw for each model both kinds of web search, with fits by the square root (eq. 3.5)."""
    for model in dict.fromkeys(one.series.kind.model for one in found):
        mine = [one for one in found if one.series.kind.model == model and one.series.kind.traffic in WEBSEARCH]
        if {one.series.kind.traffic for one in mine} != set(WEBSEARCH):
            continue
        drawing, (panel,) = figure(height_in=3.0)
        for number, one in enumerate(mine):
            of, color = one.series.curve, SERIES[number % len(SERIES)]
            above = np.clip([point.p99_s - point.mean_s for point in one.series.points], 0, None)
            hers = fits.fit(of.load_bps, of.seconds, capacity_bps=of.capacity_bps, n=EXPONENTS["websearch"])
            panel.errorbar(
                of.load_bps / 1e9,
                of.seconds,
                yerr=[0 * above, above],
                color=color,
                marker="o",
                markersize=4,
                linestyle="",
                elinewidth=0.9,
                label=_named(one, hers),
            )
            if hers is not None:
                loads = np.linspace(of.load_bps[0], of.load_bps[-1], 100)
                panel.plot(loads / 1e9, hers.seconds(loads), color=color, linewidth=1.2, linestyle=LINES[number % 2])
        logarithmic(panel.yaxis)
        panel.set(xlabel="cross traffic as captured (Gbit/s)", ylabel="iteration time (s)")
        legend(panel, columns=2)
        caption = "Means with bars up to the 99th percentile, and fits of A exp(B / sqrt(C - load)) with their R2."
        yield f"websearch-{model}", f"{model}: consistent and bursty web search (as in Fig 3-7)", caption, drawing


def _trends(found: Sequence[Analysed]) -> Iterator[_Drawn]:
    """Draw for each kind of traffic all models, on the axis on which the thesis' fit is a straight line."""
    kinds = [kind for kind in EXPONENTS if any(one.series.kind.traffic == kind for one in found)]
    if not kinds:
        return
    drawing, panels = figure(len(kinds), height_in=0.6 + 2.3 * len(kinds), sharex=False)
    for panel, kind in zip(panels, kinds, strict=True):
        n = EXPONENTS[kind]
        for number, one in enumerate(one for one in found if one.series.kind.traffic == kind):
            of, color = one.series.curve, SERIES[number % len(SERIES)]
            below = of.load_bps < of.capacity_bps
            x = ((of.capacity_bps - of.load_bps[below]) / 1e9) ** -n
            hers = fits.fit(of.load_bps, of.seconds, capacity_bps=of.capacity_bps, n=n)
            panel.plot(
                x, of.seconds[below], color=color, marker="o", markersize=4, linestyle="", label=_named(one, hers)
            )
            if hers is not None:
                panel.plot(x, hers.seconds(of.load_bps[below]), color=color, linewidth=1.1)
        logarithmic(panel.yaxis)
        panel.set(xlabel=_AXES[n], ylabel="iteration time (s)")
        panel.legend(loc="upper left", fontsize=8)
    caption = (
        "Rates in Gbit/s. On these axes A exp(B / (C - load)^n) is a straight line: n 1 beside iperf, 0.5 beside "
        "consistent web search, 2 beside bursts, over all points. The thesis uses the last below 17 Gbit/s alone."
    )
    yield "trends", "Trend lines of the fits (as in Fig B-2)", caption, drawing


def _onsets(found: Sequence[Analysed]) -> Iterator[_Drawn]:
    """Draw how congestion points are found: the flat line, the tangent, their crossing, and the point next to it."""
    mine = [one for one in found if one.point.onset is not None][:_MOST_PANELS]
    if not mine:
        return
    drawing, panels = figure(len(mine), height_in=0.6 + 1.7 * len(mine))
    for panel, one in zip(panels, mine, strict=True):
        _onset(panel, one)
    panels[-1].set_xlabel("cross traffic as captured (Gbit/s)")
    caption = (
        "Dotted: the line of the flat region and the tangent by the rule that was fixed beforehand; thin lines lead "
        "from the measured point next to where they cross to its load and its time."
    )
    yield "onsets", "How congestion points are found (as in Fig A-1)", caption, drawing


def _onset(panel: Any, one: Analysed) -> None:
    of, onset = one.series.curve, one.point.onset
    if onset is None:
        raise AssertionError("curves without a congestion point are left out")
    top = 1.05 * float(of.seconds.max())
    panel.plot(of.load_bps / 1e9, of.seconds, color=SERIES[0], marker="o", markersize=4, linestyle="")
    loads = np.linspace(0, float(of.load_bps[-1]), 50)
    for intercept, slope in (onset.flat, onset.tangent):
        line = intercept + slope * loads
        shown = (line > 0) & (line <= top)
        panel.plot(loads[shown] / 1e9, line[shown], color=SERIES[1], linestyle=LINES[2])
    at_gbps = onset.load_bps / 1e9
    panel.plot([at_gbps, at_gbps, 0], [0, onset.seconds, onset.seconds], color=SOFT, linewidth=0.8)
    panel.set(ylim=(0, top), ylabel="s")
    panel.set_xlim(left=0)
    panel.set_title(f"{one.series.kind.name}: {at_gbps:.1f} Gbit/s")


def _named(one: Analysed, hers: Fit | None) -> str:
    kind = one.series.kind
    return f"{kind.model}, {kind.traffic}" + (f", R2 {hers.r2:.3f}" if hers is not None else "")
