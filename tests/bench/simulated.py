"""Simulated iterations, runs and nights: what the methods assume, and what they do not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import signal

from orchestrator.analysis.compare.regression import Pair, RunSeries

Floats = npt.NDArray[np.float64]

LEVEL_S = 0.16
ITERATIONS = 20  # of a run whose median alone matters


def iterations(
    random: np.random.Generator, samples: int, persistence: float, *, shape: str = "normal", spread: float = 0.02
) -> tuple[Floats, dict[str, float]]:
    """Iteration times of an AR(1) process in seconds, and their true mean, p50 and p99.

    `shape`: "normal"; "skewed", with lognormal times; "sum", half of whose variance is white noise on top of the
    process; "drift", which grows by 1 % from end to end; "outlier", with one iteration ten times as long.
    """
    shocks = random.normal(size=samples + 100)
    series = signal.lfilter([math.sqrt(1 - persistence**2)], [1, -persistence], shocks)[100:]
    if shape == "sum":
        series = math.sqrt(0.5) * (series + random.normal(size=samples))
    if shape == "skewed":
        times = LEVEL_S * np.exp(0.5 * series)
        return times, {"mean": LEVEL_S * math.exp(0.125), "p50": LEVEL_S, "p99": LEVEL_S * math.exp(0.5 * 2.32635)}
    times = LEVEL_S * (1 + spread * series)
    if shape == "drift":
        times = times + LEVEL_S * 0.01 * np.linspace(-0.5, 0.5, samples)
    if shape == "outlier":
        times[samples // 2] = 10 * LEVEL_S
    return times, {"mean": LEVEL_S, "p50": LEVEL_S, "p99": LEVEL_S * (1 + spread * 2.32635)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nights:
    """Nights of some points: standard deviations are shares of 1.

    `together` is the share of the nights' variance that moves all points at once. `noisy` is the standard deviation of
    the last point's runs, where it is another than that of others. `persistence` is the correlation of nights that
    follow one another, `tails` draws them from Student's t with 3 degrees of freedom, `drift` is the growth from one
    night to the next. `unlike`: how many times as far the nights of the last point differ as those of the first, points
    in between in equal ratios about `night`.
    """

    points: int = 6
    baseline: int = 5
    runs: int = 3
    night: float = 0.01
    run: float = 0.004
    together: float = 0.0
    noisy: float = 0.0
    slower: float = 1.0
    persistence: float = 0.0
    tails: bool = False
    drift: float = 0.0
    unlike: float = 1.0

    def drawn(self, random: np.random.Generator) -> list[Pair]:
        """The baseline and one night more; the noisy point is never slower."""
        common = self._nights(random)
        return [self._pair(random, point, common) for point in range(self.points)]

    def _nights(self, random: np.random.Generator) -> Floats:
        count = self.baseline + 1
        drawn: Floats
        if self.tails:
            drawn = random.standard_t(3, count) / math.sqrt(3)
        else:
            shocks = random.normal(size=count + 30)
            drawn = signal.lfilter([math.sqrt(1 - self.persistence**2)], [1, -self.persistence], shocks)[30:]
        return drawn

    def _pair(self, random: np.random.Generator, point: int, common: Floats) -> Pair:
        last = bool(self.noisy) and point == self.points - 1
        own = math.sqrt(1 - self.together) * self._nights(random)
        spread = self.night * self.unlike ** (point / (self.points - 1) - 0.5)
        nights = spread * (math.sqrt(self.together) * common + own) + self.drift * np.arange(self.baseline + 1)
        nights[-1] += 0.0 if last else math.log(self.slower)
        runs = nights[:, None] + random.normal(0, self.noisy if last else self.run, (self.baseline + 1, self.runs))
        series = [
            tuple(
                RunSeries(run=f"{night}-{run}", night=str(night), seconds=np.full(ITERATIONS, LEVEL_S * math.exp(log)))
                for run, log in enumerate(of_night)
            )
            for night, of_night in enumerate(runs)
        ]
        return Pair(point=str(point), a=tuple(one for night in series[:-1] for one in night), b=series[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Two sides of one night, with so many runs a side; `run` and `together` as of Nights."""

    points: int = 6
    runs: int = 3
    run: float = 0.01
    together: float = 0.0
    slower: float = 1.0

    def drawn(self, random: np.random.Generator) -> list[Pair]:
        """Both sides of every point."""
        common = random.normal(size=2 * self.runs)
        pairs = []
        for point in range(self.points):
            own = random.normal(size=2 * self.runs)
            logs = self.run * (math.sqrt(self.together) * common + math.sqrt(1 - self.together) * own)
            logs[self.runs :] += math.log(self.slower)
            series = [
                RunSeries(run=str(run), seconds=np.full(ITERATIONS, LEVEL_S * math.exp(log)))
                for run, log in enumerate(logs)
            ]
            pairs.append(Pair(point=str(point), a=tuple(series[: self.runs]), b=tuple(series[self.runs :])))
        return pairs
