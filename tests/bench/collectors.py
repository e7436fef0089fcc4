"""Whether watching changes what is watched: iteration time with every collector against none."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator

from tests.bench.commands import only_job, orch_run, training
from tests.bench.figure import Figure, Settings, bootstrapped

GOAL = 1.02


def measure(settings: Settings) -> Iterator[Figure]:
    """Pairs of runs of four ranks without cross traffic; which of a pair comes first alternates."""
    iterations = settings.times(100, 30)
    taken: dict[str, list[dict[str, float]]] = {"all": [], "none": []}
    for pair in range(settings.times(6, 2)):
        for name in ("all", "none") if pair % 2 == 0 else ("none", "all"):
            changes: dict[str, object] = {} if name == "all" else {"collect": []}
            measured = {"warmup": 5, "iterations": iterations, "at_most": "120s"}
            run = orch_run(training(4, name=f"collectors-{name}", measure=measured, **changes), settings.scratch)
            job = only_job(run)
            taken[name].append({"mean": job["mean_s"], "median": job["p50_s"]})
            shutil.rmtree(run.path)
    for statistic in ("mean", "median"):
        on, off = ([run[statistic] * 1e3 for run in taken[name]] for name in ("all", "none"))
        ratios = tuple(with_all / without for with_all, without in zip(on, off, strict=True))
        yield Figure(
            what=f"{statistic} of {iterations} iterations, all collectors",
            unit="ms",
            values=tuple(on),
            against="no collector",
            reference=tuple(off),
        )
        yield Figure(
            what=f"ratio of the {statistic}s, pair by pair",
            unit="",
            values=ratios,
            against="goal",
            reference=(GOAL,),
            interval=bootstrapped(ratios),
            note=f"mean of the ratios {statistics.fmean(ratios):.4f}",
        )
