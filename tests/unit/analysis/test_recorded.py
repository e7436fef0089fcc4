"""A Timeline that rank 0 alone wrote, held against what every rank computed: small enough to work out by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest

from orchestrator.analysis.windows import variation
from tests.helpers.made_tables import table

SECOND = 1_000_000_000


def passes(rank: int, iteration: int, begin_s: float, compute_s: float) -> dict[str, object]:
    return {
        "rank": rank,
        "iteration": iteration,
        "start_ns": round(begin_s * SECOND),
        "forward_s": compute_s / 3,
        "backward_s": compute_s * 2 / 3,
    }


def moved(iteration: int, begin_s: float, end_s: float, *, peer: int = -1, rank: int = 0) -> dict[str, object]:
    return {
        "rank": rank,
        "iteration": iteration,
        "lane": "communication",
        "span": "all-reduce",
        "peer": peer,
        "start_ns": round(begin_s * SECOND),
        "end_ns": round(end_s * SECOND),
    }


def own(iteration: int) -> dict[str, object]:
    return {"rank": 0, "iteration": iteration, "compute_s": 1.0, "communication_s": 5.0, "overlap_s": 0.5}


def rows(found: pa.Table) -> dict[tuple[int, int], tuple[float, ...]]:
    return {
        (row["rank"], row["iteration"]): tuple(
            round(row[name], 6) for name in ("compute_s", "communication_s", "overlap_s")
        )
        for row in found.to_pylist()
    }


def test_every_rank_is_held_against_the_collectives_of_its_own_iteration() -> None:
    logs = [passes(0, 0, 0, 1), passes(1, 0, 0.5, 2), passes(2, 0, 0, 6), passes(1, 1, 10, 1), passes(2, 1, 10, 1)]
    spans = [moved(0, 1, 2), moved(0, 1.5, 2), moved(0, 3, 5), moved(1, 10.25, 10.75)]
    found = rows(
        variation.of_all_ranks(table("iterations", logs), table("overlaps", [own(0), own(1)]), table("spans", spans))
    )
    assert found == {
        (0, 0): (1, 5, 0.5),
        (0, 1): (1, 5, 0.5),  # what rank 0 recorded itself stays as it is
        (1, 0): (2, 3, 1),
        (2, 0): (6, 3, 3),
        (1, 1): (1, 0.5, 0.5),
        (2, 1): (1, 0.5, 0.5),
    }


def test_an_iteration_of_which_nothing_was_recorded_has_no_row() -> None:
    logs = [passes(rank, number, 10 * number, 1) for rank in range(2) for number in range(3)]
    found = rows(
        variation.of_all_ranks(
            table("iterations", logs), table("overlaps", [own(1)]), table("spans", [moved(1, 10, 11)])
        )
    )
    assert set(found) == {(0, 1), (1, 1)}


@pytest.mark.parametrize(
    "spans",
    [
        [moved(0, 0, 1, peer=1)],  # a send says nothing of ranks beside its two
        [moved(0, 0, 1), moved(0, 1, 2, peer=1)],
        [],
    ],
)
def test_what_is_no_collective_speaks_for_nobody_else(spans: list[dict[str, object]]) -> None:
    logs = [passes(0, 0, 0, 1), passes(1, 0, 0, 1)]
    found = variation.of_all_ranks(table("iterations", logs), table("overlaps", [own(0)]), table("spans", spans))
    assert set(rows(found)) == {(0, 0)}


def test_where_two_ranks_recorded_the_others_are_not_guessed() -> None:
    logs = [passes(rank, 0, 0, 1) for rank in range(3)]
    told = [own(0), {**own(0), "rank": 1}]
    spans = [moved(0, 0, 1), moved(0, 0, 1, rank=1)]
    found = variation.of_all_ranks(table("iterations", logs), table("overlaps", told), table("spans", spans))
    assert set(rows(found)) == {(0, 0), (1, 0)}


def test_a_job_keeps_its_own() -> None:
    logs = [passes(0, 0, 0, 1), passes(1, 0, 0, 1), {**passes(1, 0, 0, 1), "job": "b"}]
    found = variation.of_all_ranks(
        table("iterations", logs), table("overlaps", [own(0)]), table("spans", [moved(0, 0, 1)])
    )
    assert {(row["job"], row["rank"]) for row in found.to_pylist()} == {("a", 0), ("a", 1)}
