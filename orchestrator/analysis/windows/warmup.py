"""Judge whether a window's warm-up was long enough, once its iterations are known (MSER-5).

What a window leaves out is fixed before it is measured. A cut chosen from the iterations themselves would leave out
slow ones rather than others: a stall, a slow regime or a periodic slow iteration near the beginning looks like warm-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.store.manifests.records import Truncation, Window
from orchestrator.validity.steady import steady_from

AUTO = "auto"  # an experiment's usual warm-up


def is_open(window: Window) -> bool:
    """Return whether the warm-up of a manifest's window is to be judged, and can be."""
    return window.warmup == AUTO and bool(window.iterations) and window.iterations.keys() <= window.earliest.keys()


def judged(window: Window, logged: Mapping[str, JobSeries]) -> Window:
    """Return the window of a manifest with how many of its first iterations MSER-5 takes for warm-up, for each job.

    Iterations from `earliest` on were made under the same traffic. `logged` has all iterations of each job. A window
    whose warm-up is a number, or of which a job logged nothing, stays as it is.
    """
    if not is_open(window):
        return window
    parts = {job: logged[job].within(window.earliest[job], span.last) for job, span in window.iterations.items()}
    if not all(len(part.iteration) for part in parts.values()):
        return window
    rule = {
        job: Truncation(samples=len(part.seconds), unbounded=steady_from(part.seconds)) for job, part in parts.items()
    }
    return replace(window, mser=rule)


def left_out(window: Window, job: str) -> int | None:
    """Return how many iterations under the window's traffic were warm-up; None where that is not recorded."""
    if job not in window.iterations or job not in window.earliest:
        return None
    return window.iterations[job].first - window.earliest[job]
