"""CASSINI's compatibility: by definition, computed by hand, and from a counter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.traffic import compatibility

# Two jobs on a link of 40 Gbit/s. The first sends 30 Gbit/s in two of four steps, the second 20 in one of four.
FIRST = np.array([30.0, 30, 0, 0])
SECOND = np.array([20.0, 0, 0, 0])


@pytest.mark.parametrize(
    ("shift", "score"),
    [
        (0, 1 - 10 / 160),  # 50, 30, 0, 0: 10 beyond 40 in one of four steps
        (1, 1 - 10 / 160),  # 30, 50, 0, 0
        (2, 1.0),  # 30, 30, 20, 0
        (3, 1.0),
    ],
)
def test_the_score_is_what_demands_ask_beyond_the_capacity(shift, score):
    assert compatibility.score([FIRST, SECOND], [0, shift], 40) == pytest.approx(score)


def test_other_periods_meet_on_the_circle_of_their_least_common_multiple():
    short = np.array([40.0, 0])  # of 2 steps beside one of 3: 6 steps around
    long = np.array([40.0, 0, 0])
    # 40 0 40 0 40 0 and 40 0 0 40 0 0 together: 80 40 40 40 40 0, 40 beyond in one of six steps
    assert compatibility.score([short, long], [0, 0], 40) == pytest.approx(1 - 40 / (6 * 40))
    # turned by one step the long one is 0 40 0 0 40 0: 40 40 40 0 80 0
    assert compatibility.score([short, long], [0, 1], 40) == pytest.approx(1 - 40 / (6 * 40))


def test_the_score_is_below_0_where_three_jobs_always_send():
    assert compatibility.score([np.full(5, 40.0)] * 3, [0, 1, 2], 40) == pytest.approx(-1)


def test_no_demand_has_no_score():
    with pytest.raises(ValueError, match="no demand"):
        compatibility.score([FIRST, np.zeros(0)], [0, 0], 40)


def test_a_demand_is_the_growth_of_a_counter_in_each_part_of_an_iteration():
    times_ns = np.arange(0, 1001, 10) * 1_000_000
    sends = (times_ns[:-1] // 1_000_000) % 200 >= 100  # in the second half of each 200 ms
    sent = np.concatenate([[0], np.cumsum(np.where(sends, 1000.0, 0.0))])  # 1000 bytes in 10 ms: 800 kbit/s
    begins_ns = np.array([0, 200, 400, 600, 900]) * 1_000_000  # the last one is not sampled whole
    found = compatibility.demand(begins_ns, 0.2, times_ns, sent, steps=4)
    assert found == pytest.approx([0, 0, 800e3, 800e3])
    late = compatibility.demand(begins_ns[:4] + 100_000_000, 0.2, times_ns, sent, steps=4)
    assert late == pytest.approx([800e3, 800e3, 0, 0])


def test_a_demand_without_samples_is_not_known():
    nothing = compatibility.demand(np.array([0]), 0.2, np.zeros(0, np.int64), np.zeros(0), steps=4)
    before = compatibility.demand(np.array([0]), 0.2, np.array([10, 20]), np.array([1.0, 2.0]), steps=4)
    assert all(map(math.isnan, [*nothing, *before]))


@pytest.mark.parametrize(
    ("some", "others", "together"),
    [
        ([(0, 10)], [(5, 15)], 5),
        ([(0, 10), (2, 8)], [(5, 15), (6, 7)], 5),  # spans of one group that overlap count once
        ([(0, 4), (10, 14)], [(2, 12)], 4),
        ([(0, 30)], [(1, 2), (3, 5), (29, 40)], 4),
        ([(0, 1)], [(1, 2)], 0),
        ([], [(1, 2)], 0),
    ],
)
def test_how_long_spans_of_two_groups_are_under_way_at_once(some, others, together):
    assert compatibility.busy_together(some, others) == together
    assert compatibility.busy_together(others, some) == together
