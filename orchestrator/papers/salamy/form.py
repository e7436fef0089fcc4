"""The form of the thesis' fits against rivals, on points that were left out (eqs. 3.3, 3.5 and 3.6).

Whatever grows towards the capacity lies near A exp(B / (C - load)^n): a fluid curve does with an R2 of 0.98 to 0.995.
So R2 is no evidence of the form. What is: that it predicts points which were left out of its fit better than others do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.agreement import over_runs
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.papers.salamy.model import Analysed
from orchestrator.papers.salamy.published import Salamy
from orchestrator.papers.salamy.repeated import repetitions
from orchestrator.report.study.content import Comparison, Section, cannot_tell, claimed

Floats = npt.NDArray[np.float64]
Fitter = Callable[
    [Floats, Floats], Callable[[Floats], Floats]
]  # of what is left (Gbit/s) and ln t: ln t of what is left

EXPONENTS = {"iperf": 1.0, "websearch": 0.5, "websearch-burst": 2.0}
SOURCES = {"iperf": "eq 3.3", "websearch": "eq 3.5", "websearch-burst": "eq 3.6"}
WITHOUT_FLAT = ("bert-large", "vgg16")  # whose curves the thesis fits as a whole
LEAST_ERROR = 1e-9  # of ln t: a fit that leaves nothing
FEWEST = 5  # points, so that each can be left out of a fit of two parameters


def thesis(left: Floats, logs: Floats, *, n: float) -> Callable[[Floats], Floats]:
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
    """Return R2 in ln t of a fit to all points."""
    total = float(np.sum((logs - logs.mean()) ** 2))
    return 1 - float(np.sum((fitter(left, logs)(left) - logs) ** 2)) / total if total > 0 else math.nan


def section(found: Sequence[Analysed], printed: Salamy) -> Section:
    """Judge the form of each curve that the thesis fits as a whole, over its range of loads."""
    return Section(
        title="The form of the thesis' fits, against others",
        text=(
            "The root mean square error (of ln t) at points that were left out of a fit, by the best other form over "
            "that by the thesis' one, worked out of each repetition. Others: a fluid curve max(T, D / (C - load)), one "
            "after a part S, max(T, S + D / (C - load)), a straight line, a constant. R2 of each fit stands beside it: "
            "whatever grows has a high one."
        ),
        comparisons=tuple(compared(one, printed) for one in found if _is_fitted(one)),
    )


def _is_fitted(one: Analysed) -> bool:
    kind = one.series.kind
    return kind.traffic in EXPONENTS and (kind.model in WITHOUT_FLAT or kind.traffic == "websearch-burst")


def compared(one: Analysed, printed: Salamy) -> Comparison:
    """Judge the form of a curve against the rival that is closest to it."""
    kind = one.series.kind
    n, source, check = EXPONENTS[kind.traffic], SOURCES[kind.traffic], printed.check("form")
    used = [p.used_gbps for p in printed.most_congested if (p.model, p.traffic) == (kind.model, kind.traffic)]
    up_to_gbps = printed.capacity_gbps - min(used, default=0.0)
    points = [
        point
        for point in one.series.points
        if point.load_bps <= up_to_gbps * 1e9 and point.load_bps < one.series.capacity_bps
    ]
    what = f"{kind.model}, {kind.traffic}: A exp(B / (C - load)^{n:g}) against the best other form"
    if len(points) < FEWEST:
        why = f"{len(points)} points up to {up_to_gbps:g} Gbit/s, and {FEWEST} are needed"
        return cannot_tell(check, what, "it describes the curve", source=source, why=why)
    left = np.array([(one.series.capacity_bps - point.load_bps) / 1e9 for point in points])
    mine: Fitter = partial(thesis, n=n)
    forms: Mapping[str, Fitter] = {"thesis": mine, **RIVALS}
    logs = [np.log(times) for times in repetitions(points)]
    over = {name: _over(mine, rival, left, logs) for name, rival in RIVALS.items()}
    best = min(over, key=lambda name: over[name].value)
    # All rivals have to be further off: the least of their ratios is judged, with the least of either bound.
    least = Estimate(*(min(getattr(of, end) for of in over.values()) for end in ("value", "low", "high")))
    means = np.log([point.mean_s for point in points])
    told = ", ".join(f"{name} {r2(fitter, left, means):.3f}" for name, fitter in forms.items())
    return claimed(
        check, what, least, told=f"R2 of {told}; error of {best}", unit="times", printed="it fits", source=source
    )


def _over(mine: Fitter, rival: Fitter, left: Floats, logs: Sequence[Floats]) -> Estimate:
    """Return how many times as large the rival's errors are, with an interval over repetitions."""
    errors = [[max(left_out_error(fitter, left, of), LEAST_ERROR) for fitter in (rival, mine)] for of in logs]
    over = over_runs(math.log(theirs / ours) for theirs, ours in errors)
    return Estimate(math.exp(over.value), math.exp(over.low), math.exp(over.high))
