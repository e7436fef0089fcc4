"""Bytes that a training had sent when it was so good."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.analysis.windows import time_to_accuracy

BEGIN = 1_795_000_000_000_000_000
STEP = 100_000_000  # nanoseconds an iteration
BIN = 10_000_000


def logged(accuracies, *, ranks=2, job="training", loss=True):
    """Each rank's accuracy lies 0.1 off the mean; the last rank ends each iteration a millisecond after the first."""
    rows = [
        {
            "job": job,
            "rank": rank,
            "iteration": i,
            "end_ns": BEGIN + (i + 1) * STEP - 10**6 * (ranks - 1 - rank),
            "accuracy": None if accuracy is None else accuracy + (0.1 if rank else -0.1),
            "loss": 1.0 / (i + 1) if loss else None,
        }
        for i, accuracy in enumerate(accuracies)
        for rank in range(ranks)
    ]
    kinds = {"job": pa.string(), "accuracy": pa.float64(), "loss": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in rows[0]])
    return pa.Table.from_pylist(rows[::-1], schema=schema)


def steady(iterations, a_bin):
    count = iterations * STEP // BIN
    return Bins(BEGIN + np.arange(count) * BIN, np.full(count, float(a_bin)), BIN)


def test_bytes_of_all_hosts_until_the_last_rank_has_ended():
    found = time_to_accuracy.cost(logged([0.5] * 30), "training", [steady(30, 100), steady(30, 50)])
    assert found.sent_bytes == pytest.approx((np.arange(30) + 1) * 1500)
    assert found.accuracy == pytest.approx(np.full(30, 0.5))
    assert found.loss[0] == 1
    assert found.loss[29] == pytest.approx(np.mean([1 / (i + 1) for i in range(10, 30)]))


def test_a_bin_counts_by_the_share_that_lies_before():
    wide = Bins(np.array([BEGIN]), np.array([3000.0]), 30 * STEP)
    found = time_to_accuracy.cost(logged([0.5] * 30), "training", [wide])
    assert found.sent_bytes == pytest.approx((np.arange(30) + 1) * 100)
    late = Bins(np.array([BEGIN + 20 * STEP]), np.array([5.0]), BIN)
    assert time_to_accuracy.cost(logged([0.5] * 30), "training", [late]).sent_bytes.tolist() == [0.0] * 20 + [5.0] * 10


def test_a_level_is_reached_when_so_many_iterations_reach_it_on_average():
    found = time_to_accuracy.cost(logged([0.2] * 30 + [0.9] * 30), "training", [steady(60, 100)])
    assert found.until(0.1) == pytest.approx(20 * 1000)
    assert found.until(0.55) == pytest.approx(40 * 1000)
    assert found.until(0.89) == pytest.approx(50 * 1000)
    assert found.until(0.95) is None


def test_without_accuracy_bytes_or_enough_iterations_there_is_no_cost():
    sent = [steady(30, 100)]
    assert time_to_accuracy.cost(logged([None] * 30), "training", sent) is None
    assert time_to_accuracy.cost(logged([0.5] * 19), "training", sent) is None
    assert time_to_accuracy.cost(logged([0.5] * 30), "other", sent) is None
    assert time_to_accuracy.cost(logged([0.5] * 30), "training", [Bins(np.array([], int), np.array([]), BIN)]) is None
    assert time_to_accuracy.cost(logged([0.5] * 30, loss=False), "training", sent).loss is None
