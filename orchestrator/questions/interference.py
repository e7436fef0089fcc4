"""Interference of jobs that share links: slowdown of each beside another, by the shift in time between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare.points import PointWindow
from orchestrator.analysis.stats.iterations import JobSeries, series
from orchestrator.analysis.traffic import compatibility, throughput
from orchestrator.analysis.traffic.throughput import CachedTable
from orchestrator.questions.registry import source, step
from orchestrator.questions.rows import REPETITION, RUN, Measured, Row, Rows, grouped
from orchestrator.store.tabular import tables

Floats = npt.NDArray[np.float64]

STEP_S = 0.005  # of demands: less than two samples of a device's counters lie apart
MB = 1e6


@source
def interference(measured: Measured, *, shifts: int = 8) -> Rows:
    """Return how long iterations of two jobs take beside one another: a row a job, run and shift between both.

    Runs have one job, which is then alone, or two. `shift` is the part of its period, rounded to one of `shifts`, by
    which an iteration of the second job of a pair begins after one of the first: 0 where they begin together. Columns:
    `training` and `beside` (the names of both jobs), `pair` ("first + second"), `seconds` (mean iteration time at this
    shift), `iterations` (so many), `alone_s` (mean of the training alone, by the same repetition or else by all),
    `slowdown` (their ratio), `both_s` (time an iteration during which both were in collectives, on hosts that they
    share; NaN without spans), `shared_mb` (what the shared host's link that carried most did in the window, MB at full
    size; NaN without the collector `nic`), and `score`: CASSINI's compatibility (analysis/traffic/compatibility.py) at
    this shift, of the demands that both trainings had alone there, NaN where these are not known.
    """
    windows = [
        Window(one=one, repetition=number)
        for point in measured.points
        for number, one in enumerate(point.windows, start=1)
    ]
    alone: dict[str, list[Window]] = {}
    for window in windows:
        if len(window.names) == 1:
            alone.setdefault(window.names[0], []).append(window)
    rows: Rows = []
    for window in windows:
        if len(window.names) == 2:
            rows += _rows(window, alone, shifts)
    return rows


@dataclass(frozen=True, kw_only=True)
class Window:
    """A valid window of a run of one job or two."""

    one: PointWindow
    repetition: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(job.name for job in self.one.manifest.jobs)

    @cached_property
    def iterations(self) -> Mapping[str, JobSeries]:
        """All iterations of each job."""
        table = tables.read(self.one.entry.path / "tables", "iterations")
        return {name: series(table, name) for name in self.names}

    @cached_property
    def counters(self) -> CachedTable:
        import pyarrow.compute as pc

        sent = pc.field("counter") == "tx_bytes"
        return CachedTable(tables.read(self.one.entry.path / "tables", "counters", where=sent))

    def counted(self, job: str) -> JobSeries:
        """Return the iterations of a job that count."""
        span = self.one.record.iterations[job]
        return self.iterations[job].within(span.first, span.last)

    def period_s(self, job: str) -> float:
        """Return what a job was asked to keep, or else the mean time from begin to begin."""
        pace = self.one.manifest.job(job).pace
        if pace is not None and pace.every_s is not None:
            return pace.every_s
        starts = self.counted(job).start_ns
        return float(np.diff(starts).mean()) * 1e-9 if len(starts) > 1 else math.nan

    def sent_bps(self, job: str, host: str, period_s: float) -> Floats:
        """Return the demand of a job at the link of a host, bit/s, in steps (STEP_S) of a period."""
        device = self.one.manifest.topology.node(host).first.device
        times_ns, sent_bytes = throughput.samples(self.counters, node=host, port=device, counter="tx_bytes")
        begins_ns = self.counted(job).start_ns[:-1]  # a period after the last one may not have been measured
        steps = max(1, round(period_s / STEP_S))
        return compatibility.demand(begins_ns, period_s, times_ns, sent_bytes, steps=steps)

    def shared(self) -> tuple[str, float]:
        """Return the host of both jobs whose link carried most in the window, and its bytes; "" and NaN for none."""
        jobs, topology = self.one.manifest.jobs, self.one.manifest.topology
        found = []
        for host in dict.fromkeys(node for node in jobs[0].nodes if node in jobs[1].nodes):
            device = topology.node(host).first.device
            grown = throughput.counter_growth(
                self.counters, node=host, port=device, counter="tx_bytes", span_ns=self.one.record.span_ns
            )
            found.append((host, grown))
        return max(found, key=lambda pair: -1.0 if math.isnan(pair[1]) else pair[1], default=("", math.nan))

    def both_s(self, shares: int) -> dict[str, dict[int, list[float]]]:
        """Return for each job, shift and iteration the time during which both jobs were in collectives on a host."""
        import pyarrow.compute as pc

        spans = tables.read(
            self.one.entry.path / "tables", "spans", where=pc.field("lane") == "communication"
        ).to_pylist()
        ranks = {(job.name, rank.rank): rank.node for job in self.one.manifest.jobs for rank in job.ranks}
        host, _ = self.shared()
        of: dict[str, list[tuple[int, int]]] = {name: [] for name in self.names}
        by_iteration: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for row in spans:
            if ranks.get((row["job"], row["rank"])) == host:
                of[row["job"]].append((row["start_ns"], row["end_ns"]))
                by_iteration.setdefault((row["job"], row["iteration"]), []).append((row["start_ns"], row["end_ns"]))
        found: dict[str, dict[int, list[float]]] = {name: {} for name in self.names}
        for name, other in (self.names, self.names[::-1]):
            for iteration, shift in zip(self.counted(name).iteration, self.shifts(name, shares), strict=True):
                mine = by_iteration.get((name, int(iteration)), [])
                if mine and of[other]:
                    near = [one for one in of[other] if one[1] > min(mine)[0] and one[0] < max(end for _, end in mine)]
                    together = compatibility.busy_together(mine, near) * 1e-9
                    found[name].setdefault(int(shift), []).append(together)
        return found

    def shifts(self, job: str, count: int) -> npt.NDArray[np.int64]:
        """Return at which shift of the second job, one of `count`, each counted iteration of a job began."""
        first, second = self.names
        other = second if job == first else first
        begins = self.iterations[other].start_ns
        starts = self.counted(job).start_ns
        place = np.searchsorted(begins, starts, side="right") - 1
        after_s = (starts - begins[np.maximum(place, 0)]) * 1e-9
        parts = after_s / self.period_s(other)
        turned = parts if job == second else -parts
        return np.asarray(np.round(turned * count), np.int64) % count


def _rows(window: Window, alone: Mapping[str, list[Window]], shifts: int) -> Iterator[Row]:
    first, second = window.names
    host, carried = window.shared()
    both_s = window.both_s(shifts)
    scores = _scores(window, alone, host, shifts)
    scale, dilation = window.one.manifest.scale, window.one.manifest.dilation
    for name, other in ((first, second), (second, first)):
        part, at = window.counted(name), window.shifts(name, shifts)
        before = [one for one in alone.get(name, ()) if one.repetition == window.repetition] or alone.get(name, [])
        alone_s = float(np.mean([one.counted(name).seconds.mean() for one in before])) if before else math.nan
        for shift in range(shifts):
            here = part.seconds[at == shift]
            if not len(here):
                continue
            seconds = float(here.mean())
            together = both_s[name].get(shift, [])
            yield {
                "training": name,
                "beside": other,
                "pair": f"{first} + {second}",
                "shift": shift / shifts,
                "seconds": seconds,
                "iterations": len(here),
                "alone_s": alone_s,
                "slowdown": seconds / alone_s,
                "both_s": float(np.mean(together)) if together else math.nan,
                "shared_mb": carried * scale / MB,
                "score": scores[shift],
                "scale": scale,
                "dilation": dilation,
                RUN: window.one.entry.run,
                REPETITION: window.repetition,
            }


def _scores(window: Window, alone: Mapping[str, list[Window]], host: str, shifts: int) -> list[float]:
    """Return the compatibility of a pair at each shift; NaN where a demand is not known."""
    demands = []
    for name in window.names:
        there = [one for one in alone.get(name, ()) if host in one.one.manifest.job(name).nodes]
        period_s = float(np.mean([one.period_s(name) for one in there])) if there else math.nan
        found = [] if math.isnan(period_s) else [one.sent_bps(name, host, period_s) for one in there]
        if not found or np.isnan(found).any():
            return [math.nan] * shifts
        demands.append(np.mean(found, axis=0))
    link = window.one.manifest.topology.link(host)
    capacity_bps = link.rate / window.one.manifest.scale  # times in tables are divided by a dilation already
    turns = [round(shift / shifts * len(demands[0])) for shift in range(shifts)]
    return [compatibility.score(demands, [0, turn], capacity_bps) for turn in turns]


@step
def best_shifts(rows: Rows) -> Rows:
    """Return the shifts that hurt a pair least and most, of rows of `interference`: a row a pair and repetition.

    By the mean slowdown of both jobs. `best` and `worst` are chosen by all other repetitions, so that chance in this
    one, whose slowdowns there are `at_best` and `at_worst`, does not choose: noise alone gives a mean `gain` (of
    `at_worst` less `at_best`) of 0. `by_score` is the same difference at the shifts that the score says are worst and
    best, and `agrees` the rank correlation (Spearman) of score and slowdown over shifts. NaN of a single repetition.
    """
    found: Rows = []
    for (pair,), mine in grouped(rows, ["pair"]).items():
        numbers = sorted({row[REPETITION] for row in mine})
        for number in numbers:
            others = _means([row for row in mine if row[REPETITION] != number], "slowdown")
            here = _means([row for row in mine if row[REPETITION] == number], "slowdown")
            scores = _means([row for row in mine if row[REPETITION] == number], "score")
            common = [shift for shift in others if shift in here]
            best = min(common, key=others.__getitem__, default=math.nan)
            worst = max(common, key=others.__getitem__, default=math.nan)
            known = [shift for shift in here if not math.isnan(scores[shift])]
            fit, unfit = (pick(known, key=scores.__getitem__, default=math.nan) for pick in (max, min))
            found.append(
                {
                    "pair": pair,
                    REPETITION: number,
                    "best": best,
                    "worst": worst,
                    "at_best": here.get(best, math.nan),
                    "at_worst": here.get(worst, math.nan),
                    "gain": here.get(worst, math.nan) - here.get(best, math.nan),
                    "best_score": fit,
                    "by_score": here.get(unfit, math.nan) - here.get(fit, math.nan),
                    "agrees": _ranked([here[shift] for shift in known], [-scores[shift] for shift in known]),
                }
            )
    return found


def _means(rows: Rows, column: str) -> dict[float, float]:
    """Return the mean of a column at each shift, of both jobs of a pair alike."""
    return {shift: float(np.mean([row[column] for row in of])) for (shift,), of in grouped(rows, ["shift"]).items()}


def _ranked(some: list[float], others: list[float]) -> float:
    """Return Spearman's rank correlation; NaN of fewer than three, or where one side is all alike."""
    if len(some) < 3 or len(set(some)) == 1 or len(set(others)) == 1:
        return math.nan
    from scipy import stats

    return float(stats.spearmanr(some, others).statistic)
