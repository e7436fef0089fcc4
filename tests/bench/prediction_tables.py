"""Tables of predictions beside measurements: how far off each kind of setting was, and every setting.

An error is predicted over measured, less 1. Goals stand beside what was reached.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.predict.foreseeing import INTERVAL, MODEL_ERROR
from orchestrator.predict.simulation.simulating import Grain
from tests.bench.figure import Figure, Table

EXACT = 1e-9  # of a factor
LEAST_EXPOSED = 0.05  # of an iteration: exposed communication of a smaller share is not judged
LEAST_HELD = 0.85  # of intervals of 90 %
MOST_HELD = 0.95
LEAST_SPEARMAN = 0.9
RANKED = 4  # settings whose order means something


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """The largest errors that are to be reached."""

    p50: float = 0.04
    worst: float = 0.15
    p99: float = 0.10
    exposed: float = 0.12


GOALS = Goals()
GOALS_OF = {"Salamy": Goals(p50=0.025, worst=0.10, p99=0.07)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Iterations of rank 0 of a job in a window, and what of them is communication that nothing hides, in seconds."""

    mean_s: float
    p50_s: float
    p99_s: float
    exposed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A job of a window as it was predicted and measured; `grain` is that of the prediction, `by_grain` has both."""

    kind: str
    run: str
    window: str
    job: str
    ranked: bool
    grain: Grain
    predicted: Times
    interval_s: tuple[float, float]  # of the mean
    measured: Times
    by_grain: Mapping[Grain, Times]

    @property
    def name(self) -> str:
        return ", ".join(filter(None, (self.run, self.window, self.job)))

    @property
    def beyond(self) -> float:
        """The factor, less 1, by which both ends of the interval of draws must move to hold the measured mean."""
        low, high = (self.interval_s[0] * (1 + MODEL_ERROR), self.interval_s[1] / (1 + MODEL_ERROR))
        return max(low / self.measured.mean_s, self.measured.mean_s / high, 1.0) - 1

    @property
    def held(self) -> bool:
        """Whether the interval holds the measured mean."""
        low, high = self.interval_s
        return low <= self.measured.mean_s <= high

    def error(self, what: str, *, grain: Grain | None = None) -> float:
        """Return the error of one of `Times`, of the default's grain unless another is asked for."""
        times = self.predicted if grain is None else self.by_grain[grain]
        return float(getattr(times, what) / getattr(self.measured, what)) - 1

    @property
    def exposed_error(self) -> float:
        """The error of exposed communication; NaN where that is too short to be judged."""
        if self.measured.exposed_s < LEAST_EXPOSED * self.measured.mean_s:
            return math.nan
        return self.error("exposed_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A job of a window that was measured twice, in two runs: median and 99th percentile of both, in seconds."""

    name: str
    p50_s: tuple[float, ...]
    p99_s: tuple[float, ...]


def figures(found: Sequence[Compared]) -> Iterator[Figure]:
    """Yield the errors of each kind of setting and of all, in %, as the tables have them, too."""
    for kind in dict.fromkeys(one.kind for one in found):
        own = [one.error("p50_s") for one in found if one.kind == kind]
        yield _figure(f"{kind}: error of the median", own, GOALS_OF.get(kind, GOALS).p50)
    if found:
        yield _figure("all: error of the median", [one.error("p50_s") for one in found], GOALS.p50)
        yield _figure("all: error of p99", [one.error("p99_s") for one in found], GOALS.p99)
    if judged := [one.exposed_error for one in found if not math.isnan(one.exposed_error)]:
        yield _figure("all: error of exposed communication", judged, GOALS.exposed)


def _figure(what: str, errors: Sequence[float], goal: float) -> Figure:
    sizes = tuple(100 * abs(one) for one in errors)
    note = f"mean {statistics.fmean(sizes):.1f}, goal {100 * goal:g}"
    return Figure(what=what, unit="%", values=sizes, note=note, tabled=True)


def made(found: Sequence[Compared], missing: Mapping[str, str], again: Sequence[Repeated] = ()) -> Iterator[Table]:
    """Yield all tables; `missing` has by run why it was not measured or not predicted, `again` what was twice."""
    yield kinds_table(found)
    if again:
        yield repeated_table(again)
    yield intervals_table(found)
    yield grains_table(found)
    yield settings_table(found)
    if missing:
        rows = tuple((f"`{run}`", why) for run, why in missing.items())
        yield Table(title="Not measured or not predicted", columns=("run", "why"), rows=rows)


def kinds_table(found: Sequence[Compared]) -> Table:
    """Return a row for each kind of setting and one for all, with what is missed marked as missed."""
    kinds = list(dict.fromkeys(one.kind for one in found))
    rows = [_kind(kind, [one for one in found if one.kind == kind], GOALS_OF.get(kind, GOALS)) for kind in kinds]
    rows.append(_kind("all", found, GOALS))
    rows.append(
        (
            "goal",
            "150",
            f"{GOALS.p50:.0%}",
            f"{GOALS.worst:.0%}",
            f"{GOALS.p99:.0%}",
            f"{GOALS.exposed:.0%}",
            f"{LEAST_HELD:.0%} to {MOST_HELD:.0%}",
            f"{LEAST_SPEARMAN}",
        )
    )
    rows += [
        (f"goal of {kind}", "", f"{goals.p50:.1%}", f"{goals.worst:.0%}", f"{goals.p99:.0%}", "", "", "")
        for kind, goals in GOALS_OF.items()
        if kind in kinds
    ]
    columns = (
        "settings",
        "number",
        "mean error of the median",
        "largest",
        "mean error of p99",
        "of exposed communication",
        "90 % intervals that hold",
        "Spearman",
    )
    return Table(title="By kind of setting", columns=columns, rows=tuple(rows))


def _kind(name: str, found: Sequence[Compared], goals: Goals) -> tuple[str, ...]:
    if not found:
        return (name, "0", *[""] * 6)
    p50 = [abs(one.error("p50_s")) for one in found]
    p99 = [abs(one.error("p99_s")) for one in found]
    exposed = [abs(one.exposed_error) for one in found if not math.isnan(one.exposed_error)]
    worst = max(found, key=lambda one: abs(one.error("p50_s")))
    held = sum(one.held for one in found) / len(found)
    spearman = ranks_agree(found)
    return (
        name,
        str(len(found)),
        _judged(statistics.fmean(p50), lambda value: value <= goals.p50),
        f"{_judged(max(p50), lambda value: value <= goals.worst)} (`{worst.name}`)",
        _judged(statistics.fmean(p99), lambda value: value <= goals.p99),
        _judged(statistics.fmean(exposed), lambda value: value <= goals.exposed) if exposed else "",
        _judged(held, lambda value: LEAST_HELD <= value <= MOST_HELD),
        "" if math.isnan(spearman) else f"{spearman:.2f}{_missed(spearman >= LEAST_SPEARMAN)}",
    )


def ranks_agree(found: Sequence[Compared]) -> float:
    """Return the correlation of ranks of predicted and measured runs by their mean iterations, summed over jobs.

    It is the mean over kinds and windows that are ranked; NaN without one.
    """
    from scipy import stats

    sums: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for one in found:
        if one.ranked:
            runs = sums.setdefault((one.kind, one.window), {})
            predicted, measured = runs.get(one.run, (0.0, 0.0))
            runs[one.run] = (predicted + one.predicted.mean_s, measured + one.measured.mean_s)
    pairs = [list(runs.values()) for runs in sums.values() if len(runs) >= RANKED]
    values = [
        float(stats.spearmanr([one for one, _ in runs], [other for _, other in runs]).statistic) for runs in pairs
    ]
    return statistics.fmean(values) if values else math.nan


def repeated_table(again: Sequence[Repeated]) -> Table:
    """Return by how much a second run of a setting is off the first: no prediction can be closer to both."""

    def row(name: str, values: Sequence[tuple[float, ...]]) -> tuple[str, ...]:
        off = [abs(second / first - 1) for first, second in values]
        worst = again[max(range(len(off)), key=lambda place: off[place])]
        return name, str(len(off)), _percent(statistics.fmean(off)), f"{_percent(max(off))} (`{worst.name}`)"

    rows = (row("median", [one.p50_s for one in again]), row("99th percentile", [one.p99_s for one in again]))
    return Table(
        title="The same settings measured again", columns=("of", "number", "mean change", "largest"), rows=rows
    )


def intervals_table(found: Sequence[Compared]) -> Table:
    """Return how many intervals hold: of draws alone, as printed, and widened by what others need.

    What others need is what the model itself gets wrong. An interval that is widened by what 90 % of the settings of
    all other kinds need is a conformal one, with the distance beyond it as the score (Romano, Patterson and Candes,
    "Conformalized quantile regression", NeurIPS 2019).
    """
    kinds = {one.kind for one in found}
    by_others = {kind: _needed([one for one in found if one.kind != kind]) for kind in kinds}
    widths = {
        "of draws alone": ("", [one.beyond <= EXACT for one in found]),
        "as printed": (_percent(MODEL_ERROR), [one.held for one in found]),
        "by what 90 % of all settings need": (
            _percent(needed := _needed(found)),
            [one.beyond <= needed for one in found],
        ),
        "by what 90 % of the settings of other kinds need": (
            f"{_percent(min(by_others.values(), default=0.0))} to {_percent(max(by_others.values(), default=0.0))}",
            [one.beyond <= by_others[one.kind] for one in found],
        ),
    }
    rows = [(name, width, f"{sum(held)} of {len(held)}") for name, (width, held) in widths.items()]
    return Table(title="Intervals of 90 %", columns=("interval", "each end by", "hold"), rows=tuple(rows))


def _needed(found: Sequence[Compared]) -> float:
    """Return by how much intervals must be widened so that INTERVAL of them hold; 0 of none."""
    ordered = sorted(one.beyond for one in found)
    return ordered[math.ceil(INTERVAL * len(ordered)) - 1] if ordered else 0.0


def grains_table(found: Sequence[Compared]) -> Table:
    """Return the errors of both grains over all settings, and how often each is the default's."""
    rows = []
    for grain in dict.fromkeys(grain for one in found for grain in one.by_grain):
        own = [one for one in found if grain in one.by_grain]
        errors = (statistics.fmean(abs(one.error(what, grain=grain)) for one in own) for what in ("p50_s", "p99_s"))
        rows.append((grain, f"{sum(one.grain == grain for one in own)} of {len(own)}", *map(_percent, errors)))
    columns = ("grain", "is the default's", "mean error of the median", "mean error of p99")
    return Table(title="By grain", columns=columns, rows=tuple(rows))


def settings_table(found: Sequence[Compared]) -> Table:
    """Return a row for each job of each setting: predicted / measured in ms, and the error."""
    rows = []
    for one in found:
        predicted, measured = one.predicted, one.measured
        low, high = map(_ms, one.interval_s)
        rows.append(
            (
                f"`{one.name}`",
                one.grain,
                f"{_ms(predicted.mean_s)} / {_ms(measured.mean_s)}",
                f"{low} to {high}{'' if one.held else ', missed'}",
                *_pair(predicted.p50_s, measured.p50_s),
                *_pair(predicted.p99_s, measured.p99_s),
                *_pair(predicted.exposed_s, measured.exposed_s, judged=not math.isnan(one.exposed_error)),
            )
        )
    columns = ("setting", "grain", "mean (ms)", "90 % interval", "p50 (ms)", "error of p50")
    columns += ("p99 (ms)", "error of p99", "exposed (ms)", "error of exposed")
    return Table(title="Every setting: predicted / measured", columns=columns, rows=tuple(rows))


def _pair(predicted_s: float, measured_s: float, *, judged: bool = True) -> tuple[str, str]:
    return f"{_ms(predicted_s)} / {_ms(measured_s)}", f"{predicted_s / measured_s - 1:+.1%}" if judged else ""


def _judged(value: float, reached: Callable[[float], bool]) -> str:
    return f"{_percent(value)}{_missed(reached(value))}"


def _missed(reached: bool) -> str:
    return "" if reached else ", missed"


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"
