"""What `until` saves on measured sweeps: the time for intervals of 2 % beside that of a fixed sweep.

Three curves of six loads are measured eight times each, into `results/bench-until`: a later call goes on from there.
The rule, which looks at nothing but levels in their order, is asked about many orders of the repetitions that were
measured. A fixed sweep has as many repetitions as make every interval narrow enough in 9 of 10 of these orders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from orchestrator.experiment.until import Until
from orchestrator.store import sweeps
from orchestrator.store.sweeps import MeasuredWindow
from tests.bench.choose import OFTEN, WIDTH, ends, reaches
from tests.bench.commands import ROOT, CommandError, orch_sweep, slow_testbed, training
from tests.bench.figure import Figure, Settings

STORE = ROOT / "results" / "bench-until"
REPETITIONS, LEAST, ATTEMPTS, ORDERS = 8, 6, 4, 500  # those of a point that are valid decide, from six on
GOAL = 60.0  # % of a fixed sweep's time
LOADS = {"values": [0, 5, 10, 14, 16, 18], "unit": "gbit"}
IPERF = {"iperf": {"from": "h1", "to": "h5", "load": "8gbit", "streams": 10}}
WEBSEARCH = {"websearch": {"from": "h1", "to": "h5", "load": "8gbit", "realtime": True}}
SWEEPS = {  # model, its compute time, and the cross traffic beside it
    "resnet50-iperf": ("resnet50", "147ms", IPERF),
    "resnet50-websearch": ("resnet50", "147ms", WEBSEARCH),
    "mobilenet-iperf": ("mobilenet_v2", "40ms", IPERF),
}


def measure(settings: Settings) -> Iterator[Figure]:
    """Return the share of a fixed sweep's time; `--quick` measures one sweep alone."""
    shares = {name: _share(name) for name in list(SWEEPS)[: settings.times(len(SWEEPS), 1)]}
    yield Figure(
        what=f"until {WIDTH:.0%} on measured sweeps: time of a fixed sweep's",
        unit="%",
        values=tuple(100 * share for share, _ in shares.values()),
        against="goal",
        reference=(GOAL,),
        note="; ".join(f"{name} {100 * share:.0f}: {how}" for name, (share, how) in shares.items()),
    )


def _share(name: str) -> tuple[float, str]:
    """Measure a sweep; return the time of the rule over that of a fixed sweep, and repetitions of both."""
    orch_sweep(_sweep(name), STORE / name)
    points: dict[str, list[MeasuredWindow]] = {}
    for one in sweeps.chosen(sweeps.measured_by(STORE / name, name)):
        points.setdefault(one.point, []).append(one)
    have = min(map(len, points.values()))
    if have < LEAST:
        raise CommandError(f"{name}: after {ATTEMPTS} attempts each, {have} of {REPETITIONS} repetitions are valid")
    random = np.random.default_rng(1)
    costs = [fmean(map(_seconds, found)) for found in points.values()]
    orders = [random.permuted(np.tile(_logs(found), (ORDERS, 1)), axis=1)[:, :have] for found in points.values()]
    until = Until.model_validate({"interval": f"{WIDTH:%}", "most": have})
    counts = [fmean(ends(logs, until)[0] for logs in point) for point in orders]
    narrow = np.all([reaches(point) <= math.log1p(WIDTH) for point in orders], axis=0).mean(axis=0)
    enough = np.flatnonzero(narrow >= OFTEN)
    fixed = int(enough[0]) + 1 if len(enough) else have
    share = sum(cost * count for cost, count in zip(costs, counts, strict=True)) / (fixed * sum(costs))
    return share, f"{', '.join(f'{count:.1f}' for count in counts)} repetitions in place of {fixed} of {have}"


def _logs(found: Sequence[MeasuredWindow]) -> list[float]:
    return [math.log(one.window.training[0].mean_s) for one in found]


def _seconds(one: MeasuredWindow) -> float:
    """Return what a measurement took: its window, and its part of what the run took beside its windows."""
    windows = one.manifest.windows
    beside = one.manifest.phases["total"] - sum(window.seconds for window in windows)
    return one.window.seconds + beside / len(windows)


def _sweep(name: str) -> Mapping[str, Any]:
    model, compute_time, source = SWEEPS[name]
    ((kind, _),) = source.items()
    experiment = training(
        5,
        name=None,
        testbed=slow_testbed(5),
        workload={"ddp": {"model": model, "compute_time": compute_time, "hosts": ["h1", "h2", "h3", "h4"]}},
        traffic=[source],
        measure={"warmup": 3, "iterations": 15, "at_most": "60s"},
        validity={"load": "as-achieved"},
    )
    axes = {f"traffic.0.{kind}.load": LOADS}
    how = {"mode": "windows", "repetitions": REPETITIONS, "attempts": ATTEMPTS}
    return {"name": name, "experiment": experiment, "axes": axes, **how}
