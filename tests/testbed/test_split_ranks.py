"""Real ranks of trainings that are split over ranks, on loopback: who ends with equal weights, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.rank_processes import Ranks, loopback, others_end_with_one_line, running
from tests.helpers.skipping import needs_torch
from workloads import ddp, fsdp, moe, ptd

pytestmark = [pytest.mark.testbed, needs_torch]

TINY = {"layers": 2, "hidden": 256, "sequence": 128, "vocabulary": 1000}
PTD = {"model": TINY, "pipeline": 2, "batch": 4, "microbatches": 3, "compute_time": "30ms"}

MOE = {"model": TINY, "experts": 6, "batch": 4, "compute_time": "30ms"}

FSDP = {"model": "resnet50", "compute_time": "10ms", "unit": "10mb"}


def logged(started: Ranks, count: int, name: str) -> list[list[float]]:
    """What each rank logged under this name in the first iterations."""
    return [[json.loads(line)[name] for line in started.lines(rank)[:count]] for rank in range(len(started.processes))]


def test_replicas_agree_and_the_table_is_the_same_at_both_ends(tmp_path: Path) -> None:
    with running(loopback(ptd, 4, scale=10, data=2, **PTD), tmp_path, extra=("--checksum",)) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(3)
        assert started.end() == [0] * 4
        first, again, last, last_again = logged(started, 3, "checksum")
        tables = logged(started, 3, "table")
        spans = started.read(ptd, 0, "spans")
    assert first == again, "replicas of the first stage"
    assert last == last_again, "replicas of the last stage"
    assert first != last
    assert len(set(first)) == 3, "nothing was learned"
    for table in tables[1:]:
        # The same sums of the same numbers, of which each end holds them among others of its own.
        assert table == pytest.approx(tables[0], rel=1e-6)
    for way in ("send", "receive"):  # activations go to the second stage, their gradients come back
        moved = [
            what
            for span, what, number in zip(spans["span"], spans["what"], spans["iteration"], strict=True)
            if span == way and number == 0
        ]
        assert moved == ["microbatch 0", "microbatch 1", "microbatch 2"]


def test_gates_agree_and_routes_are_the_same_seen_from_both_ends(tmp_path: Path) -> None:
    with running(loopback(moe, 3, scale=10, **MOE), tmp_path, extra=("--checksum",)) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(3)
        assert started.end() == [0] * 3
        first, *others = logged(started, 3, "checksum")
        routes = [started.read(moe, rank, "routing") for rank in range(3)]
    assert all(other == first for other in others)
    assert len(set(first)) == 3
    sent = [dict(zip(zip(r["iteration"], r["peer"], strict=True), r["bytes"], strict=True)) for r in routes]
    for iteration in range(3):
        apart = {(a, b): sent[a][iteration, b] for a in range(3) for b in range(3) if a != b}
        assert all(apart[a, b] == apart[b, a] for a, b in apart), "what goes there comes back"
        for table in routes:
            at = table["iteration"].index(iteration)
            assert table["highest_bytes"][at] == max(apart.values())
            assert table["lowest_bytes"][at] == min(apart.values())
        tokens = [sum(t for t, i in zip(r["tokens"], r["iteration"], strict=True) if i == iteration) for r in routes]
        # One sparse block of 4 x 128 tokens, each to one expert or to two.
        assert all(512 < count < 1024 for count in tokens)
    assert len({size for (_, _), size in sent[0].items()}) > 3, "it changes from iteration to iteration"


def test_shards_together_are_what_ddp_trains(tmp_path: Path) -> None:
    found = {}
    for workload, options in ((fsdp, FSDP), (ddp, {"model": "resnet50", "compute_time": "10ms"})):
        folder = tmp_path / workload.NAME
        folder.mkdir()
        with running(loopback(workload, 3, scale=1000, **options), folder, extra=("--checksum",)) as started:
            started.wait_ready()
            started.go()
            started.wait_iterations(3)
            assert started.end() == [0] * 3
            found[workload.NAME] = logged(started, 3, "checksum")
            if workload is fsdp:
                spans, overlaps = started.read(fsdp, 0, "spans"), started.read(fsdp, 0, "overlaps")
    together = [sum(shards) for shards in zip(*found["fsdp"], strict=True)]
    # 25,557 weights near one, of which each is off by rounding in its last place
    assert together == pytest.approx(found["ddp"][0], abs=0.01)
    assert len(set(together)) == 3
    moved = [
        (span, what, size)
        for lane, span, what, size, number in zip(
            *(spans[column] for column in ("lane", "span", "what", "bytes", "iteration")), strict=True
        )
        if lane == "communication" and number == 1
    ]
    count = len({what for _, what, _ in moved})
    assert count > 2
    order = [f"unit {number}" for number in range(count)]
    gathered = [what for span, what, _ in moved if span == "all-gather"]
    assert gathered[:count] == order
    assert sorted(gathered) == sorted(2 * order), "once for each pass"
    assert [what for span, what, _ in moved if span == "reduce-scatter"] == order[::-1]
    # Each parameter is divided among three ranks, padded.
    sizes = {span: sum(size for one, _, size in moved if one == span) for span, *_ in moved}
    assert sizes["all-gather"] == 2 * sizes["reduce-scatter"] >= 2 * 4 * 25_557
    assert all(value > 0 for value in overlaps["communication_s"])


@pytest.mark.parametrize(("workload", "options"), [(moe, MOE), (fsdp, FSDP)], ids=["moe", "fsdp"])
def test_a_killed_rank_ends_the_others_with_one_line(workload, options: dict[str, object], tmp_path: Path) -> None:
    others_end_with_one_line(loopback(workload, 3, **options), tmp_path)
