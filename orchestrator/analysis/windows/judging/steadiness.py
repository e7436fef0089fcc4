"""Where a window begins once its iterations are known, and whether they are steady from there on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.stats.steady import Drift, truncation
from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.store.manifests.window_records import Gate, Truncation, Window

AUTO = "auto"  # how an experiment has warm-up chosen from the data
SIGNIFICANCE = 0.01
NOTED = 0.01  # of the iteration time, the smallest significant drift that is remarked upon


@dataclass(frozen=True, slots=True, kw_only=True)
class Steadiness:
    """How steady a job's iterations are in a window.

    `unbounded` of all `samples` would have been left out as warm-up by MSER-5 without a bound; None where warm-up is a
    number of the experiment's.
    """

    job: str
    drift: Drift
    samples: int = 0
    unbounded: int | None = None


def is_open(window: Window) -> bool:
    """Whether the beginning of a manifest's window is to be chosen from the data, and can be."""
    return window.warmup == AUTO and bool(window.iterations) and window.iterations.keys() <= window.earliest.keys()


def settled(window: Window, logged: Mapping[str, JobSeries]) -> Window:
    """The window of a manifest, beginning where the first iterations of all its jobs have settled.

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
    """How many iterations under the window's traffic were warm-up; None where the window does not record it."""
    if job not in window.iterations or job not in window.earliest:
        return None
    return window.iterations[job].first - window.earliest[job]


def found(window: Window, job: str, drift: Drift) -> Steadiness:
    """What is known of a job in a window of a manifest."""
    rule = window.mser.get(job, Truncation())
    return Steadiness(job=job, drift=drift, samples=rule.samples, unbounded=rule.unbounded)


def judge_steadiness(jobs: Iterable[Steadiness], limit: float | None) -> Iterator[Gate]:
    """A gate for each job: a trend counts when it is significant and above the limit, and is noted above NOTED."""
    for one in jobs:
        trend = one.drift
        if math.isnan(trend.share):
            text = f"job {one.job}: too few iterations to tell a drift"
            yield gate("drift", None, text, measured=math.nan, limit=limit, required=False)
            continue
        size = abs(trend.share) if trend.p <= SIGNIFICANCE else 0.0
        text = f"job {one.job}: from the window's beginning to its end the iteration time drifts by {trend.share:+.1%}"
        text += f" (95 %: {trend.low:+.1%} to {trend.high:+.1%})"
        if size >= NOTED and one.unbounded is not None and 2 * one.unbounded >= one.samples:
            text += f"; no steady state in sight (MSER-5 would leave out {one.unbounded} of {one.samples})"
        fails = limit is not None and size > limit
        text += f", more than {limit:.3g} of it" if fails else ""
        steady = size < NOTED and not fails
        required = fails or (steady and limit is not None)
        yield gate("drift", steady, text, measured=trend.share, limit=limit, required=required)
