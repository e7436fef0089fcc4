"""Text and JSON on sweeps: what a plan will measure and how long, how far it is, and what was measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TypedDict

from orchestrator.core import where
from orchestrator.core.opendata import AxisValues, JsonObject
from orchestrator.core.screen import layout
from orchestrator.experiment import plan, plantext, runtext
from orchestrator.experiment.sweepfile import Definition
from orchestrator.store import sweeps
from orchestrator.store.manifests.summaries import Summary, known
from orchestrator.store.sweeps import Key, MeasuredWindow, Sweep
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.sweepplan import Batch, Estimate

_WEEK = timedelta(days=6)


def short_names(axes: Sequence[str]) -> dict[str, str]:
    """As few last steps of each axis as tell it from the others."""
    found = {}
    for axis in axes:
        steps = axis.split(".")
        for length in range(1, len(steps) + 1):
            name = ".".join(steps[-length:])
            if sum(other == name or other.endswith("." + name) for other in axes) == 1:
                break
        found[axis] = name
    return found


def values_text(values: AxisValues) -> str:
    """Return a point in a few words."""
    names = short_names(list(values))
    return ", ".join(f"{names[axis]}={where.text_of(value)}" for axis, value in values.items())


def cost_text(runs_s: float, measured_s: float) -> str:
    """Return what runs took, and how much of it was measured; seconds."""
    return f"the runs took {time_text(runs_s)}; {measured_s / runs_s:.1%} of it were measured windows"


def resume_text(what: str, done: int, total: int, *, new: bool) -> str:
    """How a sweep or a study that was interrupted is resumed."""
    again = "the same command" + (" without --new" if new else "")
    return f"{what} is interrupted: {done} of {total} measurements are done; {again} resumes it"


def time_text(seconds: float) -> str:
    """Return a time as a plan tells it: no finer than it is known."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 2 * 3600:
        return f"{round(whole / 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def estimate_text(found: Estimate) -> str:
    """How long, or that nobody knows."""
    if found.seconds is None:
        return "an unknown time"
    return f"{'at most' if found.bound else 'about'} {time_text(found.seconds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlined:
    """A sweep as it is planned: the runs that it will make, or is likely to, and how long these take.

    `fewest` and `most` are the seconds of a sweep that chooses, if all of it ends early or late; else both are None.
    `how` says until when it goes on, and from what the number of runs is expected; empty for one that does not choose.
    """

    batches: Sequence[Batch]
    estimate: Estimate
    fewest: Estimate | None = None
    most: Estimate | None = None
    how: tuple[str, ...] = ()


def _reckoned(estimate: Estimate) -> str:
    """Return what the time of a sweep is reckoned from."""
    if estimate.bound:
        return "if windows of which nothing is known last as long as they may"
    if not estimate.known:
        return "by compute times, bytes and links: none of its points was measured before"
    others = estimate.windows - estimate.known
    like = f", and {others} at other points as much by the same measure" if others else ""
    return f"if {estimate.known} windows take what earlier ones at their points took{like}"


def plan_text(definition: Definition, outlined: Outlined, salt: str) -> str:
    """Every run of a sweep of this salt and what each measures."""
    file, found, estimate = definition.file, outlined.batches, outlined.estimate
    measurements = sum(len(batch.windows) for batch in found)
    rechecks = sum(key[2] for batch in found for key in batch.windows.values())
    variables = plantext.variables_text(definition.variables)
    lines = [
        *variables.splitlines(),
        f"sweep {file.name}: {len(definition.points)} points, "
        + ("" if definition.until is None else "at least ")
        + (f"{_times(definition.repetitions)} each" if definition.repetitions else "of which some are measured")
        + (f", and {rechecks} again in fresh runs" if file.recheck else ""),
        *(f"  {line}" for line in outlined.how),
        f"  {'about ' if outlined.how else ''}{measurements} measurements in {len(found)} runs "
        f"({file.mode} mode, {file.order} order); "
        f"each tried {_times(file.attempts)} at most"
        + (
            ", and no further in a try once it is lost" if any(one.experiment.lost for one in definition.points) else ""
        ),
        f"  {plantext.salt_text(salt)}; "
        + (
            "the same random numbers for all points of a repetition"
            if file.draws == "common"
            else "each measurement has its own"
        ),
        f"  {estimate_text(estimate)}"
        + (
            f", {_reckoned(estimate)}"
            if estimate.seconds
            else ": no earlier run of it is known, and `measure.at_most` sets no bound"
        ),
        *(
            [f"  {estimate_text(outlined.fewest)} if all ends early, {estimate_text(outlined.most)} if nothing does"]
            if outlined.fewest is not None and outlined.most is not None
            else []
        ),
        "",
    ]
    for number, batch in enumerate(found, start=1):
        checks = " (check in a fresh run)" if any(key[2] for key in batch.windows.values()) else ""
        lines.append(f"run {number}: repetition {batch.repetition}{checks}")
        lines += [
            f"  {name}: point {key[0]}: {values_text(batch.points[name].values)}" for name, key in batch.windows.items()
        ]
    return "\n".join(lines)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


