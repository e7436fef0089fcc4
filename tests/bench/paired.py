"""Iteration time one way against another, in pairs of runs one after the other, so that a slow machine slows both."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from tests.bench.commands import only_job, orch_run, training
from tests.bench.figure import Figure, Settings, bootstrapped


def compared(
    settings: Settings,
    *,
    name: str,
    one: tuple[str, Mapping[str, Any]],
    other: tuple[str, Mapping[str, Any]],
    goal: float,
    pairs: int = 6,
    phases: Mapping[str, float] | None = None,
) -> Iterator[Figure]:
    """Pairs of runs of four ranks without cross traffic: what either is called, and what differs; the first alternates.

    `goal` is the highest ratio of `one` to `other`, `phases` how many seconds longer some of a run's phases may be.
    """
    iterations = settings.times(100, 30)
    ways = {"one": one[1], "other": other[1]}
    taken: dict[str, list[dict[str, float]]] = {"one": [], "other": []}
    for pair in range(settings.times(pairs, 2)):
        for way in list(ways) if pair % 2 == 0 else reversed(ways):
            measured = {"warmup": 5, "iterations": iterations, "at_most": "120s"}
            run = orch_run(training(4, name=f"{name}-{way}", measure=measured, **ways[way]), settings.scratch)
            job = only_job(run)
            took = {phase: run.manifest["phases"].get(phase, 0.0) for phase in phases or ()}
            taken[way].append({"mean": job["mean_s"], "median": job["p50_s"], **took})
            shutil.rmtree(run.path)
    for statistic in ("mean", "median"):
        with_it, without = ([run[statistic] * 1e3 for run in taken[way]] for way in ways)
        ratios = tuple(above / below for above, below in zip(with_it, without, strict=True))
        yield Figure(
            what=f"{statistic} of {iterations} iterations, {one[0]}",
            unit="ms",
            values=tuple(with_it),
            against=other[0],
            reference=tuple(without),
        )
        yield Figure(
            what=f"ratio of the {statistic}s, pair by pair",
            unit="",
            values=ratios,
            against="goal",
            reference=(goal,),
            interval=bootstrapped(ratios),
            note=f"mean of the ratios {statistics.fmean(ratios):.4f}",
        )
    for phase, longer_s in (phases or {}).items():
        later = tuple(above[phase] - below[phase] for above, below in zip(taken["one"], taken["other"], strict=True))
        yield Figure(
            what=f"phase {phase!r}, {one[0]} more than {other[0]}",
            unit="s",
            values=later,
            against="goal",
            reference=(longer_s,),
        )
