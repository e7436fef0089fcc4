"""Real ranks of DeepSpeed on loopback: who ends with equal weights, what DeepSpeed logs, and how they end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from tests.helpers.rank_processes import Ranks, loopback, others_end_with_one_line, running
from workloads import deepspeed
from workloads.common import environments

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.frameworks,
    pytest.mark.skipif(not environments.is_built("torch"), reason="no DeepSpeed here: run `make frameworks`"),
]

ZERO = {"model": "resnet50", "compute_time": "20ms", "bucket": "20mb", "log": True}
PIPELINE = {"model": "resnet50", "compute_time": "20ms", "pipeline_stages": 2, "microbatches": 4, "activation": "1mb"}
COUNT = 3


def iterated(started: Ranks) -> list[list[dict[str, float]]]:
    started.wait_ready()
    started.go()
    started.wait_iterations(COUNT)
    assert started.end() == [0] * len(started.processes)
    return [[json.loads(line) for line in started.lines(rank)[:COUNT]] for rank in range(len(started.processes))]


@pytest.mark.variants
def test_shards_together_are_what_replicas_hold(tmp_path: Path) -> None:
    sums = {}
    for stage in (2, 3):
        folder = tmp_path / str(stage)
        folder.mkdir()
        with running(
            loopback(deepspeed, 3, scale=1000, zero_stage=stage, **ZERO), folder, extra=("--checksum",)
        ) as started:
            logged = iterated(started)
            sums[stage] = [[line["checksum"] for line in rank] for rank in logged]
            losses = [[line["loss"] for line in rank] for rank in logged]
            spans = started.read(deepspeed, 0, "spans")
            told = started.read(deepspeed, 0, "communication")
            assert {path.name for path in started.folders[0].iterdir()} <= {
                *started.launches[0].files,
                "stdout",
                "stderr",
                "iterations.jsonl",
                "trace.jsonl",
                "communication.jsonl",
                "cache",
            }
            assert started.stderr(0) == ""
        assert all(rank == losses[0] for rank in losses)
        assert len(set(losses[0])) == COUNT, "nothing was learned"
        moved = Counter()
        for name, size, iteration in zip(spans["span"], spans["bytes"], spans["iteration"], strict=True):
            if iteration == 1:
                moved[name] += size
        whole = 4 * 25_557
        gathered, reduced = (1, "all-reduce") if stage == 2 else (2, "reduce-scatter")
        assert moved["all-gather"] == pytest.approx(gathered * whole, rel=0.02)
        assert moved[reduced] == pytest.approx(whole, rel=0.02)
        # DeepSpeed's own log tells of the same operations, and of times that do not add up from one to the next.
        assert "all_gather_into_tensor" in told["operation"]
        assert sum(c for c, i in zip(told["count"], told["iteration"], strict=True) if i == 1) == sum(
            i == 1 and lane == "communication" for i, lane in zip(spans["iteration"], spans["lane"], strict=True)
        )
        assert median(told["seconds"]) < 1
    assert sums[2][0] == sums[2][1] == sums[2][2]
    # 25,557 weights near one, of which each is off by rounding in its last place
    assert [sum(parts) for parts in zip(*sums[3], strict=True)] == pytest.approx(sums[2][0], abs=0.01)


@pytest.mark.variants
def test_replicas_of_a_stage_agree(tmp_path: Path) -> None:
    with running(loopback(deepspeed, 4, scale=1000, **PIPELINE), tmp_path, extra=("--checksum",)) as started:
        first, again, last, last_again = ([line["checksum"] for line in rank] for rank in iterated(started))
        spans = started.read(deepspeed, 2, "spans")
    assert first == again
    assert last == last_again
    assert first != last
    assert len(set(first)) == len(set(last)) == COUNT
    seen = Counter(name for name, number in zip(spans["span"], spans["iteration"], strict=True) if number == 1)
    assert seen["forward"] == seen["backward"] == seen["receive"] == seen["send"] == 4
    assert set(spans["peer"]) == {-1, 0}


@pytest.mark.variants
def test_a_killed_rank_ends_the_others_with_one_line(tmp_path: Path) -> None:
    others_end_with_one_line(loopback(deepspeed, 3, zero_stage=3, **ZERO), tmp_path)
