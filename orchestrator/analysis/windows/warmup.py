"""Choose where a window begins once its iterations are known: where they have settled (MSER-5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.stats.steady import truncation
from orchestrator.store.manifests.records import Truncation, Window

AUTO = "auto"  # how an experiment has warm-up chosen from the data


def is_open(window: Window) -> bool:
    """Return whether the beginning of a manifest's window is to be chosen from the data, and can be."""
    return window.warmup == AUTO and bool(window.iterations) and window.iterations.keys() <= window.earliest.keys()


def settled(window: Window, logged: Mapping[str, JobSeries]) -> Window:
    """Return the window of a manifest, beginning where the first iterations of all its jobs have settled.

    The run has set it to begin after as many iterations as may be left out at most; those before, from `earliest` on,
    were made under the same traffic. `logged` has all iterations of each job. A window whose warm-up is a number, or of
    which a job logged nothing, stays as it is.
    """
    if not is_open(window):
        return window
    spans, earliest = window.iterations, window.earliest
    parts = {job: logged[job].within(earliest[job], span.last) for job, span in spans.items()}
    if not all(len(part.iteration) for part in parts.values()):
        return window
    cuts = {job: truncation(part.seconds, spans[job].first - earliest[job]) for job, part in parts.items()}
    start_ns = max(int(part.start_ns[cuts[job].left_out]) for job, part in parts.items())
    firsts = {job: int((part.start_ns < start_ns).sum()) for job, part in parts.items()}
    if any(firsts[job] >= len(part.iteration) for job, part in parts.items()):
        return window
    return replace(
        window,
        start_ns=min(int(part.start_ns[firsts[job]]) for job, part in parts.items()),
        iterations={job: replace(spans[job], first=int(part.iteration[firsts[job]])) for job, part in parts.items()},
        mser={job: Truncation(samples=cut.samples, unbounded=cut.unbounded) for job, cut in cuts.items()},
    )


def left_out(window: Window, job: str) -> int | None:
    """Return how many iterations under the window's traffic were warm-up; None where that is not recorded."""
    if job not in window.iterations or job not in window.earliest:
        return None
    return window.iterations[job].first - window.earliest[job]