class PointData(TypedDict):
    """A point of a sweep, by its digest."""

    point: str
    values: AxisValues


class BatchData(TypedDict):
    """A run of a sweep: what each of its windows measures, as the manifest has it (`records.Point`)."""

    repetition: int
    windows: dict[str, JsonObject]


class EstimateData(TypedDict):
    """Seconds, if they can be known, and of how many of the windows earlier ones are known."""

    seconds: float | None
    known_windows: int
    windows: int


class PlanData(TypedDict):
    """What a sweep would do; of one that goes on `until` something is known, the runs that are likely."""

    sweep: str
    definition: str
    salt: str
    variables: dict[str, plan.VariableData]
    points: list[PointData]
    repetitions: int
    until: JsonObject | None
    runs: list[BatchData]
    estimate: EstimateData
    fewest_s: float | None
    most_s: float | None


def plan_data(definition: Definition, outlined: Outlined, salt: str) -> PlanData:
    """Return the same for JSON."""
    found, estimate, until = outlined.batches, outlined.estimate, definition.until
    return {
        "sweep": definition.file.name,
        "definition": definition.digest,
        "salt": salt,
        "variables": plan.variables_data(definition.variables),
        "points": [{"point": point.point, "values": point.values} for point in definition.points],
        "repetitions": definition.repetitions,
        "until": None if until is None else until.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "runs": [{"repetition": batch.repetition, "windows": _points_data(batch)} for batch in found],
        "estimate": {"seconds": estimate.seconds, "known_windows": estimate.known, "windows": estimate.windows},
        "fewest_s": None if outlined.fewest is None else outlined.fewest.seconds,
        "most_s": None if outlined.most is None else outlined.most.seconds,
    }


def _points_data(batch: Batch) -> dict[str, JsonObject]:
    return {window: dataclasses.asdict(point) for window, point in batch.about().items()}


def batch_text(batch: Batch) -> str:
    """Return what the next run measures."""
    points = list(batch.points.values())
    if len(points) == 1:
        return f"{values_text(points[0].values)}, repetition {batch.repetition}"
    return f"{len(points)} windows, repetition {batch.repetition}"


def head_text(sweep: Sweep, ledger: Ledger, keys: Sequence[Key]) -> str:
    """Where a sweep is taken up."""
    done = len(ledger.done.intersection(keys))
    return f"sweep {sweep.id} of {sweep.name}: {len(keys)} measurements, {done} of them done"


def run_lines(path: Path, manifest: Summary) -> list[str]:
    """How a run of a sweep went: a line, and why what it measured does not count."""
    valid = sum(window.valid for window in manifest.windows)
    planned = len(manifest.points)
    head = f"  {manifest.run}: {manifest.outcome}, {valid} of {planned} valid"
    lines = [head if valid == planned else f"{head}  ({path})"]
    if manifest.outcome == "failed":
        lines += ["    " + line for line in str(manifest.error).splitlines()[:3]]
    lines += [f"    {name}: {why}" for name, why in manifest.unreached.items()]
    for window in manifest.windows:
        lines += [f"    {window.name}: {reason}" for reason in window.reasons]
    return lines


def summary_text(sweep: Sweep, ledger: Ledger, keys: Sequence[Key]) -> str:
    """Return a row for every point: its loads, its training, how many of its measurements count.

    And why others do not.
    """
    names = short_names(sweep.plan.axes)
    rows = []
    wanted = {key[0] for key in keys}
    for point in sweep.plan.points:
        if point.point not in wanted:
            continue
        good = [one for one in sweeps.chosen(ledger.found) if one.point == point.point]
        planned = sum(key[0] == point.point and not key[2] for key in keys)
        rows.append(
            [
                point.point,
                *(where.text_of(point.values[axis]) for axis in sweep.plan.axes),
                *_figures(means(good)),
                f"{len(good)}/{planned}",
            ]
        )
    head = ["point", *(names[axis] for axis in sweep.plan.axes), "achieved", "mean", "p50", "p99", "valid"]
    lines = ["", layout.table(head, rows)]
    values = {point.point: point.values for point in sweep.plan.points}
    lines += [_check(ledger, check, values) for check in _checks(ledger)]
    missing = [key for key in keys if key not in ledger.done]
    for key, why in ((key, _why(ledger, key)) for key in missing):
        check = ", check" if key[2] else ""
        lines.append(f"missing: {values_text(values[key[0]])}, repetition {key[1]}{check}: {why}")
    lines += [f"left out: {host}: {why}" for host, why in ledger.quarantined.items()]
    lines += ["", str(sweep.path)]
    return "\n".join(lines)


