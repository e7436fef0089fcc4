"""Plan how much to measure for a change to be found, from the variance between earlier nights or an assumption."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from orchestrator.analysis.compare import point_histories, power
from orchestrator.analysis.compare.power import Effort, Spreads
from orchestrator.experiment.sweepfile import Definition
from orchestrator.store import index, stores
from orchestrator.sweep import sweeptext
from orchestrator.sweep.sweepplan import Estimate

_FEW = 5  # nights whose spread is itself hardly known


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What finds a change (a share of 1) of the mean at all of `points`; `point` is the one that decides, else empty.

    `night_s` is how long a night takes then, None where that is not known.
    """

    change: float
    spreads: Spreads
    point: str
    points: int
    effort: Effort | None
    night_s: float | None

    def text(self) -> str:
        """Return the plan in a few lines."""
        run, night = (f"{100 * value:.2g} %" for value in (self.spreads.run, self.spreads.night))
        source = f"as {self.spreads.nights} nights show at {self.point}" if self.spreads.nights else "which is assumed"
        points = "the point" if self.points == 1 else f"all {self.points} points"
        lines = [
            f"to find a change of {100 * self.change:.3g} % of the mean at {points} in 95 of 100 cases, in two nights:"
        ]
        if self.effort is None:
            lines.append(f"  not with {power.MOST_NIGHTS} nights of {power.MOST_RUNS} repetitions" + self._why())
        else:
            lines.append(f"  a baseline of {self.effort.nights} nights, and {self.effort.runs} repetitions a night")
        lines.append(f"  runs of a night differ by {run}, nights by {night} (standard deviations), {source}")
        if self.effort is not None and self.night_s is None:
            lines.append("  how long a night takes is not known: nothing like it was measured yet")
        elif self.effort is not None and self.night_s is not None:
            whole = self.night_s * (self.effort.nights + power.CONFIRMED)
            lines.append(f"  about {sweeptext.time_text(self.night_s)} a night, {sweeptext.time_text(whole)} in all")
        return "\n".join(lines)

    def _why(self) -> str:
        few = 0 < self.spreads.nights < _FEW
        return f": {self.spreads.nights} nights hardly show by how much nights differ; measure more" if few else ""


def of_sweep(definition: Definition, results: Path, change: float, *, estimate: Estimate) -> Detection:
    """Return the plan for a sweep; `estimate` is of its own repetitions."""
    repetition_s = None if estimate.seconds is None else estimate.seconds / max(1, definition.repetitions)
    points = len(definition.points)
    return _detection(definition.file.name, results, change, repetition_s=repetition_s, points=points)


def of_experiment(name: str, results: Path, change: float) -> Detection:
    """Return the plan for an experiment of this name, whose nights are its days.

    It takes as long as its earlier runs did.
    """
    took = [
        entry.manifest.phases["total"]
        for entry in index.entries(results)
        if entry.manifest.experiment == name and entry.manifest.outcome == "completed" and entry.manifest.phases
    ]
    return _detection(name, results, change, repetition_s=median(took) if took else None)


def _detection(name: str, results: Path, change: float, *, repetition_s: float | None, points: int = 1) -> Detection:
    """Plan for the point whose runs and nights differ most."""
    seen: dict[str, Spreads] = {}
    measured = point_histories.nights(stores.opened(str(results)), name)
    labels = {key: label for night in measured for key, label in night.labels.items()}
    for key, label in labels.items():
        of_nights = [
            [math.log(float(np.mean(one.seconds))) for one in night.points[key] if len(one.seconds)]
            for night in measured
            if night.points.get(key)
        ]
        found = power.seen([logs for logs in of_nights if logs])
        if found is not None:
            seen[label] = found
    point = max(seen, key=lambda name: seen[name].run ** 2 + seen[name].night ** 2, default="")
    spreads = seen.get(point, power.ASSUMED)
    points = len(labels) or points
    effort = power.effort(change, spreads, points=points)
    night_s = None if effort is None or repetition_s is None else repetition_s * effort.runs
    return Detection(change=change, spreads=spreads, point=point, points=points, effort=effort, night_s=night_s)
