"""Combine the ranks of a job into one series of iterations, and summarise those of a window."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.statistics import FEWEST_EFFECTIVE, FEWEST_OF_MEAN, Summary, summarise
from orchestrator.core.units import span_text

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeries:
    """Iterations of a job, in order, that every rank logged.

    The all-reduce keeps ranks in step, so their times of one iteration differ only by when the last chunk reached each:
    the job's time is the mean over its ranks (seconds), it begins with the first rank and ends with the last one (ns).
    `incomplete` counts iterations that some rank lacks, which is also how a late start or an early end shows.
    """

    job: str
    ranks: tuple[int, ...]
    iteration: Ints
    seconds: Floats
    compute_s: Floats  # forward and backward
    wait_s: Floats  # for gradients after the last one was computed
    start_ns: Ints
    end_ns: Ints
    incomplete: int

    def within(self, first: int, last: int) -> JobSeries:
        """Return the iterations from `first` to `last`, both counted in."""
        keep = (self.iteration >= first) & (self.iteration <= last)
        wanted = max(0, last - first + 1)
        return JobSeries(
            job=self.job,
            ranks=self.ranks,
            iteration=self.iteration[keep],
            seconds=self.seconds[keep],
            compute_s=self.compute_s[keep],
            wait_s=self.wait_s[keep],
            start_ns=self.start_ns[keep],
            end_ns=self.end_ns[keep],
            incomplete=wanted - int(keep.sum()),
        )

    @property
    def compute_share(self) -> float:
        """Share of the time that went into forward and backward passes."""
        return _share(self.compute_s, self.seconds)

    @property
    def wait_share(self) -> float:
        """Share of the time in which computing was done and gradients were still on their way."""
        return _share(self.wait_s, self.seconds)

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """From the start of the first iteration to the end of the last one; None when there is none."""
        return (int(self.start_ns.min()), int(self.end_ns.max())) if len(self.iteration) else None

    def summary(self) -> Summary:
        """Estimate mean and quantiles of the iteration time in seconds."""
        return summarise(self.seconds)


def interval_note(found: Summary) -> str:
    """Return why a job's iteration times have no interval, or what slow iterations they have; empty for ordinary ones.

    One line for people, which says what to do where intervals are missing.
    """
    slow = found.slow
    usual, other = span_text(slow.usual), span_text(slow.other)
    note = ""
    if slow.kind == "levels":
        note = (
            f"no interval: two levels, {usual} and {other}, the latter in {slow.share:.0%} of the iterations, in "
            f"{slow.stretches} stretch{'' if slow.stretches == 1 else 'es'}; find what changes, or measure several runs"
        )
    elif slow.kind == "periodic":
        note = f"no interval: every {slow.every} iterations one takes {other}, others {usual}; measure several runs"
    elif found.trend:
        note = (
            f"no interval: times drift by {found.trend:+.1%} over the window; leave out a longer warm-up, or find what "
            "changes"
        )
    elif found.samples and math.isnan(found.p50.low):
        note = (
            f"no interval: {found.samples} iterations follow one another so closely that they may say less than "
            f"{FEWEST_EFFECTIVE:.0f} independent ones; measure more iterations"
        )
    elif found.heavy_tail:
        least, most = (span_text(slow.usual + float(slow.tail[end])) for end in (0, -1))
        note = (
            f"no interval of the mean: {len(slow.tail)} slow iterations decide it ({least} to {most}, usual are "
            f"{usual}), too unlike to tell how slow they get; measure more iterations, or judge the median"
        )
    elif found.samples < FEWEST_OF_MEAN and math.isnan(found.mean.low) and not math.isnan(found.p50.low):
        note = (
            f"no interval of the mean: {found.samples} iterations may have missed slow ones; measure "
            f"{FEWEST_OF_MEAN} or more, or judge the median"
        )
    elif slow.kind == "stalls" and slow.other > slow.usual:
        note = f"stalls: {slow.share:.1%} of the iterations take about {other}, others {usual}"
    return note


def series(table: Any, job: str) -> JobSeries:
    """Return the series of a job from the `iterations` table (a pyarrow Table)."""
    import pyarrow.compute as pc

    rows = table.filter(pc.equal(table["job"], job))
    ranks, known, place, whole = _placed(_numbers(rows, "rank", np.int64), _numbers(rows, "iteration", np.int64))

    def mean(column: str) -> Floats:
        return _means(place, _numbers(rows, column, np.float64), whole, len(ranks))

    start = np.full(len(known), np.iinfo(np.int64).max)
    end = np.full(len(known), np.iinfo(np.int64).min)
    np.minimum.at(start, place, _numbers(rows, "start_ns", np.int64))
    np.maximum.at(end, place, _numbers(rows, "end_ns", np.int64))
    return JobSeries(
        job=job,
        ranks=tuple(int(value) for value in ranks),
        iteration=known[whole],
        seconds=mean("seconds"),
        compute_s=mean("forward_s") + mean("backward_s"),
        wait_s=mean("wait_s"),
        start_ns=start[whole],
        end_ns=end[whole],
        incomplete=int((~whole).sum()),
    )


def in_step(rank: Ints, iteration: Ints, seconds: Floats) -> tuple[Ints, Floats]:
    """Return the iterations that every rank of a job logged, in order, and their seconds.

    The input has a row a rank and iteration.
    """
    ranks, known, place, whole = _placed(rank, iteration)
    return known[whole], _means(place, seconds, whole, len(ranks))


def _placed(rank: Ints, iteration: Ints) -> tuple[Ints, Ints, Ints, npt.NDArray[np.bool_]]:
    """Return the ranks, the iterations, each row's place among these, and a mask of those that every rank logged."""
    ranks = np.unique(rank)
    known, place, count = np.unique(iteration, return_inverse=True, return_counts=True)
    return ranks, known, place, count == len(ranks)


