"""Figures of parts that have tables of their own: collective operations, and tokens of a mixture of experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.parts.rows import TABLES
from orchestrator.report.run import collectives, figures
from orchestrator.report.runs import Run
from orchestrator.report.style import look
from orchestrator.store.tabular import tables
from tests.helpers.sealed_run import loose, make_run

SKIPPED = ("iterations", "packets", "counters", "sockets")


def with_rows(folder: Path, name: str, rows: list[dict[str, Any]]) -> Run:
    path = make_run(folder, tolerances=loose(), iterations=30, skip=SKIPPED)
    columns = {column: [row[column] for row in rows] for column in TABLES[name]}
    tables.write(path / "tables", name, columns, run=path.name, node="h1", launch="l")
    return Run(path)


def test_routing_shows_what_was_sent_and_how_uneven_it_was(tmp_path: Path) -> None:
    rows = [
        {
            "job": "a",
            "rank": rank,
            "window_name": "",
            "iteration": iteration,
            "peer": peer,
            "bytes": 0,
            "tokens": (30, 10)[peer],
            "highest_bytes": 900 - iteration,
            "lowest_bytes": 400,
            "nonuniform_bytes": 500 - iteration,
        }
        for iteration in range(4)
        for rank in range(2)
        for peer in range(2)
        if (iteration, rank) != (3, 1)  # killed before it logged its last one
    ]
    run = with_rows(tmp_path, "routing", rows)
    with look():
        drawn = figures.routing(run)
    assert drawn is not None
    above, below = drawn[0].axes
    assert [line.get_ydata().tolist() for line in above.lines] == [[75.0] * 3, [25.0] * 3]
    (factor,) = below.lines
    assert factor.get_xdata().tolist() == [0, 1, 2]
    assert factor.get_ydata() == pytest.approx([(500 - k) * run.scale / 1e6 for k in range(3)])


def test_collectives_show_share_of_the_link_and_time(tmp_path: Path) -> None:
    rows = [
        {
            "job": "a",
            "rank": rank,
            "window_name": "w1",
            "iteration": 0,
            "operation": "all-reduce",
            "bytes": size,
            "repeats": 2,
            "seconds": seconds,
            "algorithm_bps": size * 8 / seconds,
            "bus_bps": size * 12 / seconds,
            "link_bps": 1e9,
        }
        for rank in range(2)
        for size, seconds in ((10_000, 1e-3), (1_000_000, 20e-3))
    ]
    run = with_rows(tmp_path, "collectives", rows)
    with look():
        drawn = collectives.utilization([run])
    assert drawn is not None
    above, below = drawn[0].axes
    assert above.lines[0].get_ydata() == pytest.approx([12.0, 60.0])
    assert below.lines[0].get_ydata() == pytest.approx([1.0, 20.0])
    assert above.lines[0].get_xdata() == pytest.approx([0.01 * run.scale, run.scale])
    assert drawn[1].startswith("Operation: all-reduce.")


def test_without_their_tables_there_is_no_figure(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path, tolerances=loose(), iterations=30, skip=SKIPPED))
    assert figures.routing(run) is None
    assert collectives.utilization([run]) is None
