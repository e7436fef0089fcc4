"""What was learned after each epoch, and what it took."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.analysis.windows import time_to_accuracy
from orchestrator.parts.rows import TABLES
from orchestrator.report.run import accuracy

BEGIN = 1_795_000_000_000_000_000
S = 1_000_000_000
KINDS = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}


def table(name: str, rows: list[dict[str, object]]) -> pa.Table:
    kinds = TABLES[name]
    return pa.table({column: pa.array([row.get(column) for row in rows], KINDS[kinds[column]]) for column in kinds})


def evaluated(epoch: int, rank: int, *, end_s: float, correct: int, samples: int = 100, job: str = "training"):
    return {
        "job": job,
        "rank": rank,
        "epoch": epoch,
        "iteration": 10 * epoch - 1,
        "end_ns": BEGIN + round(end_s * S),
        "evaluation_s": 2.0 + rank,
        "samples": samples,
        "correct": correct,
        "loss": 1.0 / epoch + rank,
    }


ITERATIONS = table(
    "iterations",
    [
        {"job": job, "rank": rank, "iteration": i, "start_ns": BEGIN + rank * S + i * S}
        for job in ("training", "other")
        for rank in (0, 1)
        for i in range(3)
    ],
)
ROWS = [
    evaluated(2, 0, end_s=22, correct=70),
    evaluated(2, 1, end_s=24, correct=90),
    evaluated(1, 0, end_s=10, correct=30),
    evaluated(1, 1, end_s=11, correct=10, samples=300),
    evaluated(3, 0, end_s=40, correct=95),
    evaluated(1, 0, end_s=5, correct=99, job="other"),
]


def sent(total_s: int = 60) -> Bins:
    """A thousand bytes a second."""
    return Bins(BEGIN + np.arange(total_s) * S, np.full(total_s, 1000.0), S)


def test_all_ranks_together_judge_each_held_out_image_once() -> None:
    found = time_to_accuracy.learning(table("accuracy", ROWS), ITERATIONS, "training", [sent(), sent()])
    assert found is not None
    assert found.epoch.tolist() == [1, 2], "a rank had not evaluated the third when the run ended"
    assert found.accuracy.tolist() == [40 / 400, 160 / 200]
    assert found.loss.tolist() == pytest.approx([(1.0 * 100 + 2.0 * 300) / 400, (0.5 + 1.5) / 2])


def test_time_is_without_evaluations_and_bytes_are_of_all_hosts() -> None:
    found = time_to_accuracy.learning(table("accuracy", ROWS), ITERATIONS, "training", [sent(), sent()])
    assert found is not None
    # Rank 0 began at 0 s and evaluated for 2 s, rank 1 at 1 s and for 3 s.
    assert found.seconds.tolist() == pytest.approx([(10 + 10) / 2, (22 - 2 + 24 - 1 - 3) / 2])
    assert found.sent_bytes.tolist() == pytest.approx([2 * 10_500, 2 * 23_000])


def test_a_level_is_reached_on_a_line_between_the_epochs_around_it() -> None:
    found = time_to_accuracy.learning(table("accuracy", ROWS), ITERATIONS, "training", [sent()])
    assert found is not None
    assert found.reached(0.05) == time_to_accuracy.Reached(1, 10.0, 10_500.0)
    assert found.reached(0.8) == time_to_accuracy.Reached(2, 20.0, 23_000.0)
    assert found.reached(0.45) == time_to_accuracy.Reached(1.5, 15.0, (10_500 + 23_000) / 2)
    assert found.reached(0.81) is None


def test_without_evaluations_nothing_was_learned_and_without_a_capture_bytes_are_not_known() -> None:
    assert time_to_accuracy.learning(table("accuracy", []), ITERATIONS, "training", [sent()]) is None
    assert time_to_accuracy.learning(table("accuracy", ROWS), ITERATIONS, "third", [sent()]) is None
    empty = Bins(np.array([], np.int64), np.array([]), S)
    found = time_to_accuracy.learning(table("accuracy", ROWS), ITERATIONS, "training", [empty])
    assert found is not None
    assert np.isnan(found.sent_bytes).all()
    reached = found.reached(0.8)
    assert reached is not None
    assert math.isnan(reached.sent_bytes)


def test_the_figures_tell_what_each_level_took() -> None:
    found = time_to_accuracy.learning(table("accuracy", ROWS), ITERATIONS, "training", [sent(), sent()])
    assert found is not None
    volume, time = accuracy.volume_lines([("adam", 10, found)]), accuracy.time_lines([("adam", 10, found)])
    assert volume is not None
    assert time is not None
    line, other = (drawn[0].axes[0].lines[0] for drawn in (volume, time))
    assert line.get_ydata().tolist() == other.get_ydata().tolist() == pytest.approx([10, 80])
    assert line.get_xdata().tolist() == pytest.approx([0.21, 0.46]), "in MB, multiplied back by the scale"
    assert other.get_xdata().tolist() == pytest.approx([10, 20])
    assert "adam reached 60% after 1.7 epochs and 0 MB; adam reached 80% after 2.0 epochs and 0 MB." in volume[1]
    assert "adam reached 60% after 17.1 s; adam reached 80% after 20.0 s." in time[1]


def test_nothing_is_drawn_of_nothing() -> None:
    assert accuracy.time_lines([]) is None
    found = time_to_accuracy.learning(table("accuracy", ROWS), ITERATIONS, "training", [])
    assert found is not None
    assert accuracy.volume_lines([("adam", 1, found)]) is None
    assert accuracy.time_lines([("adam", 1, found)]) is not None
