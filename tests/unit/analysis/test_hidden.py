"""Bytes that leave while a rank computes, in traffic whose hosts send in the last 40 of every 100 ms."""

from __future__ import annotations

import math

import pytest

from orchestrator.analysis.traffic.hidden import could_hide, hidden
from tests.helpers.made_tables import table
from tests.helpers.made_traffic import BEGAN_NS, BYTES_A_MS, ITERATION_MS, MS, made

HOSTS = {0: "h1", 1: "h2", 2: "h3", 3: "h4"}


def logs(computed_ms: dict[int, float], *, job: str = "train", iterations: int = 10):
    return table(
        "iterations",
        [
            {
                "job": job,
                "rank": rank,
                "iteration": number,
                "start_ns": BEGAN_NS + number * ITERATION_MS * MS,
                "forward_s": computed / 4 / 1000,
                "backward_s": computed * 3 / 4 / 1000,
            }
            for rank, computed in computed_ms.items()
            for number in range(iterations)
        ],
    )


def test_each_rank_is_held_against_its_own_passes():
    found = hidden(made(iterations=10), logs({0: 60, 1: 80, 2: 80.5, 3: 100}), job="train", hosts=HOSTS)
    assert [one.rank for one in found] == [0, 1, 2, 3]
    assert [one.share for one in found] == pytest.approx([0, 0.5, 20.5 / 40, 1])
    assert {one.sent for one in found} == {10 * 40 * BYTES_A_MS}, "neither acknowledgements nor cross traffic of h1"


def test_iterations_that_follow_one_another_without_a_gap_hide_all():
    found = hidden(made(iterations=10), logs(dict.fromkeys(HOSTS, 100.0)), job="train", hosts=HOSTS)
    assert [one.share for one in found] == pytest.approx([1] * 4)


def test_of_ranks_that_share_a_host_no_capture_says_who_sent():
    shared = {0: "h1", 1: "h1", 2: "h3", 3: "elsewhere"}
    assert [one.rank for one in hidden(made(iterations=10), logs({2: 80}), job="train", hosts=shared)] == [2]


def test_a_rank_that_logged_nothing_hid_nothing_and_another_job_sent_nothing():
    (one,) = hidden(made(iterations=10), logs({1: 80}), job="train", hosts={0: "h1"})
    assert (one.sent > 0, one.computing) == (True, 0)
    (one,) = hidden(made(iterations=10), logs({0: 80}, job="b"), job="b", hosts={0: "h1"})
    assert one.sent == 0
    assert math.isnan(one.share)


@pytest.mark.parametrize(
    ("layers", "sending_s", "share"),
    [
        ([(1.0, 1.0)], 0.5, 0.0),  # a single gradient is ready when there is nothing left to compute
        ([(1.0, 1.0), (1.0, 1.0)], 1.0, 0.5),  # the last layer's leaves beside the first one's backward pass
        ([(1.0, 1.0), (1.0, 1.0)], 4.0, 0.25),  # a link that is too slow for it
        ([(1.0, 1.0), (3.0, 1.0)], 1.0, 0.5),  # ready at 1.5 of 2 s, and sent by then
        ([(0.0, 1.0), (1.0, 1.0)], 1.0, 0.0),  # ready at the end
        ([], 1.0, math.nan),
        ([(1.0, 1.0)], 0.0, math.nan),
    ],
)
def test_a_gradient_could_leave_from_when_the_backward_pass_has_made_it(layers, sending_s, share):
    found = could_hide(layers, forward_s=1.0, backward_s=2.0, sending_s=sending_s)
    assert found == pytest.approx(share, nan_ok=True)
