"""Measure how jobs kept to their pace in a window: the period of their iterations, and the offset to another job's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.stats.statistics import FEWEST, summarise
from orchestrator.store.manifests.summaries import Job

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How a job kept to its pace in a window, seconds; None for what it was not asked to keep, or has not."""

    period_s: float | None = None
    period_low_s: float | None = None
    period_high_s: float | None = None
    late_s: float | None = None
    offset_s: float | None = None
    offset_low_s: float | None = None
    offset_high_s: float | None = None
    off_s: float | None = None


def kept(job: Job, part: JobSeries, whole: Mapping[str, JobSeries]) -> Kept:
    """Return how a job kept to its pace by `part`, its iterations in a window; `whole` are all iterations of all jobs.

    The period is the mean time between the begins of iterations, and `late_s` the mean time by which these missed their
    turn, which is counted from the earliest. An offset is held against the begin of that iteration of the other job
    from which it is nearest to what was asked, so that neither a whole period more nor less counts: `offset_s` is its
    mean and `off_s` the mean of how far it was off. Intervals (95 %) account for autocorrelation.
    """
    pace = job.pace
    if pace is None or not len(part.iteration):
        return Kept()
    found = Kept()
    if pace.every_s is not None and len(part.start_ns) > 1:
        period = summarise(_seconds(np.diff(part.start_ns)), fewest_of_mean=FEWEST).mean
        mine = whole[part.job]
        turns_s = _seconds(mine.start_ns - mine.start_ns[0]) - (mine.iteration - mine.iteration[0]) * pace.every_s
        counted = np.isin(mine.iteration, part.iteration)
        found = Kept(
            period_s=period.value,
            period_low_s=period.low,
            period_high_s=period.high,
            late_s=float(np.mean(turns_s[counted] - turns_s.min())),
        )
    off = _off(part.start_ns, whole[pace.after].start_ns, pace.by_s) if pace.after else np.zeros(0)
    if len(off):
        about = summarise(off, fewest_of_mean=FEWEST).mean
        found = replace(
            found,
            offset_s=pace.by_s + about.value,
            offset_low_s=pace.by_s + about.low,
            offset_high_s=pace.by_s + about.high,
            off_s=float(np.mean(np.abs(off))),
        )
    return found


def _off(starts_ns: npt.NDArray[np.int64], begins_ns: npt.NDArray[np.int64], by_s: float) -> Floats:
    """Return by how much each start is later than the nearest of the other job's begins and the offset, seconds.

    Starts further from all of these than one usually is from the next are left out: the other job did not run.
    """
    if len(begins_ns) < 2:
        return np.zeros(0)
    wanted = np.sort(begins_ns) + round(by_s * 1e9)
    after = np.clip(np.searchsorted(wanted, starts_ns), 1, len(wanted) - 1)
    off = np.where(
        starts_ns - wanted[after - 1] < wanted[after] - starts_ns,
        starts_ns - wanted[after - 1],
        starts_ns - wanted[after],
    )
    return _seconds(off[np.abs(off) < np.median(np.diff(wanted))])


def _seconds(ns: npt.NDArray[np.int64]) -> Floats:
    return np.asarray(ns, np.float64) * 1e-9
