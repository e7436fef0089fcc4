"""Draw iteration times over load, on both axes, and their distributions, with the published values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from orchestrator.analysis.compare.curves import NO_TRAFFIC
from orchestrator.analysis.traffic import congestion
from orchestrator.report.style import LINES, SERIES, SOFT, Picture, figure, legend, look, save

if TYPE_CHECKING:
    from orchestrator.papers.salamy.model import Analysed
    from orchestrator.papers.salamy.published import Salamy

_FIGURES = {"iperf": "Fig 3-2", "websearch": "Fig 3-3", "websearch-burst": "Fig 3-4"}
_SHARES = (0.3, 0.8)


def draw(found: Sequence[Analysed], printed: Salamy, folder: Path) -> list[Picture]:
    """Draw a figure a kind of traffic, one of all kinds a model, and the distributions at 30 and 80 % load."""
    pictures = []
    with look():
        for traffic in dict.fromkeys(one.series.kind.traffic for one in found):
            mine = [one for one in found if one.series.kind.traffic == traffic]
            if traffic == NO_TRAFFIC:
                continue
            where = f" (beside {_FIGURES[traffic]})" if traffic in _FIGURES else ""
            pictures.append(
                _picture(
                    f"load-{traffic}",
                    f"Iteration time beside {traffic}{where}",
                    _over_load(mine, printed),
                    _CAPTION,
                    folder,
                )
            )
        for model in dict.fromkeys(one.series.kind.model for one in found):
            mine = [
                one for one in found if (one.series.kind.model, one.series.kind.traffic != NO_TRAFFIC) == (model, True)
            ]
            if len(mine) > 1:
                pictures.append(
                    _picture(
                        f"types-{model}",
                        f"{model}: kinds of cross traffic (as in Fig 3-6)",
                        _types(mine),
                        _BARS,
                        folder,
                    )
                )
        for share in _SHARES:
            drawn = _cdfs(found, share)
            if drawn is not None:
                pictures.append(
                    _picture(
                        f"cdf-{share * 100:.0f}",
                        f"Distribution at {share:.0%} load (as in Fig 3-5)",
                        drawn,
                        "All iterations of the point next to that load.",
                        folder,
                    )
                )
    return pictures


_BARS = "Means with bars up to the 99th percentile."
_CAPTION = (
    f"{_BARS[:-1]}, and the chosen fit with its 95 % band over runs (none of a single run); hollow: what the thesis "
    "prints, and dotted lines its own fits. Below: the same over C / (C - load) (eq. 3.2)."
)


def _picture(name: str, title: str, drawing: Any, caption: str, folder: Path) -> Picture:
    return Picture(name=name, title=title, caption=caption, saved=save(drawing, folder / name))


def _over_load(found: Sequence[Analysed], printed: Salamy) -> Any:
    drawing, panels = figure(2, height_in=6.2, sharex=False)
    for panel, scaled in zip(panels, (False, True), strict=True):
        for number, one in enumerate(found):
            color = SERIES[number % len(SERIES)]
            _measured(panel, one, color, scaled=scaled, label=one.series.kind.name)
            _fitted(panel, one, color, scaled=scaled)
            _printed(panel, one, printed, color, scaled=scaled)
        logarithmic(panel.yaxis)
        panel.set_ylabel("iteration time (s)")
    panels[0].set_xlabel("cross traffic as captured (Gbit/s)")
    panels[1].set_xlabel("C / (C - load)")
    legend(panels[0], columns=2)
    return drawing


def _x(load_bps: Any, one: Analysed, *, scaled: bool) -> Any:
    capacity = one.series.capacity_bps
    return congestion.rescaled(load_bps, capacity) if scaled else np.asarray(load_bps, float) / 1e9


def _measured(panel: Any, one: Analysed, color: str, *, scaled: bool, label: str, style: str = "") -> None:
    points = [point for point in one.series.points if point.load_bps < one.series.capacity_bps]
    mean = np.array([point.mean_s for point in points])
    above = np.clip(np.array([point.p99_s for point in points]) - mean, 0, None)
    panel.errorbar(
        _x([point.load_bps for point in points], one, scaled=scaled),
        mean,
        yerr=[np.zeros_like(above), above],
        color=color,
        marker="o",
        markersize=4,
        linestyle=style,
        linewidth=1.1,
        elinewidth=0.9,
        label=label,
    )


def _fitted(panel: Any, one: Analysed, color: str, *, scaled: bool) -> None:
    if one.fit is None:
        return
    loads = np.linspace(one.part.load_bps[0], one.part.load_bps[-1], 100)
    low, high = one.fit.band(loads)
    x = _x(loads, one, scaled=scaled)
    panel.plot(x, one.fit.seconds(loads), color=color, linewidth=1.4)
    panel.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)


def _printed(panel: Any, one: Analysed, printed: Salamy, color: str, *, scaled: bool) -> None:
    kind = one.series.kind
    points = [p for p in printed.points if p.model == kind.model and p.traffic in (kind.traffic, NO_TRAFFIC)]
    within = [p for p in points if p.load_gbps <= _last_gbps(one) * 1.15]
    if within:
        panel.plot(
            _x([p.load_gbps * 1e9 for p in within], one, scaled=scaled),
            [p.iteration_s for p in within],
            marker="D",
            linestyle="",
            markerfacecolor="none",
            markeredgecolor=color,
            markersize=6,
            label=f"{kind.model}, printed",
        )
    loads = np.linspace(0, _last_gbps(one), 100)
    for curve in printed.fits:
        if (curve.model, curve.traffic) == (kind.model, kind.traffic):
            times = curve.a_s * np.exp(curve.b / (printed.capacity_gbps - loads) ** curve.n)
            panel.plot(_x(loads * 1e9, one, scaled=scaled), times, color=color, linewidth=0.7, linestyle=":")


def logarithmic(axis: Any) -> None:
    """Make an axis logarithmic with plain numbers, also where it spans less than a decade."""
    (axis.axes.set_yscale if axis.axis_name == "y" else axis.axes.set_xscale)("log")
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    few = LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
    axis.set_major_locator(few)
    axis.set_minor_formatter(NullFormatter())


def _last_gbps(one: Analysed) -> float:
    return float(one.series.curve.load_bps[-1]) / 1e9


def _types(found: Sequence[Analysed]) -> Any:
    drawing, (panel,) = figure(height_in=3.2)
    for number, one in enumerate(found):
        kind = one.series.kind
        label = f"{kind.traffic}, {kind.ranks} ranks" + (f" over {kind.transport}" if kind.transport else "")
        _measured(panel, one, SERIES[number % len(SERIES)], scaled=False, label=label, style=LINES[number % len(LINES)])
    logarithmic(panel.yaxis)
    panel.set(xlabel="cross traffic as captured (Gbit/s)", ylabel="iteration time (s)")
    legend(panel, columns=2)
    return drawing


def _cdfs(found: Sequence[Analysed], share: float) -> Any:
    drawn = []
    for one in found:
        of = one.series.curve
        place = congestion.nearest(of, share)
        if place is not None:
            point = min(one.series.points, key=lambda p: abs(p.load_bps - of.load_bps[place]))
            drawn.append((one, point))
    if not drawn:
        return None
    drawing, (panel,) = figure(height_in=3.0)
    for number, (one, point) in enumerate(drawn):
        values, shares = congestion.cdf(point.seconds)
        label = f"{one.series.kind.name}, {point.load_bps / 1e9:.1f} Gbit/s"
        panel.step(
            values,
            shares,
            where="post",
            color=SERIES[number % len(SERIES)],
            linestyle=LINES[number // len(SERIES) % len(LINES)],
            label=label,
        )
    logarithmic(panel.xaxis)
    panel.axhline(0.99, color=SOFT, linewidth=0.7)
    panel.set(xlabel="iteration time (s)", ylabel="share of iterations", ylim=(0, 1.01))
    legend(panel, columns=2)
    return drawing
