"""Build the page of a comparison (`compare_page.html`): verdicts, ratios with intervals, histories, either side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.analysis.compare.comparing import Comparison, headline, percent
from orchestrator.analysis.compare.point_histories import History, day_text
from orchestrator.analysis.compare.regression import PointChange
from orchestrator.analysis.stats.levels import Level
from orchestrator.report import comparison_texts as told
from orchestrator.report import page
from orchestrator.report.style import INK, SERIES, SOFT, Picture, figure, legend, look, save
from orchestrator.report.tables import Cell, Number, Table, table
from orchestrator.store.manifests.records import Manifest

_VERDICT_COLORS = {"worse": SERIES[1], "better": SERIES[2], "same": SERIES[0], "cannot tell": SOFT}
_MARKERS = {"worse": "^", "better": "v", "same": "o", "cannot tell": "x"}
_STATES = {"worse": "invalid", "better": "valid", "same": "valid"}
_LOOKS = {"worse": "bad", "better": "good", "cannot tell": "open"}
_PANELS = 6  # histories in one figure


def render(comparison: Comparison, output: Path) -> Path:
    """Write the page `output` and its figures into `<output's stem>-figures` beside it; StoreError when it cannot."""
    return page.write(
        "compare_page.html",
        output,
        lambda folder: {
            "title": f"{comparison.b.name} against {comparison.a.name}",
            "state": _STATES.get(_worst(comparison), "doubt"),
            "headline": headline(comparison).splitlines(),
            "points": _points(comparison),
            "tables": tables_beside_points(comparison),
            "lists": told.lists(comparison),
            "rule": comparison.rule,
            "pictures": _pictures(comparison, folder),
        },
    )


def _points(comparison: Comparison) -> Table:
    rows = []
    for change in comparison.changes:
        label, verdict, *cells = told.row(comparison, change)
        rows.append([label, Cell(verdict, look=_LOOKS.get(verdict, "")), *cells])
    point, of_point, *others = told.head(comparison)
    return table("Points", [point, of_point, *map(Number, others)], rows)


def _worst(comparison: Comparison) -> str:
    return next((verdict for verdict in ("worse", "cannot tell", "better") if comparison.of(verdict)), "same")


def _pictures(comparison: Comparison, folder: Path) -> list[Picture]:
    pictures = []
    with look():
        ratios = _ratios(comparison)
        if ratios is not None:
            caption = (
                f"The median of {comparison.b.name} over that of {comparison.a.name}. The band is what counts as no "
                "change; bars are confidence intervals of each point alone."
            )
            saved = save(ratios, folder / "ratios")
            pictures.append(Picture(name="ratios", title="Change of the median", caption=caption, saved=saved))
        shown = [history for history in comparison.histories if sum(map(math.isfinite, history.p50_s)) > 1]
        for number, begin in enumerate(range(0, len(shown), _PANELS), start=1):
            name = f"history-{number}"
            saved = save(_histories(shown[begin : begin + _PANELS]), folder / name)
            caption = (
                "The median of every night; a dashed line where a step of mean, median or tail was found, bars at the "
                "median's levels before and after it."
            )
            title = "History" if len(shown) <= _PANELS else f"History, {number}"
            pictures.append(Picture(name=name, title=title, caption=caption, saved=saved))
    return pictures


def _ratios(comparison: Comparison) -> Any:
    known = [change for change in comparison.changes if not math.isnan(change.change("p50").ratio)]
    if not known:
        return None
    drawing, (panel,) = figure(height_in=0.9 + 0.3 * len(known))
    margin = comparison.rule.margin["p50"]
    panel.axvspan(100 * (1 / (1 + margin) - 1), 100 * margin, color=SERIES[0], alpha=0.12, linewidth=0)
    panel.axvline(0, color=SOFT, linewidth=0.8)
    for place, point in enumerate(known):
        _bar(panel, place, point)
    panel.set_yticks(range(len(known)), [comparison.labels[point.point] for point in known])
    panel.set(xlabel="change of the median (%)", ylim=(len(known) - 0.5, -0.5))
    panel.grid(visible=False, axis="y")
    legend(panel)
    return drawing


def _bar(panel: Any, place: int, point: PointChange) -> None:
    change = point.change("p50")
    low, middle, high = (100 * (value - 1) for value in (change.low, change.ratio, change.high))
    panel.errorbar(
        middle,
        place,
        xerr=[[middle - low], [high - middle]],
        color=_VERDICT_COLORS[point.verdict],
        marker=_MARKERS[point.verdict],
        markersize=6,
        capsize=3,
        linewidth=1.4,
        label=point.verdict,
    )


def _histories(shown: Sequence[History]) -> Any:
    drawing, panels = figure(len(shown), height_in=0.6 + 1.15 * len(shown))
    days = shown[0].days
    for panel, history in zip(panels, shown, strict=True):
        values = [1e3 * value for value in history.p50_s]
        panel.plot(range(len(values)), values, color=SERIES[0], marker="o", markersize=3.5, linewidth=0.9)
        of_median = [step for step in history.steps if step.statistic == "p50"]
        for place, step in enumerate(of_median):
            end = of_median[place + 1].night if place + 1 < len(of_median) else len(values)
            panel.hlines(1e3 * step.after_s, step.night - 0.5, end - 0.5, color=SERIES[1], linewidth=2)
            start = of_median[place - 1].night if place else 0
            panel.hlines(1e3 * step.before_s, start - 0.5, step.night - 0.5, color=SERIES[1], linewidth=2)
        for step in history.steps:
            panel.axvline(step.night - 0.5, color=INK, linewidth=0.8, linestyle="--")
        panel.set_title(history.label, pad=3, loc="right")
        panel.margins(y=0.25)
    every = -(-len(days) // 7)
    panels[-1].set_xticks(range(0, len(days), every), list(days[::every]))
    drawing.supylabel("median iteration (ms)", fontsize=9)
    return drawing


def tables_beside_points(comparison: Comparison) -> list[Table]:
    """Return what a page shows beside the table of points: the medians of either side, every night, and the runs."""
    a, b = comparison.a.name, comparison.b.name
    medians = [
        (comparison.labels[change.point], *(cell for one in comparison.levels[change.point] for cell in _median(one)))
        for change in comparison.changes
    ]
    nights = [
        (history.label, day, f"{1e3 * median:,.1f}", _step(history, night))
        for history in comparison.histories
        for night, (day, median) in enumerate(zip(history.days, history.p50_s, strict=True))
        if not math.isnan(median)
    ]
    runs = [
        (side, entry.run, entry.manifest.experiment, day_text(entry.manifest.began_ns), _commit(entry.manifest))
        for side, chosen in ((a, comparison.a), (b, comparison.b))
        for entry in chosen.entries
    ]
    of_runs = "The geometric mean over the medians of runs, with Student's interval over runs."
    head = ["point", *map(Number, (f"{a}, ms", "95 % interval", f"{b}, ms", "95 % interval"))]
    of_nights = ["point", "night (UTC)", Number("median, ms"), Number("step")]
    return [
        table("What either side measured", head, medians, caption=of_runs),
        table("Nights", of_nights, nights, caption="The median of every night."),
        table("Runs", ("side", "run", "experiment", "day (UTC)", "commit"), runs),
    ]


def _median(one: Level) -> tuple[str, str]:
    value, low, high = (f"{1e3 * end:,.1f}" for end in (one.estimate.value, one.estimate.low, one.estimate.high))
    if math.isnan(one.estimate.value):
        return "-", "-"
    return value, "unknown" if math.isnan(one.estimate.low) else f"{low} to {high}"


def _step(history: History, night: int) -> str:
    """Return how much the level changed with this night, as text."""
    return ", ".join(f"{step.statistic} {percent(step.ratio)}" for step in history.steps if step.night == night)


def _commit(manifest: Manifest) -> str:
    return str(manifest.git.commit)[:12] if manifest.git and manifest.git.commit else "-"
