"""The tables that the page of a comparison has beside that of points: medians of either side, every night, the runs."""

from __future__ import annotations

import math

from orchestrator.analysis.compare.comparing import Comparison, percent
from orchestrator.analysis.compare.point_histories import History, day_text
from orchestrator.analysis.stats.levels import Level
from orchestrator.report.tables import Number, Table, table
from orchestrator.store.manifests.records import Manifest


def tables(comparison: Comparison) -> list[Table]:
    """What a page shows beside the table of points: the medians of either side, every night, and the runs."""
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
    """By how much the level changed with this night."""
    return "".join(percent(step.after_s / step.before_s) for step in history.steps if step.night == night)


def _commit(manifest: Manifest) -> str:
    return str(manifest.git.commit)[:12] if manifest.git and manifest.git.commit else "-"
