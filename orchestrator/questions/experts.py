"""All-to-all traffic of a mixture of experts, pair by pair and iteration by iteration."""

from __future__ import annotations

from typing import Any

from orchestrator.questions.messages import runs_of
from orchestrator.questions.registry import source
from orchestrator.questions.rows import REPETITION, RUN, Measured, Rows, meets

MOE = "moe"


@source
def experts(measured: Measured, *, where: dict[str, Any] | None = None, iterations: int = 100) -> Rows:
    """Return what the gates of trainings of `moe` sent: a row a pair of different ranks, iteration and run.

    `bytes` is the all-to-all traffic from `from_rank` to `to_rank` at full size, `iteration` counts from 1 on, over the
    first so many. Li's nonuniform factor (section 3.2) is the largest less the least of an iteration.
    """
    rows: Rows = []
    for point in measured.points:
        keys = {"workload": point.job.workload, "model": point.job.model, "ranks": len(point.job.ranks)}
        if point.job.workload != MOE or not meets(keys, where or {}):
            continue
        for repetition, run in enumerate(runs_of(point), 1):
            routed = [row for row in run.rows("routing") if row["job"] == point.job.name and row["rank"] != row["peer"]]
            numbers = sorted({row["iteration"] for row in routed})[:iterations]
            place = {number: counted for counted, number in enumerate(numbers, 1)}
            rows += [
                {
                    **keys,
                    RUN: run.id,
                    REPETITION: repetition,
                    "iteration": place[row["iteration"]],
                    "from_rank": row["rank"],
                    "to_rank": row["peer"],
                    "bytes": float(row["bytes"] * run.scale),
                }
                for row in routed
                if row["iteration"] in place
            ]
    return rows
