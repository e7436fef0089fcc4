"""Variation of steps from made-up logs whose figures can be worked out by hand."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from orchestrator.analysis.stats.iterations import series
from orchestrator.analysis.windows import variation
from tests.helpers.made_tables import table


def logged(*ranks: list[tuple[float, float]], idle: int | None = None) -> pa.Table:
    """Iterations of each rank as (seconds, seconds of compute)."""
    rows = [
        {
            "rank": rank,
            "iteration": number,
            "seconds": took,
            "forward_s": 0.0 if rank == idle else computed,
            "start_ns": number,
            "end_ns": number + 1,
        }
        for rank, iterations in enumerate(ranks)
        for number, (took, computed) in enumerate(iterations)
    ]
    return table("iterations", rows)


def figures(iterations: pa.Table, *, overlaps: pa.Table | None = None, spans: pa.Table | None = None):
    tables = {
        "iterations": iterations,
        "overlaps": table("overlaps", []) if overlaps is None else overlaps,
        "spans": table("spans", []) if spans is None else spans,
    }
    return {row.rank: row for row in variation.rows(series(iterations, "a"), tables)}


def test_spread_and_stragglers() -> None:
    found = figures(logged([(1.0, 0.5), (3.0, 0.5)], [(1.0, 0.6), (3.0, 0.1)]))
    job = found[variation.ALL_RANKS]
    assert (job.iterations, job.mean_s, job.p50_s, job.max_s) == (2, 2.0, 1.0, 3.0)
    assert job.cv == pytest.approx(math.sqrt(2) / 2)
    # Rank 0 waits 0.1 s in the first iteration, rank 1 0.4 s in the second one.
    assert job.straggler_share == pytest.approx(0.5 / 4)
    assert found[0].straggler_share == pytest.approx(0.1 / 4)
    assert found[1].straggler_share == pytest.approx(0.4 / 4)


def test_a_rank_that_computes_nothing_waits_for_nobody() -> None:
    both = [{"rank": rank, "compute_s": 0.1, "communication_s": 1.0, "overlap_s": 0.1} for rank in range(3)]
    found = figures(logged([(1.0, 0.0)], [(1.0, 0.5)], [(1.0, 0.3)], idle=0), overlaps=table("overlaps", both[:2]))
    assert math.isnan(found[0].overlapped)
    assert found[variation.ALL_RANKS].overlapped == pytest.approx(0.1)
    assert math.isnan(found[0].straggler_share)
    assert found[2].straggler_share == found[variation.ALL_RANKS].straggler_share == pytest.approx(0.2)


@pytest.mark.parametrize(("seconds", "efficiency"), [(4.0, 1.0), (7.0, 0.0), (5.5, 0.5), (8.5, -0.5)])
def test_efficiency_is_what_is_saved_of_what_could_be(seconds: float, efficiency: float) -> None:
    overlaps = table("overlaps", [{"compute_s": 4.0, "communication_s": 3.0, "overlap_s": 1.5}])
    found = figures(logged([(seconds, 4.0)]), overlaps=overlaps)
    for row in found.values():
        assert row.efficiency == pytest.approx(efficiency)
        assert row.overlapped == pytest.approx(0.5)


def test_orders_are_counted_over_iterations() -> None:
    order = [["a", "b"], ["b", "a"], ["a", "b"]]
    spans = [
        {"rank": 0, "iteration": number, "lane": lane, "span": span, "what": what, "sequence": place}
        for number, names in enumerate(order)
        for place, what in enumerate(names)
        for lane, span in (("communication", "receive"), ("communication", "send"), ("compute", f"forward {number}"))
    ]
    found = figures(logged([(1.0, 0.5)] * 3, [(1.0, 0.5)] * 3), spans=table("spans", spans))
    assert [found[rank].orders for rank in (variation.ALL_RANKS, 0, 1)] == [2, 2, 0]


def test_without_iterations_and_without_parts_there_is_nothing_to_tell() -> None:
    assert figures(logged())[variation.ALL_RANKS].iterations == 0
    unknown = logged([(1.0, math.nan)], [(1.0, math.nan)])
    row = figures(unknown)[variation.ALL_RANKS]
    assert all(math.isnan(getattr(row, name)) for name in ("straggler_share", "efficiency", "overlapped", "cv"))
