"""Fit an iteration time that grows towards the capacity of a shared link, and hold its form against others.

Salamy (2022), eq. 3.7: t = A exp(B / (C - load)^n), by least squares of ln t, and R2 in ln t. C is known. For a given n
that is a straight line of ln t over x = 1 / (C - load)^n with rates in Gbit/s, so that B is in (Gbit/s)^n, as the
thesis prints it. Whatever grows towards the capacity lies near such a curve: a fluid curve does with an R2 of 0.98 to
0.995. So R2 is no evidence of the form. What is: that it predicts points which were left out of its fit better than
others do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.questions.congestion import by_load
from orchestrator.questions.curves import same
from orchestrator.questions.registry import step
from orchestrator.questions.rows import REPETITION, RUN, Row, Rows, grouped

Floats = npt.NDArray[np.float64]
Fitter = Callable[
    [Floats, Floats], Callable[[Floats], Floats]
]  # of what is left (Gbit/s) and ln t: ln t of what is left

LEAST_ERROR = 1e-9  # of ln t: a fit that leaves nothing
FEWEST = 5  # points, so that each can be left out of a fit of two parameters


def exponential(left: Floats, logs: Floats, *, n: float) -> Callable[[Floats], Floats]:
    """Fit ln t = ln A + B / left^n."""
    b, intercept = np.polyfit(left**-n, logs, 1)
    return lambda of: np.asarray(intercept + b * of**-n, np.float64)


def fluid(left: Floats, logs: Floats) -> Callable[[Floats], Floats]:
    """Fit t = max(T, D / left): computing as long as the link has enough left, then sending at all that is left."""
    order = np.argsort(-left)
    best, chosen = math.inf, (0.0, 0.0)
    for flat in range(len(left) + 1):
        computes, sends = order[:flat], order[flat:]
        t = float(logs[computes].mean()) if flat else -math.inf
        d = float((logs[sends] + np.log(left[sends])).mean()) if len(sends) else -math.inf
        rest = float(np.sum((np.maximum(t, d - np.log(left)) - logs) ** 2))
        if rest < best:
            best, chosen = rest, (t, d)
    t, d = chosen
    return lambda of: np.maximum(t, d - np.log(of))


def fluid_after(left: Floats, logs: Floats) -> Callable[[Floats], Floats]:
    """Fit t = max(T, S + D / left): a fluid curve after a part S that load does not change."""
    order, times = np.argsort(-left), np.exp(logs)

    def curve(of: Floats, t: float, s: float, d: float) -> Floats:
        return np.asarray(np.log(np.maximum(np.maximum(t, s + d / of), times.min() / 2)), np.float64)

    best, chosen = math.inf, (0.0, 0.0, 0.0)
    for flat in range(len(left) - 1):
        computes, sends = order[:flat], order[flat:]
        t = float(np.exp(logs[computes].mean())) if flat else 0.0
        d, s = (float(value) for value in np.polyfit(1 / left[sends], times[sends], 1, w=1 / times[sends]))
        rest = float(np.sum((curve(left, t, s, d) - logs) ** 2))
        if rest < best:
            best, chosen = rest, (t, s, d)
    return lambda of: curve(of, *chosen)


def straight(left: Floats, logs: Floats) -> Callable[[Floats], Floats]:
    """Fit a straight line of t over the load, by relative errors."""
    times = np.exp(logs)
    slope, intercept = np.polyfit(left, times, 1, w=1 / times)
    return lambda of: np.log(np.maximum(intercept + slope * of, times.min() / 2))


def constant(_left: Floats, logs: Floats) -> Callable[[Floats], Floats]:
    """Fit one time for all loads."""
    mean = float(logs.mean())
    return lambda of: np.full(len(of), mean)


RIVALS: Mapping[str, Fitter] = MappingProxyType(
    {"fluid curve": fluid, "fluid curve after a part": fluid_after, "straight line": straight, "constant": constant}
)


def left_out_error(fitter: Fitter, left: Floats, logs: Floats) -> float:
    """Return the root mean square error of ln t at each point, predicted from all the others."""
    errors = []
    for place in range(len(logs)):
        others = np.arange(len(logs)) != place
        errors.append(float(fitter(left[others], logs[others])(left[[place]])[0] - logs[place]))
    return float(np.sqrt(np.mean(np.square(errors))))


def r2(fitter: Fitter, left: Floats, logs: Floats) -> float:
    """Return R2 in ln t of a fit to all points; NaN where ln t does not vary."""
    total = float(np.sum((logs - logs.mean()) ** 2))
    return 1 - float(np.sum((fitter(left, logs)(left) - logs) ** 2)) / total if total > 0 else math.nan


def _curves(rows: Rows, by: list[str]) -> list[tuple[Rows, Floats, Floats]]:
    """Return the points of each curve and repetition by load, with what the loads leave (Gbit/s) and ln t."""
    found = []
    for of_all in grouped(rows, [*by, REPETITION]).values():
        points = [row for row in by_load(of_all) if row["seconds"] > 0]
        left = np.array([row["capacity_gbps"] - row["load_gbps"] for row in points], np.float64)
        found.append((points, left, np.log(np.array([row["seconds"] for row in points], np.float64))))
    return found


@step
def fitted(rows: Rows, *, by: list[str], exponents: list[float], only: str = "") -> Rows:
    """Return fits t = A exp(B / (C - load)^n) of each curve (rows of `curves` with the same `by`), by repetition.

    A row an exponent `n`: `a_s` (s), `b`, `r2` (of ln t), `points`, and `left_out_pct`, the root mean square error at a
    point that is predicted from all others (%). A fit needs three points. `only` is a column that must equal `n`: with
    it each curve is fitted with its own exponent.
    """
    found: Rows = []
    for points, left, logs in _curves(rows, by):
        if len(np.unique(left)) < 3:
            continue
        for n in exponents:
            if only and points[0].get(only) != n:
                continue
            b, intercept = np.polyfit(left**-n, logs, 1)
            mine: Fitter = partial(exponential, n=n)
            fit = {"n": n, "a_s": math.exp(intercept), "b": float(b), "r2": r2(mine, left, logs), "points": len(points)}
            error = 100 * left_out_error(mine, left, logs) if len(points) > 3 else None
            found.append({**same(points), **fit, "left_out_pct": error})
    return found


@step
def forms(rows: Rows, *, by: list[str], exponent: str) -> Rows:
    """Return how well t = A exp(B / (C - load)^n) predicts left-out points beside each other form, by repetition.

    `exponent` is the column that has n of a curve. A row an `against`: fluid curve (max(T, D / (C - load))), fluid
    curve after a part (max(T, S + D / (C - load))), straight line, constant. `share` is the root mean square error of
    ln t of the exponential form over that of the other one, at points that were left out of the fit; `r2` is the other
    form's, and `r2_of_form` the exponential one's. Curves of fewer than five points have no rows.
    """
    found: Rows = []
    for points, left, logs in _curves(rows, by):
        n = points[0].get(exponent) if points else None
        if len(points) < FEWEST or n is None:
            continue
        mine: Fitter = partial(exponential, n=float(n))
        error = max(left_out_error(mine, left, logs), LEAST_ERROR)
        found += [
            {
                **same(points),
                "against": name,
                "share": error / max(left_out_error(rival, left, logs), LEAST_ERROR),
                "r2": r2(rival, left, logs),
                "r2_of_form": r2(mine, left, logs),
            }
            for name, rival in RIVALS.items()
        ]
    return found


@step
def with_fits(rows: Rows, *, by: list[str], exponent: str, steps: int = 60) -> Rows:
    """Return the rows and, of each curve, its fit to the means over repetitions, to draw both.

    `exponent` is the column with n of a curve; a column `fit` is whether a row lies on a fit. Curves of fewer than
    three points, or without an exponent, have no fit.
    """
    found: Rows = [{**row, "fit": False} for row in rows]
    for of_all in grouped(rows, by).values():
        points = [_mean(one) for one in grouped(by_load(of_all), ["requested_gbps"]).values()]
        n = points[0].get(exponent) if points else None
        if len(points) < 3 or n is None:
            continue
        left = np.array([row["capacity_gbps"] - row["load_gbps"] for row in points])
        curve = exponential(left, np.log([row["seconds"] for row in points]), n=float(n))
        kept = {**same(of_all), RUN: "", REPETITION: 1, "fit": True}
        loads = points[0]["capacity_gbps"] - np.linspace(left.max(), left.min(), steps)
        times = np.exp(curve(points[0]["capacity_gbps"] - loads))
        found += [
            {**kept, "load_gbps": load, "point_gbps": load, "seconds": seconds}
            for load, seconds in zip(loads.tolist(), times.tolist(), strict=True)
        ]
    return found


def _mean(rows: Rows) -> Row:
    """Return the mean over repetitions of a point's load and, in its logarithm, time."""
    load = float(np.mean([row["load_gbps"] for row in rows]))
    seconds: Any = math.exp(float(np.mean([math.log(row["seconds"]) for row in rows])))
    return {**rows[0], "load_gbps": load, "seconds": seconds}