def _checks(ledger: Ledger) -> list[MeasuredWindow]:
    """Windows that were measured again in runs of their own."""
    return list({one.point: one for one in ledger.found if one.recheck and one.valid and one.window.training}.values())


def _check(ledger: Ledger, check: MeasuredWindow, values: AxisValues) -> str:
    """Return what a fresh run makes of a point beside what windows among others made of it: median iteration times."""
    alone = check.window.training[0].p50_s
    rows = [one.window.training[0] for one in sweeps.chosen(ledger.found) if one.point == check.point]
    among = [known(row.p50_s) for row in rows]
    text = f"check: {values_text(values[check.point])}: {runtext.ms_or_dash(alone)} p50 in a fresh run"
    if not among:
        return text
    mean = sum(among) / len(among)
    return f"{text}, {known(alone) / mean - 1:+.1%} of {runtext.ms_or_dash(mean)} in windows"


class Means(NamedTuple):
    """Means over the repetitions of a point: of the load that arrived, and of times of the first job; None unknown."""

    achieved_bps: float | None
    mean_s: float | None
    p50_s: float | None
    p99_s: float | None


def means(good: Sequence[MeasuredWindow]) -> Means:
    """Return the means over measurements of a point that count."""
    rows = [one.window.training[0] for one in good if one.window.training]
    every = (
        [one.achieved_bps for one in good],
        [row.mean_s for row in rows],
        [row.p50_s for row in rows],
        [row.p99_s for row in rows],
    )
    return Means(*(fmean(values) if (values := [one for one in of if one is not None]) else None for of in every))


def _figures(found: Means) -> list[str]:
    times = (found.mean_s, found.p50_s, found.p99_s)
    return [runtext.rate_or_dash(found.achieved_bps), *map(runtext.ms_or_dash, times)]


def _why(ledger: Ledger, key: Key) -> str:
    tries = ledger.tries[key]
    return f"tried {_times(tries)}: {ledger.why[key].splitlines()[0]}" if tries else "not tried"


class MeasurementData(TypedDict):
    """A measurement of a sweep; `why` it is not valid, where it is not."""

    point: str
    repetition: int
    recheck: bool
    valid: bool
    tries_in_vain: int
    why: str | None


class SummaryData(TypedDict):
    """How a sweep went; `quarantined` says of hosts why they are left out."""

    sweep: str
    id: str
    path: str
    measurements: list[MeasurementData]
    quarantined: Mapping[str, str]


def summary_data(sweep: Sweep, ledger: Ledger, keys: Sequence[Key]) -> SummaryData:
    """Return the same for JSON."""
    return {
        "sweep": sweep.name,
        "id": sweep.id,
        "path": str(sweep.path),
        "measurements": [
            {
                "point": key[0],
                "repetition": key[1],
                "recheck": key[2],
                "valid": key in ledger.done,
                "tries_in_vain": ledger.tries[key],
                "why": ledger.why.get(key) if key not in ledger.done else None,
            }
            for key in keys
        ],
        "quarantined": ledger.quarantined,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Measurements done and in all, and how long the others may take, as of the instant `since` (local time).

    `after` is of what follows the run that begins then: should that run take longer than estimated, all ends later.
    """

    name: str  # of the study or the sweep
    done: int
    total: int
    left: Estimate
    after: Estimate
    since: datetime

    def ends(self, now: datetime) -> datetime | None:
        """When all will have been measured; None where that is not known."""
        if self.left.seconds is None or self.after.seconds is None:
            return None
        return max(self.since + timedelta(seconds=self.left.seconds), now + timedelta(seconds=self.after.seconds))

    def text(self) -> str:
        """For a line that stays: "12 of 80 done, about 40 min left, until about 14:32"."""
        progress = f"{self.done} of {self.total} done"
        if self.done >= self.total:
            return progress
        return f"{progress}, {estimate_text(self.left)} left{self._until(self.since)}"

    def brief(self, windows: int, now: datetime) -> str:
        """For the live line, `windows` windows of the run being measured already: "14/80, until about 14:32"."""
        return f"{min(self.total, self.done + windows)}/{self.total}{self._until(now)}"

    def _until(self, now: datetime) -> str:
        end = self.ends(now)
        if end is None:
            return ""
        return (
            f", until {clock_text(end, now)} at the latest"
            if self.left.bound
            else f", until about {clock_text(end, now)}"
        )


def clock_text(at: datetime, now: datetime) -> str:
    """Return an instant that is to come, as people say it: the time, from tomorrow on with the day."""
    if at.date() == now.date():
        return f"{at:%H:%M}"
    return f"{at:%a %H:%M}" if at - now < _WEEK else f"{at:%Y-%m-%d %H:%M}"
