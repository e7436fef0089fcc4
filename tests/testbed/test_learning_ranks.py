"""Ranks that really learn: all frameworks do so from the same batches, and what they are worth is logged each epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rank_processes import loopback, running

from workloads import ddp, p2p

pytestmark = [pytest.mark.testbed, pytest.mark.any_user, pytest.mark.variants]

EPOCHS, STEPS = 3, 20
LEARNING = {"model": "small_cnn", "compute": "real", "data": "gratings", "batch": 32, "samples": 2 * 32 * STEPS,
            "held_out": 501, "optimizer": "adam", "learning_rate": 0.003}  # fmt: skip


def learned(workload: Any, folder: Path, **options: object) -> list[dict[str, list[Any]]]:
    """The table `accuracy` of two ranks that have learned for EPOCHS epochs."""
    folder.mkdir()
    with running(loopback(workload, 2, scale=1, **LEARNING, **options), folder) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(EPOCHS * STEPS + 1)
        assert started.end() == [0, 0]
        return [started.read(workload, rank, "accuracy") for rank in range(2)]


def shares(tables: list[dict[str, list[Any]]]) -> list[float]:
    """The share of all held-out images that was right after each epoch."""
    assert [table["epoch"][:EPOCHS] for table in tables] == [[1, 2, 3]] * 2
    assert [table["iteration"][:EPOCHS] for table in tables] == [[19, 39, 59]] * 2
    assert [set(table["samples"]) for table in tables] == [{251}, {250}], "each image is one rank's"
    return [sum(table["correct"][epoch] for table in tables) / 501 for epoch in range(EPOCHS)]


def test_all_reduce_however_carried_learns_the_same(tmp_path: Path) -> None:
    by_ddp = learned(ddp, tmp_path / "ddp")
    assert shares(by_ddp)[-1] > 0.25, "ten classes: a tenth by chance"
    by_ring = learned(p2p, tmp_path / "ring", strategy="ring")
    assert shares(by_ring) == pytest.approx(shares(by_ddp), abs=0.03)


def test_pair_averaging_learns_too(tmp_path: Path) -> None:
    assert shares(learned(p2p, tmp_path / "pairs", strategy="pair-averaging"))[-1] > 0.2
