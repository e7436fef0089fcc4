"""The questions `spans` and `variation`, of runs whose spans and iterations are known."""

from __future__ import annotations

import json

import pytest

from orchestrator.questions.rows import Measured
from orchestrator.questions.spans import spans
from orchestrator.questions.variation import variation
from orchestrator.store import rundir
from orchestrator.store.tabular.tables import TableWriter
from tests.helpers.night_runs import write_run

ORDER = {"order": "workload.p2p.order"}
PULLS = {"tac": (2, 0, 1), None: (0, 1, 2)}


def run(results, order, repetition):
    """A run of two ranks at scale 100 that receive three buckets in each iteration, then send one."""
    workload = {"p2p": {"model": "resnet50", "strategy": "parameter-server", **({"order": order} if order else {})}}
    path = write_run(
        results,
        name=str(order),
        sweep=False,
        seed=repetition,
        repetition=repetition,
        seconds={"w1": 0.1},
        also={"workload": workload},
    )
    manifest = json.loads((path / "manifest.json").read_text())
    ranks = [{"rank": rank, "local_rank": 0, "node": "h1", "device": "cpu"} for rank in (0, 1)]
    job = {"name": "training", "workload": "p2p", "model": "resnet50", "compute": "emulated", "ranks": ranks}
    (path / "manifest.json").write_text(json.dumps({**manifest, "jobs": [job]}))
    parts = [("receive", bucket) for bucket in PULLS[order]] + [("send", 0)]
    moved = [(rank, k, n, *part) for rank in (0, 1) for k in range(3, 103) for n, part in enumerate(parts)]
    with TableWriter(path / "tables", run=path.name) as writer:
        writer.add(
            "spans",
            {
                "job": ["training"] * len(moved),
                "rank": [rank for rank, *_ in moved],
                "window_name": ["w1"] * len(moved),
                "iteration": [k for _, k, *_ in moved],
                "lane": ["communication"] * len(moved),
                "span": [span for *_, span, _ in moved],
                "what": [f"bucket {bucket}" for *_, bucket in moved],
                "peer": [0] * len(moved),
                "bytes": [10_000] * len(moved),
                "sequence": [n for _, _, n, *_ in moved],
                "start_ns": [10**9 * k + 10**6 * n for _, k, n, *_ in moved],
                "end_ns": [10**9 * k + 10**6 * (n + 1) for _, k, n, *_ in moved],
            },
        )
        of_ranks = {-1: 0.02, 0: 0.01, 1: 0.03}
        numbers = ("mean_s", "p50_s", "p95_s", "p99_s", "max_s", "straggler_share", "efficiency", "overlapped")
        writer.add(
            "variation",
            {
                "window_name": ["w1"] * 3,
                "job": ["training"] * 3,
                "rank": list(of_ranks),
                "iterations": [100] * 3,
                "cv": [cv * repetition for cv in of_ranks.values()],
                "orders": [1] * 3,
                **{name: [0.1] * 3 for name in numbers},
            },
        )
    return rundir.entry_at(path)


@pytest.fixture
def measured(tmp_path):
    return Measured(entries=tuple(run(tmp_path / "r", order, number) for order in PULLS for number in (1, 2)))


def test_spans_have_their_place_among_those_of_their_kind(measured) -> None:
    rows = spans(measured, columns=ORDER, defaults={"order": "none"})
    assert len(rows) == 2 * 2 * 2 * 2 * 4, "orders, runs, ranks, iterations, spans"
    one = [row for row in rows if (row["order"], row["repetition"], row["rank"]) == ("tac", 1, 1)]
    received = [row for row in one if row["span"] == "receive"]
    assert [row["what"] for row in received[:3]] == ["bucket 2", "bucket 0", "bucket 1"]
    assert [row["place"] for row in received] == [0, 1, 2, 0, 1, 2]
    assert {row["iteration"] for row in one} == {53, 54}, "in the middle of the window"
    assert received[0]["begin_ms"] == 0
    assert received[3]["begin_ms"] == pytest.approx(1000)
    assert received[0]["mb"] == pytest.approx(1.0), "at full size"


def test_spans_are_kept_by_the_values_of_their_columns(measured) -> None:
    rows = spans(measured, columns=ORDER, defaults={"order": "none"}, where={"order": ["none"]}, iterations=1)
    assert {row["order"] for row in rows} == {"none"}
    assert len(rows) == 2 * 2 * 4


def test_variation_is_of_the_training_as_a_whole_or_of_each_rank(measured) -> None:
    rows = variation(measured, columns=ORDER, defaults={"order": "none"}, where={"order": "tac"})
    assert [(row["repetition"], row["cv"], row["seconds"]) for row in rows] == [(1, 0.02, 0.1), (2, 0.04, 0.1)]
    of_ranks = variation(measured, columns=ORDER, where={"order": "tac"}, ranks=True)
    assert [(row["rank"], row["repetition"], row["cv"]) for row in of_ranks] == [
        (0, 1, 0.01),
        (0, 2, 0.02),
        (1, 1, 0.03),
        (1, 2, 0.06),
    ]
