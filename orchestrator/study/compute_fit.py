"""Which compute time makes an iteration as long as a paper prints it: pure, on whatever measures an iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.core.errors import OrchError

CLOSE = 0.01  # a fitted iteration is this much off what is printed, at most
MOST_RUNS = 6
LEAST_S = 0.001  # of compute: as good as none
SLOPES = (0.25, 4.0)  # what the iteration gains for a second of compute, however two noisy runs lie to each other
LARGER_SCALES = (2, 4, 8)

Measure = Callable[[float, int], float]  # seconds of compute, and times the testbed's scale: seconds of an iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A compute time, the iteration that it makes, what is printed, and in how many runs it was found; in seconds."""

    compute_s: float
    iteration_s: float
    printed_s: float
    runs: int


class TooSlow(OrchError):
    """Iterations are longer than printed without any compute: `carries` is by how much to scale more, if that helps."""

    def __init__(self, iteration_s: float, printed_s: float, carries: int | None) -> None:
        super().__init__(
            f"an iteration takes {iteration_s:.4g} s without any compute, and {printed_s:.4g} s are printed"
        )
        self.carries = carries


def fit(printed_s: float, measure: Measure, *, first_s: float) -> Fitted:
    """Follow the secant from a first guess to the printed time (Press et al., Numerical Recipes, section 9.2).

    TooSlow where there is no such compute time, OrchError where runs differ too much to find it.
    """
    tried: list[tuple[float, float]] = []
    compute_s = max(first_s, LEAST_S)
    for runs in range(1, MOST_RUNS + 1):
        iteration_s = measure(compute_s, 1)
        tried.append((compute_s, iteration_s))
        if abs(iteration_s / printed_s - 1) <= CLOSE:
            return Fitted(compute_s=compute_s, iteration_s=iteration_s, printed_s=printed_s, runs=runs)
        if compute_s <= LEAST_S and iteration_s > printed_s:
            raise TooSlow(iteration_s, printed_s, _carried(printed_s, measure))
        compute_s = max(_next(tried, printed_s), LEAST_S)
    attempts = ", ".join(f"{iteration_s:.4g} s with {compute_s:.4g}" for compute_s, iteration_s in tried)
    raise OrchError(
        f"no compute time makes an iteration of {printed_s:.4g} s in {MOST_RUNS} runs: {attempts}",
        hint="calibrate while nothing else runs on this machine",
    )


def _next(tried: list[tuple[float, float]], printed_s: float) -> float:
    """Where the line through the two runs nearest to the printed time meets it; from one run with a slope of one."""
    (compute_s, iteration_s), *others = sorted(tried, key=lambda point: abs(point[1] - printed_s))
    slope = 1.0
    if others and others[0][0] != compute_s:
        slope = (others[0][1] - iteration_s) / (others[0][0] - compute_s)
    return compute_s + (printed_s - iteration_s) / min(max(slope, SLOPES[0]), SLOPES[1])


def _carried(printed_s: float, measure: Measure) -> int | None:
    """The smallest of the larger scales that the machine carries, as a factor."""
    return next((times for times in LARGER_SCALES if measure(LEAST_S, times) <= printed_s), None)
