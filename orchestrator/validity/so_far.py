"""Judge a window while it is measured, by what its controller hears: iterations, their trend, and what receivers count.

A window is lost once a gate fails that would fail of the whole window, too, if the rest went as it should: iterations
at the median of those measured, and every load as it was requested. Whether a trend is significant is told by what is
measured; its size over the whole is the slope of a straight line by least squares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, linear_regression, median

from orchestrator.store.manifests.records import Gate, Manifest, Window
from orchestrator.store.manifests.summaries import Training
from orchestrator.validity.gates import drift as drift_gate
from orchestrator.validity.gates import iterations, load
from orchestrator.validity.window import ArrivedLoad, JobIterations, PartlyKnown

_LOSING = ("drift", "load")  # gates by which a window is lost; of iterations there may be enough yet


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSoFar:
    """Cross traffic that is to arrive at an end (a host or a rail of it), and the mean of all that did; bit/s, scaled.

    `mean_bps` is None where nothing was counted yet.
    """

    end: str
    requested_bps: float
    mean_bps: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SoFar:
    """A window that is being measured: seconds of each job's iterations in it, in their order, and its loads.

    `measured` counts a job's iterations, of which `seconds` may have the last ones alone. Of `share` of it, None where
    that is not known, is measured.
    """

    name: str
    wanted: int | None
    measured: Mapping[str, int]
    seconds: Mapping[str, Sequence[float]]
    loads: Sequence[LoadSoFar]
    share: float | None = None


def gates(manifest: Manifest, window: SoFar) -> list[Gate]:
    """Return the verdicts on what is measured of a window, by those gates that this tells something of.

    Loads are judged where nothing trains: elsewhere the counters have the training's bytes, too.
    """
    return _judged(manifest, window, [_training(name, seconds) for name, seconds in window.seconds.items()])


def lost(manifest: Manifest, window: SoFar) -> str:
    """Return by which gate a window is lost already, in its words; empty while it may be valid yet."""
    if not window.share:
        return ""
    training = [_training(name, seconds) for name, seconds in window.seconds.items()]
    failing = [gate for gate in _judged(manifest, window, training) if _fails(gate)]
    if not failing:
        return ""
    share = window.share
    whole = [_of_whole(row, window.seconds[row.job], share) for row in training]
    loads = [
        replace(one, mean_bps=share * one.mean_bps + (1 - share) * one.requested_bps)
        for one in window.loads
        if one.mean_bps is not None
    ]
    at_best = _judged(manifest, replace(window, loads=loads), whole)
    still = {(gate.name, _subject(gate)) for gate in at_best if _fails(gate)}
    return next((gate.message for gate in failing if (gate.name, _subject(gate)) in still), "")


def _judged(manifest: Manifest, window: SoFar, training: Sequence[Training]) -> list[Gate]:
    logging = {job.name: sum(rank.logs for rank in job.ranks) for job in manifest.jobs}
    trains = {rank.node for job in manifest.jobs for rank in job.ranks}
    known = PartlyKnown(
        manifest=manifest,
        record=Window(name=window.name, start_ns=0, end_ns=0, valid=False, reasons=(), wanted_iterations=window.wanted),
        jobs=tuple(
            JobIterations(name=name, iterations=count, incomplete=0, ranks=logging[name], ranks_seen=logging[name])
            for name, count in window.measured.items()
            if name in logging
        ),
        training=tuple(row for row in training if row.job in logging),
        loads=tuple(
            _arrived(one, one.mean_bps)
            for one in window.loads
            if one.mean_bps is not None and one.end.partition("/")[0] not in trains
        ),
    )
    found = (gate for module in (iterations, drift_gate, load) for gate in module.judge(known))
    return [gate for gate in found if gate.name not in ("gap", "overlap")]


def _fails(gate: Gate) -> bool:
    return gate.name in _LOSING and gate.required and gate.passed is False


def _subject(gate: Gate) -> str:
    """Return what a verdict is on: a job, or a load."""
    return gate.message.partition(":")[0]


def _training(job: str, seconds: Sequence[float]) -> Training:
    from orchestrator.validity.steady import drift  # scipy: a run that judges nothing on its way does without

    trend = drift(seconds)
    return Training(
        job=job,
        iterations=len(seconds),
        mean_s=fmean(seconds) if seconds else None,
        p50_s=median(seconds) if seconds else None,
        p99_s=None,
        drift=trend.share,
        drift_low=trend.low,
        drift_high=trend.high,
        drift_p=trend.p,
    )


def _of_whole(row: Training, seconds: Sequence[float], share: float) -> Training:
    """Return the figures of a whole window of which `seconds` are a share, its rest at their median."""
    if not seconds:
        return row
    whole = [*seconds, *[median(seconds)] * round(len(seconds) * (1 / share - 1))]
    if len(whole) < 2:
        return row
    growth = linear_regression(range(len(whole)), whole).slope * (len(whole) - 1)
    return replace(row, iterations=len(whole), drift=growth / fmean(whole))


def _arrived(one: LoadSoFar, mean_bps: float) -> ArrivedLoad:
    return ArrivedLoad(
        source="cross traffic",
        src="all senders",
        dst=one.end,
        requested_bps=one.requested_bps,
        achieved_bps=mean_bps,
        longest_gap_s=0.0,
        seen_by="by its counters so far",
    )
