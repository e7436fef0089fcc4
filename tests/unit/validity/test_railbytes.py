"""What each rail of a host carries, by captures and counters, against how a framework spreads its messages."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from orchestrator.analysis.windows import rails
from orchestrator.parts.theory import Theory
from orchestrator.store.manifests.summaries import Job, Rank
from orchestrator.validity.gates import rails as gate_module
from orchestrator.validity.window import RailBytes
from tests.helpers.gate_windows import judged
from tests.helpers.made_tables import table


def job(spread, *, pairs=(("h1", "h2", 100.0), ("h2", "h1", 100.0))):
    theory = Theory(bytes_per_iteration=100.0, parameters=25, source="s", pairs=pairs, spread=spread)
    return Job(name="a", workload="ddp", ranks=(Rank(rank=0, node="h1"), Rank(rank=1, node="h2")), theory=theory)


def spans(sizes, iterations=10):
    rows = [
        {
            "rank": rank,
            "window_name": "w",
            "lane": "communication",
            "bytes": size,
            "iteration": step,
            "start_ns": 1000 * step + place,
        }
        for step in range(iterations)
        for place, size in enumerate(sizes)
        for rank in (0, 1)
    ]
    rows.append({"rank": 0, "window_name": "w", "lane": "compute", "bytes": 10**9})
    rows.append({"rank": 0, "window_name": "", "lane": "communication", "bytes": 10**9})
    return table("spans", rows)


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        ((30, 10), 2, (75, 25)),  # an even number of buckets: each keeps its rail
        ((30, 10, 20), 2, (50, 50)),  # an odd one: they change rails from iteration to iteration
        ((10, 20, 30, 40), 4, (10, 20, 30, 40)),
        ((10, 10, 10), 1, (100,)),
    ],
)
def test_gloo_takes_rail_after_rail_by_the_turn_that_fits(sizes, count, expected):
    for shift in range(count):
        sent = np.roll(np.array([expected, expected], float), shift, axis=1)
        due = rails._due(job("turns"), spans(sizes), ["h1", "h2"], sent, window="w")
        assert due == pytest.approx(sent)


def test_others_share_equally_or_take_the_first_rail_and_some_have_no_theory():
    sent = np.zeros((2, 4))
    assert rails._due(job("even"), spans([]), ["h1", "h2"], sent, window="w") == pytest.approx(np.full((2, 4), 25.0))
    assert rails._due(job("first"), spans([]), ["h1", "h2"], sent, window="w")[1].tolist() == [100, 0, 0, 0]
    assert np.isnan(rails._due(job(""), spans([1]), ["h1", "h2"], sent, window="w")).all()
    assert np.isnan(rails._due(job("turns"), spans([]), ["h1", "h2"], sent, window="w")).all()
    uneven = job("even", pairs=(("h1", "h2", 300.0),))
    assert rails._due(uneven, spans([]), ["h1", "h2"], sent, window="w").sum(axis=1).tolist() == [300, 0]


def carried(rail=0, **more):
    usual = {
        "job": "a",
        "host": "h1",
        "rail": rail,
        "device": f"eth{rail}",
        "captured_bytes": 1e6,
        "counted_bytes": 1e6,
        "sent_bytes": 50.0,
        "rdma_bytes": float("nan"),
        "theory_bytes": 50.0,
    }
    return RailBytes(**{**usual, **more})


def test_a_rail_off_its_theory_is_remarked_upon():
    rows = [carried(), carried(1, sent_bytes=60.0)]
    good, bad = judged(gate_module, rails=rows)
    assert (good.passed, bad.passed, bad.required) == (True, False, False)
    assert "h1 rail 1 (eth1)" in bad.message
    assert "+20.0% of theory" in bad.message
    assert judged(gate_module, rails=rows[:1]) == []  # one rail: the gate `theory` says it


@pytest.mark.parametrize(
    ("rdma", "headers", "passed"), [(52.0, 2.0, True), (50.0, 0.0, True), (60.0, 2.0, False), (45.0, 0.0, False)]
)
def test_rdma_is_held_against_theory_where_captures_see_nothing(rdma, headers, passed):
    row = carried(sent_bytes=0.0, rdma_bytes=rdma, headers=headers)
    (told,) = judged(gate_module, rails=[row])
    assert (told.name, told.passed, told.required) == ("rdma", passed, False)
    assert judged(gate_module, rails=[dataclasses.replace(row, theory_bytes=float("nan"))]) == []
