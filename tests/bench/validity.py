"""How often printed intervals hold, wrong alarms are raised and changes are found, on simulated runs and nights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import signal

from orchestrator.analysis.compare.regression import NIGHTS_A_YEAR, compare
from orchestrator.analysis.stats import fits, levels
from orchestrator.analysis.stats.level_steps import steps
from orchestrator.analysis.stats.statistics import Estimate, summarise
from tests.bench.figure import Figure, Settings, Table
from tests.bench.simulated import LEVEL_S, Nights, Session, iterations

COVERAGE = "92 to 98 of 100"
PRINTED = 0.05  # a cell in which fewer intervals are printed counts as "unknown"

_FEW = "few samples are left, and of those cases the ones are printed that look better than they are"
_SKEW = "the mean of so few effective samples of skewed times is not normal; the median holds"
_COMMON = "nights that move all points at once are five numbers, whatever the points: more nights find it"
_TAILS = "outside the model: nights with heavy tails"
_FOLLOW = "outside the model: five nights in a row look more alike than nights are"
_UNLIKE = "outside the model: variances of points that steady one another are taken to be alike"
_DRIFT = "outside the model: it is a slow-down, and is told as one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table: what came out in a cell, against what goal; `why` says why one was not reached."""

    method: str
    cell: str
    value: float
    unit: str
    goal: str
    reached: bool
    why: str = ""
    note: str = ""
    tries: int = 0

    @property
    def verdict(self) -> str:
        return "reached" if self.reached else f"not reached: {self.why}"


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Every row as a figure, then all of them as a table."""
    found = []
    with ProcessPoolExecutor() as pool:
        for row in itertools.chain.from_iterable(pool.map(_rows, CELLS, itertools.repeat(settings))):
            found.append(row)
            yield Figure(
                what=f"{row.method}, {row.cell}",
                unit=row.unit,
                values=(row.value,),
                note=f"goal {row.goal}: {row.verdict}. {row.note}".strip(),
                tabled=True,
            )
    yield table(found)


def table(rows: Sequence[Row]) -> Table:
    """Return a line for each cell: what came out, of how many simulated cases, and whether the goal was reached."""
    lines = (
        (
            row.method,
            row.cell,
            f"{row.value:.3g} {row.unit}" + (f" ({row.note})" if row.note else ""),
            row.tries,
            row.goal,
            row.verdict,
        )
        for row in rows
    )
    return Table(title="", columns=("method", "cell", "result", "of", "goal", "reached"), rows=tuple(lines))


def _coverage(method: str, cell: str, held: Sequence[bool], tried: int, why: str, *, required: bool) -> Row:
    """The row of intervals that were printed in `held` of `tried` cases."""
    printed = len(held) / tried
    share = 100 * float(np.mean(held)) if held else math.nan
    note = f"printed in {100 * printed:.0f} of 100"
    if printed < PRINTED:
        return Row(
            method=method,
            cell=cell,
            value=100 * printed,
            unit="of 100 printed",
            goal="unknown",
            reached=not required,
            why=why,
            tries=tried,
        )
    # The range, and two standard errors of the simulation.
    slack = 200 * math.sqrt(0.95 * 0.05 / len(held))
    return Row(
        method=method,
        cell=cell,
        value=share,
        unit="of 100 hold",
        goal=COVERAGE,
        note=note,
        reached=92 - slack <= share <= 98 + slack,
        why=why,
        tries=tried,
    )


def _within_runs(settings: Settings) -> Iterator[Row]:
    cells = [(n, ar, "normal") for n in (20, 50, 100, 400) for ar in (0.0, 0.5, 0.8)]
    cells += [(100, 0.5, shape) for shape in ("skewed", "sum", "drift", "outlier")]
    for n, ar, shape in cells:
        yield from _of_run(settings, n, ar, shape, ("mean", "p50"))
    for ar in (0.0, 0.5):
        yield from _of_run(settings, 1000, ar, "normal", ("p99",))


def _of_run(settings: Settings, n: int, ar: float, shape: str, of: Sequence[str]) -> Iterator[Row]:
    random = np.random.default_rng(1)
    tries = settings.times(500, 60)
    held: dict[str, list[bool]] = {name: [] for name in of}
    for _ in range(tries):
        times, truth = iterations(random, n, ar, shape=shape)
        found = summarise(times)
        for name in of:
            estimate = getattr(found, name)
            if not math.isnan(estimate.low):
                held[name].append(estimate.low <= truth[name] <= estimate.high)
    told = "" if shape == "normal" else f", {shape}"
    for name in of:
        why = _SKEW if shape in ("skewed", "outlier") and name == "mean" else _FEW
        required = n >= 100 and ar <= 0.5
        yield _coverage(
            "interval within one run", f"{name}, n {n}, AR {ar:g}{told}", held[name], tries, why, required=required
        )


def _over_runs(settings: Settings) -> Iterator[Row]:
    tries = settings.times(4000, 400)
    for runs in (2, 3, 6):
        for spread in (0.002, 0.04):
            random = np.random.default_rng(2)
            logs = random.normal(0, spread, (tries, runs))
            found = (levels.level([Estimate(math.exp(log), math.nan, math.nan) for log in of]) for of in logs)
            held = [one.estimate.low <= 1 <= one.estimate.high for one in found]
            cell = f"{runs} runs, {spread:.1%} apart"
            yield _coverage("interval over runs", cell, held, tries, "", required=True)


def _sessions(settings: Settings) -> Iterator[Row]:
    tries = settings.times(600, 60)
    for runs in (2, 3, 6):
        for spread in (0.002, 0.04):
            for together in (0.0, 1.0):
                session = Session(runs=runs, run=spread, together=together)
                told, held = _told(session.drawn, tries)
                cell = f"{runs} runs a side, {spread:.1%} apart, {'together' if together else 'each point by itself'}"
                rate = 100 * float(np.mean([bool({"worse", "better"} & set(of)) for of in told]))
                yield Row(
                    method="same night, equal sides called different",
                    cell=cell,
                    value=rate,
                    unit="of 100",
                    goal="5 at most",
                    reached=rate <= 5 + 200 * math.sqrt(0.0475 / tries),
                    why="two runs a side do not say whether points move together",
                    tries=tries,
                )
                yield _coverage(
                    "same night, interval of the ratio",
                    cell,
                    held,
                    len(held),
                    "two runs a side do not say whether points move together",
                    required=True,
                )
    for runs, goal in ((1, "never"), (2, "90 at least")):
        told, _ = _told(Session(points=1, runs=runs, run=0.02, slower=2.0).drawn, tries)
        rate = 100 * float(np.mean([of == ["worse"] for of in told]))
        yield Row(
            method="same night, twice as long is found",
            cell=f"{runs} runs a side, 2 % apart",
            value=rate,
            unit="of 100",
            goal=goal,
            reached=rate == 0 if runs == 1 else rate >= 90,
            tries=tries,
        )


def _told(
    drawn: Callable[[np.random.Generator], list], tries: int, *, seed: int = 3
) -> tuple[list[list[str]], list[bool]]:
    """The verdicts of each try, and whether each interval of a median held a ratio of 1."""
    random = np.random.default_rng(seed)
    told, held = [], []
    for _ in range(tries):
        found = compare(drawn(random))
        told.append([point.verdict for point in found])
        changes = [point.change("p50") for point in found]
        held += [change.low <= 1 <= change.high for change in changes if not math.isnan(change.low)]
    return told, held


def _alarm_row(settings: Settings, nights: Nights, cell: str, why: str) -> Row:
    tries = settings.times(1000, 60)
    told, held = _told(nights.drawn, tries)
    alarms = sum("worse" in of for of in told)
    low, high = (NIGHTS_A_YEAR * bound / tries for bound in _poisson(alarms))
    coverage = f"; intervals hold in {100 * np.mean(held):.0f} of 100" if held else "; intervals unknown"
    rate = NIGHTS_A_YEAR * alarms / tries
    why = why or "by chance, as far as so many simulated nights say" if low <= 1 else why
    note = f"{low:.1f} to {high:.1f}{coverage}"
    return Row(
        method="wrong alarms",
        cell=cell,
        value=rate,
        unit="a year",
        goal="1 at most",
        reached=rate <= 1,
        why=why,
        note=note,
        tries=tries,
    )


def _poisson(count: int) -> tuple[float, float]:
    from scipy import stats

    low = float(stats.chi2.ppf(0.025, 2 * count) / 2) if count else 0.0
    return low, float(stats.chi2.ppf(0.975, 2 * count + 2) / 2)


def _alarms(baseline: int, settings: Settings) -> Iterator[Row]:
    for night in (0.0, 0.005, 0.01, 0.02):
        for together in (0.0, 1.0):
            nights = Nights(baseline=baseline, night=night, together=together)
            how = "together" if together else "each point by itself"
            told = f"{baseline} night{'s' if baseline > 1 else ''}, {night:.1%} apart, {how}"
            yield _alarm_row(settings, nights, told, "")


def _power(settings: Settings) -> Iterator[Row]:
    tries = settings.times(500, 40)
    for baseline, together, noisy in (
        (5, 0.0, 0.0),
        (5, 0.5, 0.0),
        (5, 0.0, 0.08),
        (5, 0.0, 0.15),
        (5, 1.0, 0.0),
        (7, 1.0, 0.0),
    ):
        nights = Nights(baseline=baseline, night=0.005, together=together, noisy=noisy, slower=1.05)
        told, _ = _told(nights.drawn, tries)
        quiet = 5 if noisy else 6
        rate = 100 * float(np.mean([verdict == "worse" for of in told for verdict in of[:quiet]]))
        how = {0.0: "each point by itself", 0.5: "half together", 1.0: "together"}[together]
        cell = f"{baseline} nights, 0.5 % apart, {how}" + (f", one point with runs {noisy:.0%} apart" if noisy else "")
        reached = rate >= 95 - 200 * math.sqrt(0.0475 / tries)
        yield Row(
            method="+5 % is found, at each quiet point",
            cell=cell,
            value=rate,
            unit="of 100",
            goal="95 at least",
            reached=reached,
            why=_COMMON,
            tries=tries,
        )
    random = np.random.default_rng(5)
    for night in (0.005, 0.01, 0.02):
        found = [compare(Nights(night=night).drawn(random))[0].change("p50").detectable for _ in range(tries // 4)]
        cell = f"5 nights, {night:.1%} apart, each point by itself"
        yield Row(
            method="smallest change that is said to be found",
            cell=cell,
            value=100 * (float(np.median(found)) - 1),
            unit="%",
            goal="printed",
            reached=True,
            tries=tries // 4,
        )


def _beyond_the_model(settings: Settings) -> Iterator[Row]:
    for nights, cell, why in (
        (Nights(tails=True), "1 % apart, heavy tails", _TAILS),
        (Nights(persistence=0.5), "1 % apart, AR 0.5 between nights", _FOLLOW),
        (Nights(baseline=10, persistence=0.5), "10 nights, 1 % apart, AR 0.5 between nights", _FOLLOW),
        (Nights(night=0.002, drift=0.001), "0.2 % apart, each night 0.1 % slower", _DRIFT),
        (Nights(noisy=0.08), "1 % apart, one point with runs 8 % apart", ""),
        (Nights(unlike=6.0), "1 % apart in the middle, one point six times as far as another", _UNLIKE),
    ):
        yield _alarm_row(settings, nights, cell, why)


def _steps(settings: Settings) -> Iterator[Row]:
    tries = settings.times(600, 60)
    random = np.random.default_rng(6)
    for nights in (8, 20, 60):
        for ar in (0.0, 0.3, 0.6, 0.8):
            found = sum(bool(steps(_history(random, nights, ar), margin=0.002)) for _ in range(tries))
            rate = 100 * found / tries
            yield Row(
                method="false steps in a history",
                cell=f"{nights} nights, AR {ar:g}",
                value=rate,
                unit="of 100",
                goal="5 at most",
                reached=rate <= 5 + 200 * math.sqrt(0.0475 / tries),
                why="so few nights do not show how strongly they follow one another",
                tries=tries,
            )
    for nights, step, points in ((8, 0.5, 6), (20, 0.05, 6), (20, 0.05, 100)):
        found = 0
        for _ in range(tries):
            values = _history(random, nights, 0.0, spread=0.005)
            values[nights // 2 :] *= 1 + step
            found += bool(steps(values, margin=0.02, alpha=0.05 / points))
        rate = 100 * found / tries
        cell = f"+{step:.0%} in {nights} nights 0.5 % apart, one of {points} points"
        yield Row(
            method="a step is found",
            cell=cell,
            value=rate,
            unit="of 100",
            goal="80 at least",
            reached=rate >= 80,
            why="eight nights are few",
            tries=tries,
        )


def _history(random: np.random.Generator, nights: int, ar: float, *, spread: float = 0.01) -> np.ndarray:
    noise = signal.lfilter([math.sqrt(1 - ar**2)], [1, -ar], random.normal(size=nights + 50))[50:]
    return LEVEL_S * np.exp(spread * noise)


def _exponents(settings: Settings) -> Iterator[Row]:
    tries = settings.times(400, 40)
    loads = np.array([0, 4, 8, 12, 14, 16, 18, 20, 22]) * 1e9
    truth = 0.2 * np.exp(6 / (25 - loads / 1e9))
    for noise in (1e-5, 0.001, 0.01):
        random = np.random.default_rng(7)
        found = [
            fits.fit(loads, truth * np.exp(random.normal(0, noise, len(loads))), capacity_bps=25e9)
            for _ in range(tries)
        ]
        held = [one.n_interval[0] <= 1 <= one.n_interval[1] for one in found if one is not None and one.n_interval]
        yield _coverage(
            "interval of a fit's free exponent", f"noise {100 * noise:g} %", held, tries, "", required=False
        )


def _rows(cells: Callable[[Settings], Iterator[Row]], settings: Settings) -> list[Row]:
    return list(cells(settings))


CELLS: tuple[Callable[[Settings], Iterator[Row]], ...] = (
    _within_runs, _over_runs, _sessions, *(partial(_alarms, baseline) for baseline in (1, 3, 5, 10)), _power,
    _beyond_the_model, _steps, _exponents,
)  # fmt: skip
