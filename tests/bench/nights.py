"""Whether a night's verdict is right, on recorded iterations: 5 % more compute is found, equal nights alarm nobody."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare.regression import Pair, PointChange, RunSeries, compare
from tests.bench.figure import Figure, Settings

# The sample was recorded on a local testbed of this project: ResNet-50 over four hosts beside iperf at three loads, in
# runs of their own, alternately with a compute time of 147 ms and one that is 5 % longer. A simulated night draws runs
# without putting them back, against a baseline of other runs, and takes a stretch of each run's recorded iterations as
# they came. What varies from run to run is what varied then, in 36 minutes on a machine that other work kept busy at
# times; where more variation is added, the figure says so.
SAMPLE = Path(__file__).parents[1] / "data" / "nights" / "iterations.csv"
BASE_MS, SLOW_MS = "147", "154.35"
BASELINE_RUNS = 6

Floats = npt.NDArray[np.float64]
Recorded = Mapping[str, Mapping[str, Floats]]  # run -> window -> iteration times in seconds


def recorded(compute_ms: str) -> Recorded:
    """The recorded runs with this compute time."""
    found: dict[str, dict[str, Floats]] = {}
    with SAMPLE.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["compute_ms"] == compute_ms:
                micro = np.array(row["iteration_us"].split(), np.float64)
                found.setdefault(row["run"], {})[row["window"]] = micro / 1e6
    return found


def night(
    base: Recorded,
    other: Recorded,
    draw: np.random.Generator,
    *,
    runs: int,
    iterations: int = 100,
    factor: float = 1.0,
    spread: float = 0.0,
) -> tuple[PointChange, ...]:
    """The verdict on a night of `runs` runs of `other`, all times multiplied by `factor`, against runs of `base`.

    `spread` is the standard deviation of a further factor that every window of every run gets.
    """
    names = draw.permutation(sorted(base)).tolist()
    reference = names[:BASELINE_RUNS]
    candidates = names[BASELINE_RUNS:] if other is base else draw.permutation(sorted(other)).tolist()
    if len(candidates) < runs:
        raise AssertionError(f"{len(candidates)} recorded runs are too few for a night of {runs}")

    # Drawn at random, no run of a side comes before those of the other more often than by chance: as if in turn.
    began = {name: 2 * place for place, name in enumerate(reference)}
    began |= {name: 2 * place + 1 for place, name in enumerate(candidates[:runs])}

    def side(pool: Recorded, chosen: Sequence[str], window: str, times: float) -> tuple[RunSeries, ...]:
        found = []
        for run in chosen:
            series = pool[run][window]
            begin = int(draw.integers(0, 3)) * max(0, len(series) - iterations) // 2
            moved = times * float(np.exp(draw.normal(0, spread)))
            found.append(RunSeries(run=run, seconds=series[begin : begin + iterations] * moved, began_ns=began[run]))
        return tuple(found)

    windows = sorted(next(iter(base.values())))
    pairs = [
        Pair(point=window, a=side(base, reference, window, 1.0), b=side(other, candidates[:runs], window, factor))
        for window in windows
    ]
    return compare(pairs)


def in_order(base: Recorded, *, runs: int = 3) -> dict[str, float]:
    """The same shares where baseline and night each follow one another as they were recorded, the night later."""
    names = sorted(base)
    verdicts = []
    for begin in range(len(names) - BASELINE_RUNS - runs + 1):
        for later in range(begin + BASELINE_RUNS, len(names) - runs + 1):
            chosen = names[begin : begin + BASELINE_RUNS], names[later : later + runs]
            pairs = [
                Pair(point=window, a=a, b=b)
                for window in base[names[0]]
                for a, b in [[tuple(RunSeries(run=n, seconds=base[n][window]) for n in side) for side in chosen]]
            ]
            verdicts.append([change.verdict for change in compare(pairs)])
    return _shares(verdicts)


def rates(base: Recorded, other: Recorded, *, nights: int, seed: int = 1, **shape: Any) -> dict[str, float]:
    """Shares of simulated nights with a point called worse, and worse or better; shares of points by verdict."""
    draw = np.random.default_rng(seed)
    verdicts = [[change.verdict for change in night(base, other, draw, **shape)] for _ in range(nights)]
    return _shares(verdicts)


def _shares(verdicts: Sequence[Sequence[str]]) -> dict[str, float]:
    nights = len(verdicts)
    flat = [verdict for found in verdicts for verdict in found]
    return {
        "worse": sum("worse" in found for found in verdicts) / nights,
        "changed": sum("worse" in found or "better" in found for found in verdicts) / nights,
        "same": flat.count("same") / len(flat),
        "cannot tell": flat.count("cannot tell") / len(flat),
    }


def measure(settings: Settings) -> Iterator[Figure]:
    """False alarms and detections, by runs a night, iterations, size of the change and variation between runs."""
    nights = settings.times(400, 100)
    base, slow = recorded(BASE_MS), recorded(SLOW_MS)
    for runs, iterations in ((1, 100), (2, 100), (3, 20), (3, 50), (3, 100), (5, 100)):
        shape: dict[str, Any] = {"runs": runs, "iterations": iterations}
        told = f"{runs} x {iterations} iterations"
        yield _alarms(f"{told}, equal", rates(base, base, nights=nights, **shape))
        yield _found(f"{told}, 5 % more compute", rates(base, slow, nights=nights, **shape))
        yield _found(f"{told}, all times x 1.05", rates(base, base, nights=nights, factor=1.05, **shape))
    yield _alarms("3 x 100 iterations, equal, in the order of recording", in_order(base))
    for factor in (1.01, 1.02, 1.03):
        yield _found(
            f"3 x 100 iterations, all times x {factor}", rates(base, base, nights=nights, factor=factor, runs=3)
        )
    for spread in (0.01, 0.02, 0.04):
        for runs in (3, 5):
            told = f"{runs} x 100 iterations, runs {spread:.0%} apart"
            noisy: dict[str, Any] = {"nights": settings.times(100, 40), "runs": runs, "spread": spread}
            yield _alarms(f"{told}, equal", rates(base, base, **noisy))
            yield _found(f"{told}, all times x 1.05", rates(base, base, factor=1.05, **noisy))


def _alarms(told: str, found: Mapping[str, float]) -> Figure:
    return Figure(
        what=f"{told}: alarms",
        unit="of 100 nights",
        values=(100 * found["changed"],),
        against="goal",
        reference=(5.0,),
        note=_points(found),
    )


def _found(told: str, found: Mapping[str, float]) -> Figure:
    return Figure(what=f"{told}: found", unit="of 100 nights", values=(100 * found["worse"],), note=_points(found))


def _points(found: Mapping[str, float]) -> str:
    return f"of the points {found['same']:.0%} same, {found['cannot tell']:.0%} cannot be told"
