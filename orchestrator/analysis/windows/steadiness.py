"""Where a window begins once its iterations are known, and whether they are steady from there on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.stats.steady import Drift, truncation
from orchestrator.analysis.windows.judgement import Gate, gate

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


def is_open(window: Mapping[str, Any]) -> bool:
    """Whether the beginning of a manifest's window is to be chosen from the data, and can be."""
    spans, earliest = window["iterations"], window.get("earliest") or {}
    return window.get("warmup") == AUTO and bool(spans) and spans.keys() <= earliest.keys()


def settled(window: Mapping[str, Any], logged: Mapping[str, JobSeries]) -> dict[str, Any]:
    """The window of a manifest, beginning where the first iterations of all its jobs have settled.

    The run has set it to begin after as many iterations as may be left out at most; those before, from `earliest` on,
    were made under the same traffic. `logged` has all iterations of each job. A window whose warm-up is a number, or of
    which a job logged nothing, stays as it is.
    """
    if not is_open(window):
        return dict(window)
    spans, earliest = window["iterations"], window["earliest"]
    parts = {job: logged[job].within(earliest[job], span["last"]) for job, span in spans.items()}
    if not all(len(part.iteration) for part in parts.values()):
        return dict(window)
    cuts = {job: truncation(part.seconds, spans[job]["first"] - earliest[job]) for job, part in parts.items()}
    start_ns = max(int(part.start_ns[cuts[job].left_out]) for job, part in parts.items())
    firsts = {job: int((part.start_ns < start_ns).sum()) for job, part in parts.items()}
    if any(firsts[job] >= len(part.iteration) for job, part in parts.items()):
        return dict(window)
    return {
        **window,
        "start_ns": min(int(part.start_ns[firsts[job]]) for job, part in parts.items()),
        "iterations": {
            job: {**spans[job], "first": int(part.iteration[firsts[job]])} for job, part in parts.items()
        },
        "mser": {job: {"samples": cut.samples, "unbounded": cut.unbounded} for job, cut in cuts.items()},
    }  # fmt: skip


def columns(window: Mapping[str, Any], job: str, drift: Drift) -> dict[str, Any]:
    """What the table `training` says of it; nothing of warm-up where a window does not record its earliest."""
    first, earliest = (window["iterations"].get(job) or {}).get("first"), (window.get("earliest") or {}).get(job)
    return {
        "left_out": None if first is None or earliest is None else first - earliest,
        "drift": drift.share, "drift_low": drift.low, "drift_high": drift.high, "drift_p": drift.p,
    }  # fmt: skip


def found(window: Mapping[str, Any], job: str, drift: Drift) -> Steadiness:
    """What is known of a job in a window of a manifest."""
    rule = (window.get("mser") or {}).get(job) or {}
    return Steadiness(job=job, drift=drift, samples=rule.get("samples", 0), unbounded=rule.get("unbounded"))


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
