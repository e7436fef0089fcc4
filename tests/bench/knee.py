"""Whether a search finds the knee of a measured curve within 0.5 Gbit/s of the full sweep, in ten windows or fewer.

The curve is ResNet-50's beside iperf, configuration A of Salamy (2022): 17 loads, twice each, in windows of two runs.
Each search measures it anew. All lies in `results/bench-knee`: a later call goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.stats import onset
from orchestrator.core.units import quantity
from orchestrator.store import sweeps
from tests.bench.commands import ROOT, CommandError, orch_sweep, slow_testbed, training
from tests.bench.figure import Figure, Settings, Table

STORE = ROOT / "results" / "bench-knee"
AXIS = "traffic.0.iperf.load"
PLACES = {"from": 0, "to": 20, "step": 1.25, "unit": "gbit"}
SEARCHES, REPETITIONS, ATTEMPTS = 3, 2, 6
GOAL_GBPS, GOAL_WINDOWS = 0.5, 10
EXPERIMENT = training(
    5,
    name=None,
    testbed=slow_testbed(5),
    workload={"ddp": {"model": "resnet50", "compute": "emulated", "hosts": ["h1", "h2", "h3", "h4"]}},
    traffic=[{"iperf": {"from": "h1", "to": "h5", "load": "10gbit", "streams": 10}}],
    measure={"warmup": 3, "iterations": 15, "at_most": "60s"},
    validity={"load": "as-achieved"},
)


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Return how far searches are off the knee of the full sweep, and what they take; `--quick` searches once."""
    full = {"name": "full", "experiment": EXPERIMENT, "axes": {AXIS: PLACES}, "mode": "windows", "attempts": ATTEMPTS}
    orch_sweep({**full, "repetitions": REPETITIONS}, STORE / "full")
    curve = _curve(STORE / "full", "full")
    truth = _knee({load: float(np.mean(logs)) for load, logs in curve.items()})
    windows = sum(map(len, curve.values()))
    once = [
        _knee({load: logs[place] for load, logs in curve.items()}) for place in range(min(map(len, curve.values())))
    ]
    yield Figure(
        what="knee of the full sweep",
        unit="Gbit/s",
        values=(truth,),
        note=f"{windows} windows; of each repetition alone {', '.join(f'{one:.2f}' for one in once)}",
    )
    rows = [_searched(number, truth) for number in range(1, settings.times(SEARCHES, 1) + 1)]
    yield Figure(
        what="knee found by a search, off that of the full sweep",
        unit="Gbit/s",
        values=tuple(row[4] for row in rows),
        against="goal",
        reference=(GOAL_GBPS,),
    )
    yield Figure(
        what="windows of a search",
        unit="",
        values=tuple(float(row[5]) for row in rows),
        against="goal",
        reference=(float(GOAL_WINDOWS),),
        note=f"{windows} in the full sweep",
    )
    yield Table(
        title="Searches", columns=("search", "knee", "low", "high", "off", "windows", "why it ended"), rows=tuple(rows)
    )
    for load, logs in sorted(curve.items()):
        times = tuple(1e3 * math.exp(one) for one in logs)
        line = (("requested load (Gbit/s)", load, "mean iteration"),)
        yield Figure(what=f"mean iteration at {load:g} Gbit/s", unit="ms", values=times, over=line, tabled=True)


def _searched(number: int, truth: float) -> tuple[Any, ...]:
    """Search for the knee; return where it is, with its interval, how far that is off, and after how many windows."""
    axis = {**PLACES, "find": "knee", "within": GOAL_GBPS}
    search = {"name": f"search-{number}", "experiment": EXPERIMENT, "axes": {AXIS: axis}, "attempts": ATTEMPTS}
    (bend,) = orch_sweep(search, STORE / search["name"])["bends"]
    if bend["value"] is None:
        raise CommandError(f"search {number} finds no knee: {bend['why']}")
    known = (bend["value"], bend["low"], bend["high"])
    return number, *known, abs(bend["value"] - truth), len(bend["steps"]), bend["why"]


def _curve(results: Path, name: str) -> Mapping[float, list[float]]:
    """Return the logarithms of the mean iteration times (seconds) of a sweep's valid windows, by load in Gbit/s."""
    found: dict[float, list[float]] = {}
    for one in sweeps.chosen(sweeps.measured_by(results, name)):
        known = quantity(str(one.measurement.values[AXIS]))  # "0bit" beside "12gbit"
        assert known is not None, "a sweep has checked its values"
        found.setdefault(known[1] / 1e9, []).append(math.log(one.window.training[0].mean_s))
    return found


def _knee(logs: Mapping[float, float]) -> float:
    """Return the congestion point of a whole curve (Gbit/s); CommandError where it has none."""
    loads = np.array(sorted(logs))
    found = onset.onset(loads, np.exp([logs[load] for load in loads]), loads[-1])
    if isinstance(found, str):
        raise CommandError(f"the full sweep has no knee: {found}")
    return found.crossing_gbps
