"""What a sweep has to measure for a change to be found, from what its earlier nights differ by or an assumption."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from orchestrator.analysis.compare import power, selection
from orchestrator.analysis.compare.power import Effort, Spreads
from orchestrator.analysis.stats.statistics import quantile
from orchestrator.experiment.sweepfile import Definition
from orchestrator.sweep import sweeptext
from orchestrator.sweep.sweepplan import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What finds a change (a share of 1) of the median at every point; `point` is the one that decides, else empty.

    `night_s` is how long a night takes then, None where that is not known.
    """

    change: float
    spreads: Spreads
    point: str
    effort: Effort | None
    night_s: float | None

    def text(self) -> str:
        """The plan in a few lines."""
        run, night = (f"{100 * value:.2g} %" for value in (self.spreads.run, self.spreads.night))
        source = f"as {self.spreads.nights} nights show at {self.point}" if self.spreads.nights else "which is assumed"
        lines = [f"to find a change of {100 * self.change:.3g} % of the median in 95 of 100 nights:"]
        if self.effort is None:
            lines.append(f"  not with {power.MOST_NIGHTS} nights of {power.MOST_RUNS} repetitions")
        else:
            lines.append(f"  a baseline of {self.effort.nights} nights, and {self.effort.runs} repetitions a night")
        lines.append(f"  runs of a night differ by {run}, nights by {night} (standard deviations), {source}")
        if self.effort is not None and self.night_s is not None:
            whole = self.night_s * (self.effort.nights + 1)
            lines.append(f"  about {sweeptext.time_text(self.night_s)} a night, {sweeptext.time_text(whole)} in all")
        return "\n".join(lines)


def detection(definition: Definition, results: Path, change: float, *, estimate: Estimate) -> Detection:
    """Plan for the point whose runs and nights differ most; `estimate` is of the sweep's own repetitions."""
    seen: dict[str, Spreads] = {}
    nights = selection.nights(results, definition.file.name)
    labels = {key: label for night in nights for key, label in night.labels.items()}
    for key, label in labels.items():
        of_nights = [
            [math.log(quantile(one.seconds, 0.5)) for one in night.points[key] if len(one.seconds)]
            for night in nights
            if night.points.get(key)
        ]
        found = power.seen([logs for logs in of_nights if logs])
        if found is not None:
            seen[label] = found
    point = max(seen, key=lambda name: seen[name].run ** 2 + seen[name].night ** 2, default="")
    spreads = seen.get(point, power.ASSUMED)
    effort = power.effort(change, spreads)
    night_s = None
    if effort is not None and estimate.seconds is not None:
        night_s = estimate.seconds / definition.repetitions * effort.runs
    return Detection(change=change, spreads=spreads, point=point, effort=effort, night_s=night_s)
