"""Follow the points of a sweep or an experiment night by night: the steps in them, and whether they stayed the same.

A step is one of the mean, the median or the tail. Mean and median are searched by the levels of nights
(`level_steps`), the tail by counts of long iterations pooled over nights, as `regression` judges it. A point without a
step gets the verdict of a comparison of its later nights with its earlier ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from statistics import geometric_mean

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare import regression, selection
from orchestrator.analysis.compare.regression import (
    DEFAULT,
    LEVELS,
    STATISTICS,
    Floats,
    Pair,
    PointChange,
    Rule,
    RunSeries,
    Verdict,
    longer_tail,
)
from orchestrator.analysis.compare.selection import Measurement, ValidMeasurements
from orchestrator.analysis.stats.autocorrelation import autocorrelation
from orchestrator.analysis.stats.level_steps import CAUTION, FEWEST_IN_ALL, Step, best_cut, findable, splits, steps
from orchestrator.analysis.stats.statistics import quantile
from orchestrator.store import stores
from orchestrator.store.manifests.summaries import Training, known
from orchestrator.store.rundir import Listed
from orchestrator.store.stores import Store

MOST_NIGHTS = 90
FEWEST_OF_TAIL = 100  # iterations of a night
_OF_LEVELS = 0.9  # of alpha, for mean and median; the rest is for the tail


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A point night by night (seconds, NaN where not measured), with the steps in it or that could be.

    `verdict` is that of the last step, or of the later half of the nights against the earlier one: "same" where mean
    and median are, and neither the tail nor a step tells otherwise. None where iterations were not read.
    """

    point: str
    label: str
    days: tuple[str, ...]
    mean_s: tuple[float, ...]
    p50_s: tuple[float, ...]
    steps: tuple[Step, ...]
    findable: float  # the smallest step of mean and median amid the nights that would be told, a share of 1; NaN: none
    verdict: Verdict | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The measurements of one night: each point's levels in seconds, the points' labels, and the runs' folders."""

    began_ns: int
    mean_s: Mapping[str, float]
    p50_s: Mapping[str, float]
    labels: Mapping[str, str]
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InBrief:
    """The nights of a sweep or an experiment, oldest first, and the history of each of its points over them."""

    nights: tuple[Night, ...]
    points: tuple[History, ...]


def of_nights(nights: Sequence[Night], *, rule: Rule = DEFAULT) -> tuple[History, ...]:
    """Return the levels and steps of every point over these nights; alpha is shared out over points and statistics."""
    labels = {key: label for night in nights for key, label in night.labels.items()}
    keys = sorted({key for night in nights for key in night.p50_s}, key=lambda key: selection.natural(labels[key]))
    days = tuple(day_text(night.began_ns) for night in nights)
    found = []
    for key in keys:
        values = {
            "mean": tuple(night.mean_s.get(key, math.nan) for night in nights),
            "p50": tuple(night.p50_s.get(key, math.nan) for night in nights),
        }
        alpha = _OF_LEVELS * rule.alpha / len(keys) / len(LEVELS)
        of_each = [steps(values[of], margin=rule.margin[of], alpha=alpha, statistic=of) for of in LEVELS]
        smallest = [findable(values[of], margin=rule.margin[of], alpha=alpha) for of in LEVELS]
        found.append(
            History(
                point=key,
                label=labels[key],
                days=days,
                mean_s=values["mean"],
                p50_s=values["p50"],
                steps=_in_order([step for one in of_each for step in one]),
                findable=max(smallest),
            )
        )
    return tuple(found)


