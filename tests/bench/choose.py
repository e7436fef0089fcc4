"""How often intervals hold, and how much time is saved, where a sweep goes on until it is known or looks for a knee."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.analysis.stats import onset
from orchestrator.analysis.stats.onset import RULE
from orchestrator.analysis.stats.statistics import student_t, summarise
from orchestrator.experiment.until import Until
from orchestrator.sweep import choosing, searching
from orchestrator.sweep.searching import Next, Sample, Search
from tests.bench import nights
from tests.bench.figure import Figure, Settings, Table
from tests.bench.simulated import Floats, Iterations, Random, correlated

LINK_GBPS = 25.0
LOADS_GBPS = (0.0, 4.0, 8.0, 11.0, 14.0, 17.0, 19.0, 21.0)
ITERATIONS = 40
WIDTH = 0.02
OFTEN = 0.9  # of fixed sweeps that have to be narrow enough at every point, for their number of repetitions to do
COVERAGE = "92 to 98"
UNTIL = Until.model_validate({"interval": f"{WIDTH:%}"})
ORDINARY = Iterations()
Drawn = Callable[[Random, int], Floats]  # logarithms of runs' levels, as shares of their level


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """How runs of a point differ: by `spread` (standard deviation), and by the mean of their own iterations.

    What differs is normal, or has heavy `tails` (Student's t with 3 degrees of freedom); `persistence` is the
    correlation of a run with the next one.
    """

    spread: float
    iterations: Iterations = ORDINARY
    tails: bool = False
    persistence: float = 0.0

    def drawn(self, random: Random, runs: int) -> Floats:
        """Return the logarithms of the levels of runs in a row."""
        if self.tails:
            moved = random.standard_t(3, runs) / math.sqrt(3)
        else:
            moved = correlated(random, self.persistence, (runs,))
        means = self.iterations.drawn(random, runs, ITERATIONS).mean(axis=1)
        found: Floats = self.spread * moved + np.log(means)
        return found


def recorded(window: str, spread: float) -> Drawn:
    """Return a draw of recorded runs of a window: each a stretch of iterations of a run, moved by `spread`."""
    runs = [found[window] for found in nights.recorded(nights.BASE_MS).values()]
    middle = float(np.mean([np.log(run.mean()) for run in runs]))

    def drawn(random: Random, count: int) -> Floats:
        logs = []
        for _ in range(count):
            run = runs[int(random.integers(len(runs)))]
            begin = int(random.integers(0, max(1, len(run) - ITERATIONS)))
            logs.append(math.log(run[begin : begin + ITERATIONS].mean()) - middle + spread * random.normal())
        return np.array(logs)

    return drawn


def models() -> Mapping[str, Callable[[float], Drawn]]:
    """Return by name what draws runs that differ by a standard deviation: from models, or from recorded runs."""
    ordinary = Iterations(spread=0.01)
    kinds = {
        "normal": Runs(spread=0),
        "iterations AR 0.5": Runs(spread=0, iterations=replace(ordinary, persistence=0.5)),
        "iterations AR 0.9": Runs(spread=0, iterations=replace(ordinary, persistence=0.9)),
        "stalls 1 % x1.5": Runs(spread=0, iterations=replace(ordinary, stalls=0.01)),
        "Pareto stalls 1 %": Runs(spread=0, iterations=replace(ordinary, stalls=0.01, pareto=2.5)),
        "runs t3": Runs(spread=0, tails=True),
        "runs AR 0.6": Runs(spread=0, persistence=0.6),
    }
    found: dict[str, Callable[[float], Drawn]] = {
        name: lambda spread, kind=kind: replace(kind, spread=spread).drawn for name, kind in kinds.items()
    }
    for window in sorted(next(iter(nights.recorded(nights.BASE_MS).values()))):
        found[f"recorded, {window}"] = lambda spread, window=window: recorded(window, spread)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Iteration times over the load of a link, and how far runs differ at each load: without load, and at the knee."""

    compute_s: float
    sent_gbit: float
    quiet: float
    loud: float

    def seconds(self, load_gbps: Floats) -> Floats:
        """Return iteration times: sending is hidden behind computing as long as the link has time for it."""
        sending = self.sent_gbit / (LINK_GBPS - load_gbps)
        found: Floats = (self.compute_s**8 + sending**8) ** (1 / 8)
        return found

    def spreads(self, load_gbps: Floats) -> Floats:
        """Return by how much runs differ: more, the nearer both parts are to each other."""
        ratio = self.sent_gbit / (LINK_GBPS - load_gbps) / self.compute_s
        found: Floats = self.quiet + (self.loud - self.quiet) * np.exp(-((np.log(ratio) / 0.3) ** 2))
        return found

    @classmethod
    def drawn(cls, random: Random) -> Curve:
        """Return a curve of any knee between 6 and 20 Gbit/s."""
        compute_s = float(random.uniform(0.05, 0.3))
        return cls(
            compute_s=compute_s,
            sent_gbit=compute_s * (LINK_GBPS - float(random.uniform(6, 20))),
            quiet=float(random.uniform(0.002, 0.006)),
            loud=float(random.uniform(0.015, 0.04)),
        )


def reaches(logs: Floats) -> Floats:
    """Return half of Student's 95 % interval of each row's first values, from 2 on; infinite below."""
    counts = np.arange(1, logs.shape[1] + 1)
    means = np.cumsum(logs, axis=1) / counts
    squares = np.cumsum(logs**2, axis=1)
    quantiles = np.array([student_t(0.975, count - 1) if count > 1 else math.inf for count in counts])
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(np.maximum(0.0, (squares - counts * means**2) / (counts - 1)))
    return np.where(counts > 1, quantiles * spread / np.sqrt(counts), math.inf)


def ends(logs: Floats, until: Until) -> tuple[int, bool, float]:
    """Return after how many repetitions the rule ends, whether its interval then holds 0, and how far it reaches."""
    found = choosing.of_level([{"": float(one)} for one in logs[: until.most]], until)
    return found.count, found.estimate.low <= 1 <= found.estimate.high, found.reach


def _until(name: str, draw: Callable[[float], Drawn], settings: Settings) -> Iterator[Figure]:
    """Twenty curves under one model of runs: coverage after stopping, and the time beside a fixed sweep's."""
    random = np.random.default_rng(11)
    tries, curves = settings.times(60, 10), settings.times(20, 5)
    held, narrow, ratios, counts = [], [], [], []
    for _ in range(curves):
        curve = Curve.drawn(random)
        loads = np.array(LOADS_GBPS)
        seconds = curve.seconds(loads)
        of_points = []
        for spread in curve.spreads(loads):
            one = draw(float(spread))
            level = float(np.mean(one(np.random.default_rng(1), 4000)))
            of_points.append(np.array([one(random, 60) for _ in range(tries)]) - level)
        ended = [[ends(logs, UNTIL) for logs in point] for point in of_points]
        held += [hold for point in ended for _, hold, _ in point]
        narrow += [reach <= WIDTH for point in ended for _, _, reach in point]
        counts += [count for point in ended for count, _, _ in point]
        reached = np.all([reaches(point) <= math.log1p(WIDTH) for point in of_points], axis=0)
        enough = np.flatnonzero(reached[:, : UNTIL.most].mean(axis=0) >= OFTEN)
        fixed = int(enough[0]) + 1 if len(enough) else UNTIL.most
        spent = sum(second * np.mean([one[0] for one in point]) for second, point in zip(seconds, ended, strict=True))
        ratios.append(float(spent / (fixed * seconds.sum())))
    share = 100 * float(np.mean(held))
    yield Figure(
        what=f"until 2 %, {name}: intervals that hold",
        unit="of 100",
        values=(share,),
        note=f"goal {COVERAGE}; {100 * np.mean(narrow):.0f} are narrow enough; "
        f"{np.mean(counts):.1f} repetitions on average",
    )
    yield Figure(
        what=f"until 2 %, {name}: time of a fixed sweep's",
        unit="%",
        values=tuple(100 * one for one in ratios),
        against="goal",
        reference=(60.0,),
    )


def _budgets(name: str, draw: Callable[[float], Drawn], settings: Settings) -> Iterator[Figure]:
    """Intervals of curves when time is spent where it narrows most, beside those of as much time, spread evenly."""
    random = np.random.default_rng(15)
    until = Until.model_validate({"interval": "0.01%", "most": 60})  # no point is known before the time is over
    even = 2 * until.least
    means, widest = [], []
    for _ in range(settings.times(20, 5)):
        curve = Curve.drawn(random)
        seconds = curve.seconds(np.array(LOADS_GBPS))
        for _ in range(settings.times(20, 4)):
            logs = [draw(float(spread))(random, until.most) for spread in curve.spreads(np.array(LOADS_GBPS))]
            known = [_known(series, until.least, until) for series in logs]
            left_s = (even - until.least) * float(seconds.sum())
            while fits := [at for at, one in enumerate(known) if seconds[at] <= left_s and one.count < until.most]:
                best = max(fits, key=lambda at: choosing.narrowing(known[at]) / seconds[at])
                known[best] = _known(logs[best], known[best].count + 1, until)
                left_s -= float(seconds[best])
            ours, theirs = [one.reach for one in known], [_known(series, even, until).reach for series in logs]
            means.append(float(np.mean(ours) / np.mean(theirs)))
            widest.append(max(ours) / max(theirs))
    for what, found in (("mean", means), ("widest", widest)):
        yield Figure(
            what=f"budget of {even} repetitions a point, {name}: {what} interval beside that of an even sweep",
            unit="%",
            values=tuple(100 * one for one in found),
        )


def _known(series: Floats, count: int, until: Until) -> choosing.Standing:
    return choosing.of_level([{"": float(one)} for one in series[:count]], until)


def _effects(name: str, draw: Callable[[float], Drawn], settings: Settings) -> Iterator[Figure]:
    """Two sides, equal or 5 % apart: how often they are said to differ, and after how many repetitions."""
    random = np.random.default_rng(12)
    tries = settings.times(1000, 100)
    until = Until.model_construct(interval=None, effect=0.03, of="mean", least=UNTIL.least, most=UNTIL.most)
    for apart, goal in ((0.0, "5 at most"), (0.05, "")):
        ended = []
        for spread in (0.005, 0.01, 0.02):
            for _ in range(tries // 3):
                logs = draw(spread)(random, 2 * until.most)
                pairs = [{"": float(b - a) + math.log1p(apart)} for a, b in zip(logs[::2], logs[1::2], strict=True)]
                ended.append(choosing.of_ratio(pairs, until))
        differ = 100 * float(np.mean([one.ended == "they differ" for one in ended]))
        yield Figure(
            what=f"effect 3 %, {name}, sides {apart:.0%} apart: said to differ",
            unit="of 100",
            values=(differ,),
            note=(f"goal {goal}; " if goal else "")
            + f"undecided {100 * np.mean([not one.ended for one in ended]):.0f}; "
            f"repetitions {np.mean([one.count for one in ended]):.1f} on average",
        )


_WITHIN = {
    "AR 0": Iterations(),
    "AR 0.5": Iterations(persistence=0.5, spread=0.05),
    "AR 0.9": Iterations(persistence=0.9, spread=0.05),
    "stalls 1 % x1.5": Iterations(stalls=0.01, spread=0.02),
    "regimes 15 % x1.3": Iterations(slow=0.15, spread=0.01),
}


def _within(settings: Settings) -> Iterator[Figure]:
    """Iterations of one run that go on until its own interval is narrow: what that would be worth, were it offered."""
    random = np.random.default_rng(13)
    looks = range(100, 1601, 100)
    for name, process in _WITHIN.items():
        held, printed, counts = [], 0, []
        for series in process.drawn(random, settings.times(200, 20), looks[-1]):
            for count in looks:
                mean = summarise(series[:count]).mean
                if mean.high - mean.low <= 2 * 0.01 * mean.value or count == looks[-1]:
                    break
            counts.append(count)
            printed += not math.isnan(mean.low)
            held += [] if math.isnan(mean.low) else [mean.low <= process.mean <= mean.high]
        yield Figure(
            what=f"within a run until 1 %, {name}: intervals of the run's level that hold",
            unit="of 100",
            values=(100 * float(np.mean(held)) if held else math.nan,),
            note=f"goal {COVERAGE}; {100 * printed / len(counts):.0f} of 100 have one; "
            f"{np.mean(counts):.0f} iterations on average",
        )


def _knees(name: str, draw: Callable[[float], Drawn], spread: float, settings: Settings) -> Iterator[Figure]:
    """Knees of many curves, looked for where theory predicts them (within 1.5 Gbit/s) and without a prediction.

    What is true is the congestion point of the curve without noise, at every place that a fixed sweep would measure.
    """
    random = np.random.default_rng(14)
    places = tuple(np.arange(0, LINK_GBPS))
    for predicted in (True, False):
        off, fixed, counts, held, nowhere = [], [], [], [], 0
        while len(off) + nowhere < settings.times(100, 20):
            curve = Curve.drawn(random)
            seconds = curve.seconds(np.array(places))
            true = onset.onset(np.array(places), seconds, places[-1])
            if isinstance(true, str):
                continue
            logs = np.log(seconds)[:, None] + draw(spread)(random, 30 * len(places)).reshape(len(places), 30)
            knee = LINK_GBPS - curve.sent_gbit / curve.compute_s + float(random.normal(0, 1.5))
            start = min(max(round(knee), 1), len(places) - 1) if predicted else None
            search = Search(places=places, knee=True, slower=RULE.above - 1, within=0.5, most=20, start=start)
            samples: dict[int, Sample] = {}
            while isinstance(found := searching.step(search, samples), Next):
                before = samples.get(found.place, Sample())
                samples[found.place] = before.with_measured([float(logs[found.place, before.tried])])
            if math.isnan(found.where.value):
                nowhere += 1
                continue
            off.append(abs(found.where.value - true.crossing_gbps))
            counts.append(sum(one.tried for one in samples.values()))
            held.append(found.where.low <= true.crossing_gbps <= found.where.high)
            whole = onset.onset(np.array(places), np.exp(logs[:, 0]), places[-1])
            fixed.append(math.inf if isinstance(whole, str) else abs(whole.crossing_gbps - true.crossing_gbps))
        told = f"knee, {name} {spread:.1%} apart, {'predicted' if predicted else 'not predicted'}"
        yield Figure(
            what=f"{told}: found within 0.5 Gbit/s",
            unit="of 100",
            values=(100 * float(np.mean(np.array(off) <= 0.5)),),
            note=f"{100 * np.mean(held):.0f} intervals hold; {nowhere} are found nowhere; a fixed sweep of "
            f"{len(places)} windows is within 0.5 Gbit/s in {100 * np.mean(np.array(fixed) <= 0.5):.0f}",
        )
        yield Figure(
            what=f"{told}: windows", unit="", values=tuple(map(float, counts)), against="goal", reference=(10.0,)
        )


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Coverage and time of both rules under each model of runs, then of a rule within runs."""
    for name, draw in models().items():
        yield from _until(name, draw, settings)
    for name in ("normal", "iterations AR 0.5", "stalls 1 % x1.5", "recorded, load16"):
        yield from _budgets(name, models()[name], settings)
    for name, draw in models().items():
        yield from _effects(name, draw, settings)
    for name in ("normal", "iterations AR 0.5", "stalls 1 % x1.5", "recorded, load16"):
        for spread in (0.001, 0.003, 0.01):
            yield from _knees(name, models()[name], spread, settings)
    yield from _within(settings)
