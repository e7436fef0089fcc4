"""How jobs share a link of a fabric: what it carried, who got it, how long packets waited, and how many were marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrator.analysis.compare.points import PointWindow
from orchestrator.questions.iterations import chosen
from orchestrator.questions.registry import source
from orchestrator.questions.rows import Measured, Row, Rows, by_run
from orchestrator.store.tabular import tables


@source
def sharing(
    measured: Measured,
    *,
    link: str,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return how the jobs of a run share an uplink of a fabric, such as "leaf1-spine2": a row a point and repetition.

    Columns: `seconds` (mean iteration time, of all jobs together), `unused_pct` (share of the link's rate that was not
    sent, in the direction in which packets waited longer), `fairness` (Jain's index of the bytes that each job's hosts
    sent over the link: 1 where all sent as much, 1/n where one of n sent all; NaN without the collector `paths`),
    `waiting_ms` (mean backlog as time on the link), `drops`, and `marked_pct` (share of the run's ECN-capable packets
    that were marked at that port; NaN where the condition `ecn` has no threshold there). `columns`, `defaults` and
    `where` are as of `iterations`.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        found = ((one.entry.run, _shared(one, link)) for one in point.windows)
        rows += by_run(point, [(run, row) for run, row in found if row is not None], keys)
    return rows


def _shared(window: PointWindow, link: str) -> Row | None:
    """Return what a window's link carried; None where no counters of it are known."""
    sent = [
        row
        for row in _table(window, "fabric_links")
        if row["link"] == link and row["window_name"] == window.record.name
    ]
    if not sent:
        return None
    busiest = max(sent, key=lambda row: (-1.0 if math.isnan(row["waiting_s"]) else row["waiting_s"], row["used"]))
    seconds = [window.iterations(job.name).seconds for job in window.manifest.jobs]
    return {
        "seconds": float(np.mean(np.concatenate(seconds))),
        "unused_pct": 100 * (1 - busiest["used"]),
        "fairness": jain(_by_job(window, link)),
        "waiting_ms": 1e3 * busiest["waiting_s"],
        "drops": busiest["drops"],
        "marked_pct": _marked_pct(window, busiest["node"], busiest["port"]),
    }


def _by_job(window: PointWindow, link: str) -> list[float]:
    """Return the bytes that the hosts of each job sent over a link within the window; hosts are of one job each."""
    topology = window.manifest.topology
    begin_ns, end_ns = window.record.span_ns
    sent = {job.name: 0.0 for job in window.manifest.jobs}
    of = {topology.node(node).address: job.name for job in window.manifest.jobs for node in job.nodes}
    for row in _table(window, "paths"):
        crossed = f"{row['node']}-{row['spine']}" == link
        if crossed and begin_ns <= row["begin_ns"] and row["end_ns"] <= end_ns and row["src"] in of:
            sent[of[row["src"]]] += row["bytes"]
    return list(sent.values())


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of shares: the square of their sum, over their number and the sum of their squares.

    Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer
    Systems", DEC-TR-301, 1984. NaN where nothing was shared.
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else math.nan


def _marked_pct(window: PointWindow, node: str, port: str) -> float:
    of_port = [row for row in _table(window, "marks") if (row["node"], row["device"]) == (node, port)]
    capable = sum(row["capable"] for row in of_port)
    return 100 * sum(row["marked"] for row in of_port) / capable if capable else math.nan


def _table(window: PointWindow, name: str) -> list[Row]:
    found: list[Row] = tables.read(window.entry.path / "tables", name).to_pylist()
    return found