def _in_order(found: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(sorted(found, key=lambda step: (step.night, STATISTICS.index(step.statistic))))


def in_brief(entries: Iterable[Listed]) -> dict[str, InBrief]:
    """Return the nights and histories of every sweep and experiment of a store, by name, from manifests alone.

    A name with a single night is left out; of the others the last MOST_NIGHTS nights count.
    """
    of_name: dict[str, dict[str, list[Listed]]] = defaultdict(lambda: defaultdict(list))
    for entry in sorted(entries, key=lambda entry: entry.run):
        if entry.sealed:
            of_name[entry.path.parent.name][stores.instance(entry)].append(entry)
    found = {}
    for name in sorted(of_name):
        nights = sorted(filter(None, map(_night, of_name[name].values())), key=lambda night: night.began_ns)
        if len(nights) > 1:
            last = nights[-MOST_NIGHTS:]
            found[name] = InBrief(nights=tuple(last), points=of_nights(last))
    return found


def _night(entries: Sequence[Listed]) -> Night | None:
    """Return the night of some runs, oldest first; None without a valid window.

    The last valid window of each repetition of a point counts.
    """
    last: dict[tuple[str, tuple[str, ...]], tuple[selection.WindowPoint, Training]] = {}
    for entry in entries:
        for window in entry.manifest.windows:
            place = selection.point_of_window(entry, window.name)
            if place is None or not window.valid:
                continue
            for row in window.training:
                if row.p50_s and row.p50_s > 0:
                    key = f"{place.key} {row.job}"
                    last[key, place.repetition] = (place, row)
    if not last:
        return None
    several_jobs = len({row.job for _, row in last.values()}) > 1
    means, medians, labels = defaultdict(list), defaultdict(list), {}
    for (key, _), (place, row) in last.items():
        medians[key].append(known(row.p50_s))
        if row.mean_s and row.mean_s > 0:
            means[key].append(row.mean_s)
        labels[key] = f"{place.label}, {row.job}" if several_jobs else place.label
    return Night(
        began_ns=min(entry.manifest.began_ns for entry in entries),
        labels=labels,
        mean_s={key: geometric_mean(values) for key, values in means.items()},
        p50_s={key: geometric_mean(values) for key, values in medians.items()},
        folders=tuple(f"{entry.path.parent.name}/{entry.path.name}" for entry in entries),
    )


def day_text(ns: int) -> str:
    """Return the day of an instant, in UTC."""
    return datetime.fromtimestamp(ns / 1e9, tz=timezone.utc).date().isoformat()


def nights(store: Store, name: str, *, most: int | None = None) -> list[ValidMeasurements]:
    """Return every instance of a sweep, or every day of an experiment, that has a valid point; oldest first.

    With `most` the last ones alone. Whole manifests are not read, and of tables only columns of iterations.
    """
    groups: dict[str, list[Listed]] = defaultdict(list)
    for entry in sorted(stores.of_name(store, name), key=lambda entry: entry.run):
        groups[stores.instance(entry)].append(entry)
    found = [(_began_ns(entries), windows) for entries in groups.values() if (windows := _counted(entries))]
    last = sorted(found, key=lambda night: night[0])[-(most or 0) :]
    times = selection.times_of_store(store, selection.unique(window.entry for _, windows in last for window in windows))
    return [selection.measured(windows, times, began_ns=began_ns) for began_ns, windows in last]


def _counted(entries: Sequence[Listed]) -> list[Measurement[Listed]]:
    return selection.last_valid(window for entry in entries for window in selection.windows_of(entry))


def _began_ns(entries: Sequence[Listed]) -> int:
    return min(entry.manifest.began_ns for entry in entries)


def histories(found: Sequence[ValidMeasurements], *, rule: Rule) -> tuple[History, ...]:
    """Return the history of every point over these nights, with its tail and its verdict."""
    levels = of_nights([_levels_of_night(one) for one in found], rule=rule)
    nights = {one.point: [night.points.get(one.point, ()) for night in found] for one in levels}
    with_tails = [
        replace(one, steps=_in_order([*one.steps, *_tail_step(nights[one.point], rule, points=len(levels))]))
        for one in levels
    ]
    pairs = [_halves(one.point, nights[one.point]) for one in with_tails]
    changes = regression.compare(pairs, rule) if pairs else ()
    return tuple(_judged(one, change, len(found)) for one, change in zip(with_tails, changes, strict=True))


def _levels_of_night(measured: ValidMeasurements) -> Night:
    return Night(
        began_ns=measured.began_ns,
        mean_s={key: _level(found, lambda seconds: float(np.mean(seconds))) for key, found in measured.points.items()},
        p50_s={key: _level(found, lambda seconds: quantile(seconds, 0.5)) for key, found in measured.points.items()},
        labels=measured.labels,
    )


def _level(series: Sequence[RunSeries], of: Callable[[Floats], float]) -> float:
    logs = [math.log(of(one.seconds)) for one in series if len(one.seconds)]
    return math.exp(float(np.mean(logs))) if logs else math.nan


def _halves(point: str, nights: Sequence[Sequence[RunSeries]]) -> Pair:
    """Return the later half of the nights in which a point was measured, against the earlier half."""
    some = [night for night in nights if night]
    middle = len(some) // 2
    earlier, later = (tuple(one for night in half for one in night) for half in (some[:middle], some[middle:]))
    return Pair(point=point, a=earlier, b=later)


def _judged(history: History, change: PointChange, nights: int) -> History:
    if history.steps:
        last = history.steps[-1]
        verdict: Verdict = "worse" if last.ratio > 1 else "better"
        return replace(history, verdict=verdict, why=f"{last.statistic} since {history.days[last.night]}")
    if nights < FEWEST_IN_ALL:
        return replace(history, verdict="cannot tell", why=f"fewer than {FEWEST_IN_ALL} nights")
    return replace(history, verdict=change.verdict, why=change.why)


def _tail_step(nights: Sequence[Sequence[RunSeries]], rule: Rule, *, points: int) -> Iterator[Step]:
    """Yield the night since which the tail is longer or shorter, by counts that are pooled over the nights' runs."""
    joined = [
        (place, RunSeries(run=str(place), seconds=np.concatenate([one.seconds for one in night])))
        for place, night in enumerate(nights)
        if sum(len(one.seconds) for one in night) >= FEWEST_OF_TAIL
    ]
    if len(joined) < FEWEST_IN_ALL:
        return
    series = [one for _, one in joined]
    end = quantile(np.concatenate([one.seconds for one in series]), 0.99)
    above = np.array([np.count_nonzero(one.seconds > end) for one in series])
    sizes = np.array([len(one.seconds) for one in series])
    cut = best_cut(above / sizes)
    wider = _scatter(above, sizes, cut)
    before, after = series[:cut], series[cut:]
    p = min(
        longer_tail(*sides, rule.margin["p99"], most=True, least_wider=wider)
        for sides in ((before, after), (after, before))
    )
    p = min(1.0, 2 * splits(len(series)) * p)
    if p < (1 - _OF_LEVELS) * rule.alpha / points:
        before_s, after_s = (_level(side, lambda seconds: quantile(seconds, 0.99)) for side in (before, after))
        yield Step(statistic="p99", night=joined[cut][0], before_s=before_s, after_s=after_s, p=p)


def _scatter(above: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], cut: int) -> float:
    """Return by how much counts of nights vary more than binomial ones at most, about their shares on either side.

    Stalls gather in nights, and such nights follow one another: the bound of 95 % on the scatter, for as many nights as
    are independent.
    """
    from scipy import special

    residuals = []
    for side in (slice(None, cut), slice(cut, None)):
        share = max(float(above[side].sum()), 0.5) / float(sizes[side].sum())
        residuals.append((above[side] - share * sizes[side]) / np.sqrt(share * (1 - share) * sizes[side]))
    found = np.concatenate(residuals)
    effective = autocorrelation(found).effective(caution=CAUTION)
    repeated = 1.0 if math.isnan(effective) else len(found) / effective
    least = float(special.chdtri(len(found) - 2, 0.95))
    return max(1.0, float(found @ found) / least) * repeated
