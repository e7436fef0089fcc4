"""Fit an iteration time that grows towards the capacity of a shared link: t = A exp(B / (C - load)^n).

Salamy (2022), eq. 3.7; as there, least squares of ln t, and R2 in ln t. C is known. For a given n the fit is a straight
line over x = 1 / (C - load)^n with rates in Gbit/s, so that B is in (Gbit/s)^n, as the thesis prints it.

What sets runs apart moves all points of a run together, and their scatter about a curve does not show it. So where runs
have several points each, the run is the unit of intervals: by the jackknife that leaves out one run at a time (Cameron
and Miller, "A practitioner's guide to cluster-robust inference", Journal of Human Resources 50(2), 2015). A single run
of several points has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

EXPONENTS = (0.5, 1.0, 2.0)  # those of the thesis, eqs. 3.3, 3.5 and 3.6
FREE_WITHIN = (0.05, 6.0)
CONFIDENCE = 0.95
GBIT = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted curve over `points` points; intervals at CONFIDENCE, NaN where there are too few runs for them.

    `freedom` is that of the intervals. `r2` is of ln t. `left_out_error` is the root mean square of ln t at each point
    predicted from all the others, about the relative error of a prediction; `aicc` is Akaike's criterion with Hurvich
    and Tsai's correction (1989).
    """

    a_s: float
    a_interval_s: tuple[float, float]
    b: float
    b_interval: tuple[float, float]
    n: float
    n_interval: tuple[float, float] | None  # None where n was given
    capacity_bps: float
    points: int
    r2: float
    left_out_error: float
    aicc: float
    covariance: tuple[tuple[float, ...], ...]  # of ln A, B and, where it was fitted, n
    freedom: float

    def seconds(self, load_bps: npt.ArrayLike) -> Floats:
        """Return the curve at these loads; infinite at and above the capacity."""
        left = (self.capacity_bps - np.asarray(load_bps, np.float64)) / GBIT
        with np.errstate(divide="ignore", over="ignore"):
            found: Floats = np.where(left > 0, self.a_s * np.exp(self.b / np.maximum(left, 1e-12) ** self.n), np.inf)
        return found

    def band(self, load_bps: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return the confidence band of the curve (not of single points) at these loads below the capacity."""
        from scipy import stats

        left = (self.capacity_bps - np.asarray(load_bps, np.float64)) / GBIT
        gradient = _gradient(left, self.b, self.n, free=len(self.covariance) == 3)
        spread = np.sqrt(np.einsum("ij,jk,ik->i", gradient, np.asarray(self.covariance), gradient))
        half = stats.t.ppf((1 + CONFIDENCE) / 2, self.freedom) * spread
        middle = self.seconds(load_bps)
        return middle * np.exp(-half), middle * np.exp(half)


def fit(
    load_bps: npt.ArrayLike,
    seconds: npt.ArrayLike,
    *,
    capacity_bps: float,
    n: float | None = None,
    runs: Sequence[Mapping[str, float]] = (),
) -> Fit | None:
    """Fit a curve with this exponent, or with the best one where n is None.

    `runs` has the mean of each run at each point (seconds, by the run's name); without them each point is taken for a
    run of its own. Points at or above the capacity, and those without a time, are left out. None where fewer distinct
    loads are left than one more than there are parameters: nothing could be said of the scatter then. None as well
    where the best exponent is at an end of FREE_WITHIN: the points do not determine one.
    """
    left, logs, keep = _usable(load_bps, seconds, capacity_bps)
    parameters = 2 if n is not None else 3
    found = _parameters(left, logs, n)
    if found is None:
        return None
    intercept, b, exponent = found
    residual = logs - intercept - b * left**-exponent
    rest = float(residual @ residual)
    total = float(np.sum((logs - logs.mean()) ** 2))
    mine = [one for one, kept in zip(runs, keep, strict=True) if kept] if runs else []
    freedom = float(len(logs) - parameters)
    if _shared(mine):
        covariance, freedom = _over_runs(left, mine, n)
        half = _student(freedom) * np.sqrt(np.diag(covariance))
        exponents = (exponent - float(half[-1]), exponent + float(half[-1]))
    else:
        gradient = _gradient(left, b, exponent, free=n is None)
        covariance = rest / freedom * np.linalg.pinv(gradient.T @ gradient)
        half = _student(freedom) * np.sqrt(np.diag(covariance))
        exponents = _exponent_interval(left, logs, exponent, rest) if n is None else (math.nan, math.nan)
    return Fit(
        a_s=math.exp(intercept),
        a_interval_s=(math.exp(intercept - half[0]), math.exp(intercept + half[0])),
        b=b,
        b_interval=(b - float(half[1]), b + float(half[1])),
        n=exponent,
        n_interval=None if n is not None else exponents,
        capacity_bps=capacity_bps,
        points=len(logs),
        r2=1 - rest / total if total > 0 else math.nan,
        left_out_error=_left_out_error(left, logs, n),
        aicc=_aicc(rest, len(logs), parameters),
        covariance=tuple(tuple(float(value) for value in row) for row in covariance),
        freedom=freedom,
    )


def candidates(
    load_bps: npt.ArrayLike, seconds: npt.ArrayLike, *, capacity_bps: float, runs: Sequence[Mapping[str, float]] = ()
) -> tuple[Fit, ...]:
    """Return the fits with the exponents of the thesis and with a free one, as far as the points determine them."""
    found = (fit(load_bps, seconds, capacity_bps=capacity_bps, n=n, runs=runs) for n in (*EXPONENTS, None))
    return tuple(one for one in found if one is not None)


def chosen(found: tuple[Fit, ...]) -> Fit | None:
    """Return the fit with the smallest leave-one-out error; None when there is none."""
    return min(found, key=lambda one: one.left_out_error, default=None)


def _parameters(left: Floats, logs: Floats, n: float | None) -> tuple[float, float, float] | None:
    """Return ln A, B and the exponent; None where the points do not determine them."""
    if len(np.unique(left)) < (3 if n is not None else 4):
        return None
    exponent = n if n is not None else _best_exponent(left, logs)
    if n is None and not 1.01 * FREE_WITHIN[0] < exponent < 0.99 * FREE_WITHIN[1]:
        return None
    intercept, b, _ = _line(left**-exponent, logs)
    return intercept, b, exponent


def _shared(runs: Sequence[Mapping[str, float]]) -> bool:
    """Return whether some run has several points."""
    names = [name for one in runs for name in one]
    return len(set(names)) < len(names)


def _over_runs(left: Floats, runs: Sequence[Mapping[str, float]], n: float | None) -> tuple[Floats, float]:
    """Return the jackknife's covariance of ln A, B and, where it is free, n, over runs, and its degrees of freedom.

    Runs that have all points each determine a curve, so that but one degree is lost; else as many as there are
    parameters. NaN where there are too few runs, or those without one of them do not determine a curve.
    """
    parameters = 2 if n is not None else 3
    unknown = np.full((parameters, parameters), math.nan)
    names = sorted({name for one in runs for name in one})
    balanced = all(len(one) == len(names) for one in runs)
    freedom = float(len(names) - (1 if balanced else parameters))
    if freedom < 1:
        return unknown, math.nan
    found = []
    for name in names:
        others = [[math.log(value) for run, value in one.items() if run != name] for one in runs]
        keep = np.array([bool(logs) for logs in others])
        means = np.array([math.fsum(logs) / len(logs) for logs in others if logs])
        fitted = _parameters(left[keep], means, n)
        if fitted is None:
            return unknown, math.nan
        found.append(fitted[:parameters])
    apart = np.array(found) - np.mean(found, axis=0)
    covariance: Floats = (len(names) - 1) / len(names) * apart.T @ apart
    return covariance, freedom


def _usable(
    load_bps: npt.ArrayLike, seconds: npt.ArrayLike, capacity_bps: float
) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    left = (capacity_bps - np.asarray(load_bps, np.float64)) / GBIT
    times = np.asarray(seconds, np.float64)
    keep = (left > 0) & np.isfinite(times) & (times > 0)
    return left[keep], np.log(times[keep]), keep


def _line(x: Floats, y: Floats) -> tuple[float, float, Floats]:
    slope, intercept = np.polynomial.polynomial.polyfit(x, y, 1)[::-1]
    return float(intercept), float(slope), y - intercept - slope * x


def _rest(exponent: float, left: Floats, logs: Floats) -> float:
    residual = _line(left**-exponent, logs)[2]
    return float(residual @ residual)


def _best_exponent(left: Floats, logs: Floats) -> float:
    from scipy import optimize

    grid = np.geomspace(*FREE_WITHIN, 40)
    rests = [_rest(float(n), left, logs) for n in grid]
    place = int(np.argmin(rests))
    around = (float(grid[max(0, place - 1)]), float(grid[min(len(grid) - 1, place + 1)]))
    return float(
        optimize.minimize_scalar(_rest, bounds=around, args=(left, logs), method="bounded", options={"xatol": 1e-9}).x
    )


def _exponent_interval(left: Floats, logs: Floats, best: float, rest: float) -> tuple[float, float]:
    """Return the interval of the exponent: those whose residuals an F test cannot tell from the best one's.

    This is the profile likelihood's interval, within FREE_WITHIN.
    """
    from scipy import optimize, stats

    freedom = len(logs) - 3
    limit = rest * (1 + float(stats.f.ppf(CONFIDENCE, 1, freedom)) / freedom)

    def beyond(exponent: float) -> float:
        return _rest(exponent, left, logs) - limit

    low, high = (
        end if beyond(end) <= 0 else float(optimize.brentq(beyond, min(end, best), max(end, best), rtol=1e-9))
        for end in FREE_WITHIN
    )
    return low, high


def _gradient(left: Floats, b: float, n: float, *, free: bool) -> Floats:
    """Return the derivatives of ln t by ln A, B and, where it is free, n; shape (points, parameters)."""
    x = left**-n
    columns = [np.ones_like(x), x] + ([-b * x * np.log(left)] if free else [])
    return np.stack(columns, axis=1)


def _left_out_error(left: Floats, logs: Floats, n: float | None) -> float:
    """Return the root mean square leave-one-out error: each point predicted from all the others."""
    errors = []
    for place in range(len(logs)):
        others = np.arange(len(logs)) != place
        exponent = n if n is not None else _best_exponent(left[others], logs[others])
        intercept, slope, _ = _line(left[others] ** -exponent, logs[others])
        errors.append(logs[place] - intercept - slope * left[place] ** -exponent)
    return float(np.sqrt(np.mean(np.square(errors))))


def _aicc(rest: float, points: int, parameters: int) -> float:
    k = parameters + 1  # the scatter is one, too
    if points <= k + 1 or rest <= 0:
        return math.nan
    return points * math.log(rest / points) + 2 * k + 2 * k * (k + 1) / (points - k - 1)


def _student(freedom: float) -> float:
    from scipy import stats

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
