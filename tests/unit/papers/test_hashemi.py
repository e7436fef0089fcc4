"""Hashemi's document: where servers and all-reduce cross, and orders that differ, of rows whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.papers import answering, drawing, reading, verdicts
from orchestrator.papers.verdicts import HELD, MISSED
from orchestrator.questions.rows import Measured
from tests.helpers.answered import hashemi as made

PATH = Path(__file__).parents[3] / "playbooks/papers/hashemi/paper.yaml"


@pytest.fixture(scope="module")
def paper():
    return reading.paper(PATH)


def figure(paper, title):
    return next(one for one in paper.file.figures if one.title.endswith(title))


def answer(paper, title, rows):
    return answering.changed(paper, rows, figure(paper, title).ask[1:])


def judged(paper, title, rows):
    of = figure(paper, title)
    return [
        line
        for check in of.holds
        for line in verdicts.held(paper, of, check, rows, answering.changed(paper, rows, of.ask[1:]))
    ]


def steps(servers, ring):
    rows = made.steps(np.random.default_rng(1))
    seconds = {"parameter-server": servers, "ring": ring}
    return [
        {
            **row,
            "seconds": seconds[row["strategy"]][row["ranks"] - (4 if row["strategy"] != "ring" else 0)],
            "servers": 4,
        }
        for row in rows
    ]


def test_curves_cross_on_the_line_between_two_numbers_of_workers(paper) -> None:
    rows = steps({4: 0.1, 10: 0.3}, {4: 0.15, 10: 0.2})
    found = answer(paper, "cross", rows)
    assert [row["crossing"] for row in found] == [pytest.approx(6.0)] * 3
    assert {row["crossed"] for row in found} == {1}
    assert found[0]["by_bytes"] == pytest.approx(4 + 8**0.5)


@pytest.mark.parametrize(("servers", "missed"), [({4: 0.2, 10: 0.3}, "4 workers"), ({4: 0.1, 10: 0.12}, "10 workers")])
def test_curves_that_do_not_cross_miss_one_of_the_claims(paper, servers, missed) -> None:
    rows = steps(servers, {4: 0.15, 10: 0.2})
    found = answer(paper, "cross", rows)
    assert {(row["crossing"], row["crossed"]) for row in found} == {(None, 0)}
    lines = judged(paper, "over workers", rows)
    assert [line.verdict == MISSED for line in lines] == [missed in line.what for line in lines]


def test_servers_of_other_settings_are_not_set_beside_a_ring(paper) -> None:
    rows = made.steps(np.random.default_rng(1))
    for row in rows:
        row["link"] = 10e9 if row["strategy"] == "ring" else 25e9
    assert answer(paper, "over workers", rows) == []


def test_an_order_that_is_a_tenth_slower_is_not_near_the_best(paper) -> None:
    rows = made.orders(np.random.default_rng(1))
    slower = [{**row, "seconds": row["seconds"] * (1.1 if row["order"] == "tac" else 1)} for row in rows]
    near = {line.what: line.verdict for line in judged(paper, "order of transfers", slower) if "chosen" in line.what}
    assert [verdict for what, verdict in near.items() if "tac" in what] == [MISSED]
    assert [verdict for what, verdict in near.items() if "tic" in what] == [HELD]


def test_orders_are_told_apart_by_pairs_that_come_the_other_way_round(paper) -> None:
    found = answer(paper, "branches", made.pulls(None))
    apart = {row["order"]: (row["from_layers"], row["from_tic"]) for row in found}
    assert apart["layer"] == (0, pytest.approx(1 / 15))
    assert apart["tic"] == (pytest.approx(1 / 15), 0)
    assert apart["tac"] == (pytest.approx(2 / 15), pytest.approx(1 / 15))
    assert {row["first"] for row in found if row["order"] == "tac"} == {"5 3 4 1 2 0"}


def test_a_trace_has_a_row_for_each_rank_and_lane(paper, tmp_path) -> None:
    of = figure(paper, "trace")
    rows = answering.changed(paper, made.traced(None), of.ask[1:])
    (picture,) = drawing.pictures(paper, of, rows, tmp_path / "figure-1")
    assert "rank 1 communicates" in picture.svg
    assert answering.answer(paper, of, Measured(entries=())) == []
