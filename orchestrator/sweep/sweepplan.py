"""From what is still to be measured of a sweep to its next run, and how long it all may take; pure."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from orchestrator.core import where
from orchestrator.core.opendata import YamlMapping
from orchestrator.experiment import documents, plan, scale_limits, validation
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.experiment import model as experiment_model
from orchestrator.experiment.plan import RunPlan
from orchestrator.experiment.seeds import PLANNED, Draws
from orchestrator.experiment.sweepfile import Definition, Point
from orchestrator.store.manifests import summaries
from orchestrator.store.sweeps import Key, MeasuredWindow

NEITHER = ("traffic", "measure")  # what windows of one run may differ in
USUAL_RUN_S = 6.0  # what a run takes beside its window and the start of its ranks, where none was measured yet
USUAL_SWITCH_S = 1.5  # and from one window to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One run of a sweep: its experiment, and which measurement each of its windows is."""

    experiment: Experiment
    repetition: int
    windows: Mapping[str, Key]
    points: Mapping[str, Point]  # by window
    common: bool  # whether all points of a repetition have the same random numbers

    def planned(self, salt: str = PLANNED) -> RunPlan:
        """Return the plan of the run in a sweep of this salt."""
        measured = {name: "" if self.common else _measurement(key) for name, key in self.windows.items()}
        return plan.single(self.experiment, self.repetition, Draws(salt=salt, measured=measured))

    def about(self) -> dict[str, summaries.Point]:
        """Return what each window is, for the manifest."""
        return {
            name: summaries.Point(
                point=key[0], values=dict(self.points[name].values), repetition=key[1], recheck=key[2]
            )
            for name, key in self.windows.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds that a sweep may still take; `known` of its `windows` are at points that were measured before.

    `bound` says that some windows count with the most that they may take, since nothing else is known of them.
    """

    seconds: float | None
    bound: bool
    known: int
    windows: int
    runs: int


def in_order(definition: Definition, salt: str = PLANNED, *, repetitions: int | None = None) -> list[Key]:
    """Every measurement of the sweep of this salt in the order in which it is tried first.

    Of so many repetitions, those that it surely has by default; those of fewer come in the same order.

    Each repetition is a block of all points; in random order each block is shuffled in its own way (a randomized
    complete block design), and each sweep in another, so that no night repeats the order of the one before. In
    alternate order every other block is turned round. Checks come last.
    """
    source = random.Random(f"{definition.file.seed} {salt}")  # noqa: S311 - a design, no secret
    keys: list[Key] = []
    for repetition in range(1, (definition.repetitions if repetitions is None else repetitions) + 1):
        block = [(point.point, repetition, False) for point in definition.points]
        if definition.file.order == "random":
            source.shuffle(block)
        elif definition.file.order == "alternate" and repetition % 2 == 0:
            block.reverse()
        keys += block
    return keys + [(point, 1, True) for point in rechecked(definition)]


def rechecked(definition: Definition) -> list[str]:
    """Return the points of each curve that are measured once more in runs of their own."""
    source = random.Random(definition.file.seed)  # noqa: S311
    curves: dict[Any, list[str]] = {}
    for point in definition.points:
        curves.setdefault(definition.curve(point), []).append(point.point)
    return [
        name for curve in curves.values() for name in source.sample(curve, min(len(curve), definition.file.recheck))
    ]


def batches(definition: Definition, keys: Iterable[Key]) -> Iterator[Batch]:
    """Give the runs that measure these, in this order.

    A run begins with the first that is left, and in windows mode takes along what fits in with it.
    """
    points = {point.point: point for point in definition.points}
    shared = {name: _shared(point) for name, point in points.items()}
    wanted = list(keys)
    gone: set[Key] = set()
    for head in wanted:
        if head in gone:
            continue
        taken = [head]
        if definition.file.mode == "windows" and not head[2]:
            alike = (key for key in wanted if key[1:] == head[1:] and shared[key[0]] == shared[head[0]])
            taken = [key for key in alike if key not in gone][: definition.file.windows_per_run]
        gone.update(taken)
        yield _batch(definition, [points[key[0]] for key in taken], taken)


def first_runs(found: Iterable[Batch]) -> Iterator[RunPlan]:
    """Give the plans of runs that differ in more than their repetition."""
    return (batch.planned() for batch in found if batch.repetition == 1)


def _measurement(key: Key) -> str:
    point, _, recheck = key
    return f"{point} recheck" if recheck else point


def _shared(point: Point) -> str:
    return json.dumps({key: value for key, value in point.resolved.items() if key not in NEITHER}, sort_keys=True)


def _batch(definition: Definition, points: Sequence[Point], keys: Sequence[Key]) -> Batch:
    first, repetition, common = points[0], keys[0][1], definition.file.draws == "common"
    if len(points) == 1:
        return Batch(
            experiment=first.experiment,
            repetition=repetition,
            windows={"w1": keys[0]},
            points={"w1": first},
            common=common,
        )
    names = [_window_name(number, point) for number, point in enumerate(points, start=1)]
    windows: list[YamlMapping] = []
    for name, point in zip(names, points, strict=True):
        measure = dict(point.resolved["measure"])
        if windows and measure["warmup"] != "auto":
            measure["warmup"] = min(measure["warmup"], definition.file.settle)
        windows.append({"name": name, "traffic": point.resolved.get("traffic", []), "measure": measure})
    data = {**first.resolved, "windows": windows}
    data.pop("traffic", None)  # it stands in the windows
    document = documents.Document(name=definition.file.name, data=data, root=None)
    return Batch(
        experiment=validation.validate(document, experiment_model()),
        repetition=repetition,
        windows=dict(zip(names, keys, strict=True)),
        points=dict(zip(names, points, strict=True)),
        common=common,
    )


def _window_name(number: int, point: Point) -> str:
    values = "-".join(where.text_of(value) for path, value in point.values.items() if "traffic" in path)
    slug = re.sub(r"[^A-Za-z0-9]+", "-", values).strip("-")
    return f"w{number}-{slug}"[:40].rstrip("-")


def estimate(found: Sequence[Batch], earlier: Sequence[MeasuredWindow]) -> Estimate:
    """How long runs may take.

    A window takes as long as earlier ones at its point. At another point it takes what theory says (`_reckoned`),
    times what earlier ones took over that; where theory says nothing, the median of earlier ones, else `at_most`. What
    runs take beside their windows is judged by what earlier runs took. Of dilated time a window takes as many times
    longer as it says.
    """
    spans: dict[str, list[float]] = {}
    for one in earlier:
        spans.setdefault(one.point, []).append(one.window.seconds)
    per_point = {point: median(values) for point, values in spans.items()}
    usual = median(per_point.values()) if per_point else None
    points = {one.point: one for batch in found for one in batch.points.values()}
    theory = {name: _reckoned(point) for name, point in points.items()}
    over = [per_point[name] / one.window_s for name, one in theory.items() if name in per_point and one.window_s]
    run_s, switch_s = _beside(earlier)
    total, known, unknown, bound = 0.0, 0, False, False
    for batch in found:
        first = theory[next(iter(batch.windows.values()))[0]]
        total += (run_s or USUAL_RUN_S + first.start_s) + switch_s * (len(batch.windows) - 1)
        for name, (point, *_) in batch.windows.items():
            known += point in per_point
            experiment = batch.points[name].experiment
            dilation = experiment.testbed.local.dilation if experiment.testbed.local is not None else 1
            by_theory = theory[point].window_s
            if point in per_point:
                guess: float | None = per_point[point]
            elif by_theory is not None:
                guess = by_theory * (median(over) if over else 1.0)
            else:
                guess = usual if usual is not None else experiment.measure.at_most
                bound = bound or usual is None
            unknown = unknown or guess is None
            total += (guess or 0.0) * dilation
    windows = sum(len(batch.windows) for batch in found)
    return Estimate(seconds=None if unknown else total, bound=bound, known=known, windows=windows, runs=len(found))


class _Reckoned(NamedTuple):
    """Seconds of a point by theory: of its window at full speed of time, None where nothing is known; of its start."""

    window_s: float | None
    start_s: float


def _reckoned(point: Point) -> _Reckoned:
    """Reckon a point's time from its plan: iterations that compute, then send what theory says at what a link has free.

    The start is what its ranks compute until they are ready, on the processors of this machine if that carries them.
    """
    planned = plan.single(point.experiment, 1, Draws())
    (window, *_), measure = planned.windows, point.experiment.measure
    iteration_s = scale_limits.iteration_s(planned, window.name)
    start_s = sum(launch.footprint.start_s for job in planned.jobs for launch in job.ranks())
    local = planned.topology.kind == "local"
    beside_s = start_s / (os.cpu_count() or 1) if local else 0.0
    if iteration_s is None or measure.iterations is None:
        return _Reckoned(None, beside_s)
    window_s = measure.iterations * iteration_s
    warm_up_s = (measure.warmup if measure.warmup != "auto" else 0) * iteration_s * planned.topology.dilation
    return _Reckoned(min(window_s, measure.at_most or window_s), beside_s + warm_up_s)


def at_most(found: Estimate, most_s: float, *, least: Estimate | None = None) -> Estimate:
    """How long runs may take that end after so many seconds, but not before those of `least` are made."""
    if found.seconds is None:
        return found
    floor_s = 0.0 if least is None or least.seconds is None else least.seconds
    return replace(found, seconds=max(floor_s, min(found.seconds, most_s)))


def together(found: Sequence[Estimate]) -> Estimate:
    """How long several sweeps may take one after the other."""
    seconds = [one.seconds for one in found if one.seconds is not None]
    return Estimate(
        seconds=sum(seconds) if len(seconds) == len(found) else None,
        bound=any(one.bound and one.windows for one in found),
        known=sum(one.known for one in found),
        windows=sum(one.windows for one in found),
        runs=sum(one.runs for one in found),
    )


def _beside(earlier: Sequence[MeasuredWindow]) -> tuple[float | None, float]:
    """Seconds that a run takes beside its window, None of no runs, and what each further window adds to that."""
    manifests = {one.manifest.run: one.manifest for one in earlier if "total" in one.manifest.phases}
    beside = [
        (len(manifest.windows), manifest.phases["total"] - manifest.phases.get("window", 0.0))
        for manifest in manifests.values()
    ]
    single = [seconds for number, seconds in beside if number == 1]
    run_s = median(single) if single else None
    more = [max(0.0, seconds - (run_s or USUAL_RUN_S)) / (number - 1) for number, seconds in beside if number > 1]
    return run_s, median(more) if more else USUAL_SWITCH_S
