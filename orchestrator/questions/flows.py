"""Flows of a training: how many, and how many carry its volume."""

from __future__ import annotations

from typing import Any

from orchestrator.questions.captured import summaries
from orchestrator.questions.iterations import chosen
from orchestrator.questions.registry import source
from orchestrator.questions.rows import Measured, Rows, by_run


@source
def flows(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return numbers of flows (5-tuples, one a direction) of the first training, by point and run.

    `flows` counts those with a packet in the whole run, without the rendezvous of ranks and what is no training;
    `big` the fewest that carry 99 % of the payload of a window together (mean over the run's windows). `columns`,
    `defaults` and `where` as of `volumes`.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        found = [
            (one.run, {"flows": float(one.flows), "big": float(len(one.volume.big))})
            for one in summaries(measured, point)
        ]
        rows += by_run(point, found, keys)
    return rows
