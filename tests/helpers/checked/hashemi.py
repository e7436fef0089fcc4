"""Hashemi: servers are faster with few workers and slower with many, and TAC's order is as good as the best one."""

from __future__ import annotations

import numpy as np

from orchestrator.analysis.stats.agreement import over_runs
from orchestrator.papers.hashemi import orders, scaling, traced
from orchestrator.papers.hashemi.orders import Order
from orchestrator.papers.hashemi.published import published
from orchestrator.papers.hashemi.scaling import SERVERS, Curve
from orchestrator.report.study.content import Comparison
from tests.helpers.checked import NOISE, ONE_RUN, RUNS

TWISTS = ("same-steps", "swapped", "slow-tac", "loose-tac", "untraced")
STEPS_S = {SERVERS: {2: 0.1, 4: 0.2, 6: 0.3}, "ring": {2: 0.15, 4: 0.17, 6: 0.18}}
ORDERS = {"random": (0.48, 0.04), "layer": (0.4, 0.012), "tac": (0.4, 0.01)}  # mean (s) and variation


def lines(twist: str, seed: int) -> list[Comparison]:
    """Return every comparison of a whole study."""
    random, printed = np.random.default_rng(seed), published()
    count = 1 if twist == ONE_RUN else RUNS

    def about(value: float, spread: float = 0.003) -> list[float]:
        if twist == NOISE:
            return list(random.lognormal(0, 1, count))
        return list(value * random.normal(1, spread, count))

    curves = [_curve(strategy, {n: about(_step(strategy, n, twist)) for n in (2, 4, 6)}) for strategy in STEPS_S]
    measured = {}
    for name, (mean_s, cv) in ORDERS.items():
        slower = 1.2 if (name, twist) == ("tac", "slow-tac") else 1.0
        looser = 4.0 if (name, twist) == ("tac", "loose-tac") else 1.0
        same = twist == "same-steps"
        measured[name] = _order(
            name, about(0.4 if same else mean_s * slower), about(0.02 if same else cv * looser, 0.05)
        )
    moved = (0, 0, 0) if twist == "untraced" else (6, 6, 2)
    seen = [[moved, (0, 6, 0) if twist == NOISE else moved] for _ in range(count)]
    return [
        *scaling.compared(curves, "resnet50", printed),
        *orders.compared(measured, printed),
        traced.compared(seen, printed),
    ]


def _step(strategy: str, workers: int, twist: str) -> float:
    if twist == "same-steps":
        return 0.2
    if twist == "swapped":
        strategy = next(name for name in STEPS_S if name != strategy)
    return STEPS_S[strategy][workers]


def _curve(strategy: str, runs: dict[int, list[float]]) -> Curve:
    steps = {workers: over_runs(of_runs) for workers, of_runs in runs.items()}
    return Curve("resnet50", strategy, 2 if strategy == SERVERS else 0, steps, runs)


def _order(name: str, means_s: list[float], cvs: list[float]) -> Order:
    variation = {"cv": float(np.mean(cvs)), "straggler_share": 0.01}
    return Order(name, mean_s=over_runs(means_s), means_s=means_s, cvs=cvs, variation=variation)
