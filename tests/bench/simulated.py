"""Simulated iterations, runs, nights and days: what the methods assume, and what they do not.

Nothing here knows a method: each process is drawn from its own description, and every run is a series of iterations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare.regression import Pair, RunSeries

Floats = npt.NDArray[np.float64]
Random = np.random.Generator
Shape = Literal["normal", "skewed", "sum", "drift", "outlier"]
Order = Literal["in turn", "one after the other"]
Measured = list[tuple[RunSeries, ...]]  # of each point

LEVEL_S = 0.16
DAYS_A_YEAR = 365
_FIRST_NIGHT = datetime(2026, 1, 1, 22, tzinfo=timezone.utc)
WIDER = 2.0  # how many times as far a part of a night is drawn, where nights far off are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterations:
    """The process that iteration times of a run follow, as shares of the run's level.

    `persistence` is the correlation of an iteration with the next one, `spread` their standard deviation. `shape`:
    "normal"; "skewed", with lognormal times; "sum", half of whose variance is white noise on top of the process;
    "drift", which grows by 1 % from end to end; "outlier", with one iteration ten times as long.
    Every `every`-th iteration takes `longer` times as long. An iteration stalls with probability `stalls` and then
    takes `stall` times as long; with `pareto` what it takes beyond the others is Pareto's with this tail index, at
    least `stall` - 1. A share `slow` of the time is spent in regimes of `regime` iterations, `slower` times as long.
    """

    persistence: float = 0.0
    spread: float = 0.01
    shape: Shape = "normal"
    every: int = 0
    longer: float = 1.0
    stalls: float = 0.0
    stall: float = 1.5
    pareto: float = 0.0
    slow: float = 0.0
    regime: int = 20
    slower: float = 1.3

    def drawn(self, random: Random, runs: int, samples: int) -> Floats:
        """Return the iterations of some runs; shape (runs, samples)."""
        times = self._usual(random, runs, samples)
        if self.every:
            turn = np.arange(samples) + random.integers(0, self.every, (runs, 1))
            times = times * np.where(turn % self.every == 0, self.longer, 1.0)
        if self.stalls:
            beyond = np.full(times.shape, self.stall - 1.0)
            if self.pareto:
                beyond *= 1 + random.pareto(self.pareto, times.shape)
            times = times * (1 + beyond * (random.random(times.shape) < self.stalls))
        if self.slow:
            times = times * np.where(self._in_regime(random, runs, samples), self.slower, 1.0)
        return times

    def _usual(self, random: Random, runs: int, samples: int) -> Floats:
        series = correlated(random, self.persistence, (runs, samples))
        if self.shape == "skewed":
            skewed: Floats = np.exp(0.5 * series)
            return skewed
        if self.shape == "sum":
            series = math.sqrt(0.5) * (series + random.normal(size=series.shape))
        times = 1 + self.spread * series
        if self.shape == "drift":
            times += 0.01 * np.linspace(-0.5, 0.5, samples)
        if self.shape == "outlier":
            times[:, samples // 2] = 10
        return times

    def _in_regime(self, random: Random, runs: int, samples: int) -> npt.NDArray[np.bool_]:
        begins = self.slow / (1 - self.slow) / self.regime
        left = np.where(random.random(runs) < self.slow, random.integers(1, self.regime + 1, runs), 0)
        inside = np.zeros((runs, samples), bool)
        for place in range(samples):
            left = np.where((left == 0) & (random.random(runs) < begins), self.regime, left)
            inside[:, place] = left > 0
            left = np.maximum(left - 1, 0)
        return inside

    @property
    def mean(self) -> float:
        """The expected mean, as a share of the level; an "outlier" is none of the process."""
        usual = math.exp(0.125) if self.shape == "skewed" else 1.0
        every = 1 + (self.longer - 1) / self.every if self.every else 1.0
        beyond = (self.stall - 1) * (self.pareto / (self.pareto - 1) if self.pareto else 1.0)
        return usual * every * (1 + self.stalls * beyond) * (1 + self.slow * (self.slower - 1))

    def truth(self) -> dict[str, float]:
        """Return the true mean, p50 and p99, as shares of the level."""
        return {"mean": self.mean, **dict(zip(("p50", "p99"), _quantiles(self), strict=True))}


@lru_cache
def _quantiles(process: Iterations) -> tuple[float, float]:
    """Return the median and the 99th percentile of a process, of a million iterations."""
    drawn = process.drawn(np.random.default_rng(99), 2000, 500)
    if process.shape == "outlier":
        drawn = np.delete(drawn, 250, axis=1)
    p50, p99 = np.quantile(drawn, (0.5, 0.99))
    return float(p50), float(p99)


def correlated(random: Random, persistence: float, shape: tuple[int, ...]) -> Floats:
    """Return stationary AR(1) series of variance 1 along the last axis."""
    from scipy import signal

    shocks = random.normal(size=shape)
    if persistence == 0.0:
        return shocks
    shocks[..., 1:] *= math.sqrt(1 - persistence**2)
    found: Floats = signal.lfilter([1.0], [1.0, -persistence], shocks)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Nights:
    """Nights of some points: standard deviations are shares of 1, and add up as logarithms.

    `night` is the standard deviation of nights, of whose variance `together` moves all points at once; `unlike` is how
    many times as far the nights of the last point differ as those of the first, points in between in equal ratios.
    `persistence` is the correlation of a night with the next one, `tails` draws nights from Student's t with 3 degrees
    of freedom (of the same variance). `week` and `year` are the amplitudes of seasons that move all points, `drift` is
    the growth from one night to the next. `run` is the standard deviation of the `runs` of a night, that of the last
    point `noisy` where it is another; a share `bad` of runs takes 10 % longer, as beside a busy neighbour. Each run has
    `samples` of `iterations`.
    """

    points: int = 6
    runs: int = 3
    samples: int = 20
    night: float = 0.01
    run: float = 0.004
    together: float = 0.0
    unlike: float = 1.0
    persistence: float = 0.0
    tails: bool = False
    week: float = 0.0
    year: float = 0.0
    drift: float = 0.0
    noisy: float = 0.0
    bad: float = 0.0
    iterations: Iterations = Iterations()

    def levels(self, random: Random, nights: int) -> Floats:
        """Return the logarithms of the levels of nights in a row, from any day of a year; shape (nights, points)."""
        shape = (1 + self.points, nights)
        if self.tails and not self.persistence:
            parts = random.standard_t(3, shape) / math.sqrt(3)
        else:
            parts = correlated(random, self.persistence, shape)
        seasons = self._seasons(random.integers(0, DAYS_A_YEAR) + np.arange(nights))
        return self._moved(parts.T) + (seasons + self.drift * np.arange(nights))[:, None]

    def later(self, random: Random, rows: int, *, wider: float = WIDER) -> tuple[Floats, Floats]:
        """Return levels of two nights in a row that are long after others, and the weight of each row in an average.

        Levels have the shape (rows, 2, points), the night before comes first. Rows are drawn far off more often than
        they come (importance sampling): in half of them a part of what moves points, any with the same probability, is
        drawn from distributions that are `wider` times as wide.
        """
        from scipy import stats

        shape = (2, rows, 1 + self.points)
        heavy = self.tails and not self.persistence
        drawn = random.standard_t(3, shape) / math.sqrt(3) if heavy else random.normal(size=shape)
        density = stats.t(3, scale=1 / math.sqrt(3)).pdf if heavy else stats.norm.pdf
        moving = np.flatnonzero([self.together > 0, *[self.together < 1] * self.points])
        which = random.choice(moving, rows)
        wide = random.random(rows) < 0.5
        drawn[:, wide, which[wide]] *= wider
        ratio = np.prod(density(drawn[..., moving] / wider) / wider / density(drawn[..., moving]), axis=0)
        weights: Floats = 1 / (0.5 + 0.5 * ratio.mean(axis=1))
        tonight = drawn[0]
        before = self.persistence * tonight + math.sqrt(1 - self.persistence**2) * drawn[1]
        day = random.integers(0, DAYS_A_YEAR, rows)
        nights = [
            self._moved(parts) + self._seasons(day + place)[:, None] for place, parts in enumerate((before, tonight))
        ]
        return np.stack(nights, axis=1), weights

    def _moved(self, parts: Floats) -> Floats:
        """Return what moves points from the parts that do, of variance 1: one of all points, then one of each."""
        far = self.night * self.unlike ** (np.linspace(-0.5, 0.5, self.points) if self.points > 1 else 0.0)
        moved: Floats = far * (math.sqrt(self.together) * parts[:, :1] + math.sqrt(1 - self.together) * parts[:, 1:])
        return moved

    def _seasons(self, day: npt.NDArray[np.int64]) -> Floats:
        turn = 2 * np.pi * day
        found: Floats = self.week * np.sin(turn / 7) + self.year * np.sin(turn / DAYS_A_YEAR)
        return found

    def measured(
        self, random: Random, levels: Floats, *, first: int = 0, points: dict[int, Iterations] | None = None
    ) -> list[Measured]:
        """Return the runs of every point in nights of these levels, of which `first` is the number of the first one.

        `points`: those whose iterations follow another process.
        """
        nights = len(levels)
        spreads = np.full(self.points, self.run)
        spreads[-1] = self.noisy or self.run
        logs = levels[:, :, None] + spreads[:, None] * random.normal(size=(nights, self.points, self.runs))
        if self.bad:
            logs += math.log(1.1) * (random.random(logs.shape) < self.bad)
        times = self.iterations.drawn(random, logs.size, self.samples).reshape(*logs.shape, self.samples)
        for point, process in (points or {}).items():
            times[:, point] = process.drawn(random, nights * self.runs, self.samples).reshape(nights, self.runs, -1)
        times *= LEVEL_S * np.exp(logs)[..., None]
        return [
            [
                tuple(
                    run_of(_FIRST_NIGHT + timedelta(days=first + night), rep, point, times[night, point, rep])
                    for rep in range(self.runs)
                )
                for point in range(self.points)
            ]
            for night in range(nights)
        ]

    def pairs(self, random: Random, baseline: int, *, change: float = 0.0) -> list[Pair]:
        """Return a baseline of some nights and two nights after it, in which all points but a noisy one are slower."""
        levels = self.levels(random, baseline + 2)
        levels[-2:, : self.points - bool(self.noisy)] += math.log1p(change)
        nights = self.measured(random, levels)
        return paired(nights[:-2], nights[-1:], nights[-2])


def run_of(night: datetime, repetition: int, point: int, seconds: Floats) -> RunSeries:
    """Return a run of a night: repetitions follow one another, and points within each."""
    began = night + timedelta(minutes=60 * repetition + point)
    sweep = f"{night:%Y%m%dT%H%M%S}000"
    return RunSeries(
        run=f"{began:%Y%m%dT%H%M%S}000-{point:08x}",
        seconds=seconds,
        night=sweep,
        block=f"{sweep} {repetition}",
        began_ns=int(began.timestamp() * 1e9),
    )


def paired(a: Sequence[Measured], b: Sequence[Measured], before: Measured | None = None) -> list[Pair]:
    """Return the pairs of two sides, each of some nights, and of the night before the second one."""
    points = range(len(a[0]))
    sides = ([tuple(run for night in side for run in night[point]) for point in points] for side in (a, b))
    confirming = before or [()] * len(points)
    return [
        Pair(point=str(point), a=one, b=other, before=confirming[point])
        for point, (one, other) in enumerate(zip(*sides, strict=True))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """Two sides that were measured on one day, with so many runs a side; `run` and `together` as of Nights.

    `persistence` is the correlation of a run with the next one, whatever its side, and `drift` the growth from one run
    to the next. Sides are measured "in turn", of which each repetition measures both, or "one after the other".
    """

    points: int = 6
    runs: int = 3
    samples: int = 20
    run: float = 0.01
    together: float = 0.0
    persistence: float = 0.0
    drift: float = 0.0
    order: Order = "in turn"
    iterations: Iterations = Iterations()

    def pairs(self, random: Random, *, change: float = 0.0) -> list[Pair]:
        """Return both sides of every point; the second one takes longer by `change`."""
        count = 2 * self.runs
        parts = correlated(random, self.persistence, (1 + self.points, count))
        logs = self.run * (math.sqrt(self.together) * parts[:1] + math.sqrt(1 - self.together) * parts[1:])
        logs = logs + self.drift * np.arange(count)
        second = np.arange(count) % 2 == 1 if self.order == "in turn" else np.arange(count) >= self.runs
        logs[:, second] += math.log1p(change)
        drawn = self.iterations.drawn(random, logs.size, self.samples).reshape(*logs.shape, -1)
        times = LEVEL_S * np.exp(logs)[..., None] * drawn
        return [self._pair(point, times[point], second) for point in range(self.points)]

    def _pair(self, point: int, times: Floats, second: npt.NDArray[np.bool_]) -> Pair:
        sides: tuple[list[RunSeries], list[RunSeries]] = ([], [])
        for place, seconds in enumerate(times):
            began = _FIRST_NIGHT + timedelta(minutes=60 * place + point)
            block = place // 2 if self.order == "in turn" else place
            sides[int(second[place])].append(
                RunSeries(
                    run=f"{began:%Y%m%dT%H%M%S}000-{point:08x}",
                    seconds=seconds,
                    night="20260101T220000000",
                    block=f"20260101T220000000 {block}",
                    began_ns=int(began.timestamp() * 1e9),
                )
            )
        return Pair(point=str(point), a=tuple(sides[0]), b=tuple(sides[1]))