def _means(place: Ints, values: Floats, whole: npt.NDArray[np.bool_], ranks: int) -> Floats:
    """Return the mean over ranks, of iterations that every rank logged."""
    total = np.bincount(place, values, len(whole))
    means: Floats = total[whole] / ranks
    return means


def absorbed(table: Any, part: JobSeries) -> float | None:
    """Return the largest share of its iterations in which a rank did something else while its layers were to compute.

    None where no rank of the job told it.
    """
    import pyarrow.compute as pc

    told = table.filter(pc.and_(pc.equal(table["job"], part.job), pc.is_valid(table["absorbed_s"])))
    rank, iteration = _numbers(told, "rank", np.int64), _numbers(told, "iteration", np.int64)
    busy, seconds = _numbers(told, "absorbed_s", np.float64), _numbers(told, "seconds", np.float64)
    counted = np.isin(iteration, part.iteration)
    shares = [_share(busy[mine], seconds[mine]) for mine in (counted & (rank == one) for one in np.unique(rank))]
    return max((share for share in shares if not math.isnan(share)), default=None)


def spent(table: Any, job: str, span_ns: tuple[int, int]) -> dict[int, float]:
    """Return how many iterations each rank that logs carried out in a span.

    One over the span's end counts by its part in it.

    In step, all have carried out as many. Asynchronous workers go at their own pace.
    """
    import pyarrow.compute as pc

    rows = table.filter(pc.equal(table["job"], job))
    rank = _numbers(rows, "rank", np.int64)
    start, end = _numbers(rows, "start_ns", np.int64), _numbers(rows, "end_ns", np.int64)
    inside = np.minimum(end, span_ns[1]) - np.maximum(start, span_ns[0])
    share = np.clip(inside / np.maximum(end - start, 1), 0.0, 1.0)
    return {int(one): float(share[rank == one].sum()) for one in np.unique(rank)}


def _numbers(table: Any, column: str, kind: type[np.generic]) -> Any:
    values = table[column].to_numpy(zero_copy_only=False)
    if kind is np.float64:
        return values.astype(np.float64)
    return values.astype(kind) if len(values) else np.zeros(0, kind)


def _share(part: Floats, whole: Floats) -> float:
    total = float(np.sum(whole))
    return float(np.sum(part)) / total if total > 0 else math.nan
