from __future__ import annotations

import numpy as np
import pytest

from orchestrator.analysis.traffic.pattern import infer, infer_groups, order_among

B = 1e8  # bytes of a strong edge


def edges(count, *pairs, both=False):
    matrix = np.zeros((count, count))
    for src, dst in pairs:
        matrix[src, dst] = B
        if both:
            matrix[dst, src] = B
    return matrix


def test_a_ring_has_an_order_and_a_direction():
    found = infer(edges(4, (0, 3), (3, 2), (2, 1), (1, 0)))
    assert (found.shape, found.hosts) == ("ring", (0, 3, 2, 1))
    assert found.score == pytest.approx(1.0)
    assert order_among(found, [0, 1, 2, 3]) == "against launch order: each rank sends to the one before it"
    assert order_among(found, [0, 3, 2, 1]) == "in launch order: each rank sends to the next one"
    assert order_among(found, [0, 2, 1, 3]) == "not in launch order"
    assert order_among(found, [0, 1, 2]) == ""


@pytest.mark.parametrize(
    ("matrix", "shape", "heads"),
    [
        (edges(2, (0, 1), both=True), "pair", ()),
        (edges(6, (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), both=True), "ring both ways", ()),
        (edges(5, (2, 0), (2, 1), (2, 3), (2, 4), both=True), "star", (2,)),
        (edges(5, (3, 1), (1, 0), (0, 4), (4, 2), both=True), "chain", ()),
        (edges(7, (0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6), both=True), "tree", (0,)),
        (edges(6, *((s, w) for s in (1, 4) for w in (0, 2, 3, 5)), both=True), "parameter servers", (1, 4)),
        (edges(5, *((a, b) for a in range(5) for b in range(5) if a != b)), "full mesh", ()),
    ],
)
def test_shapes(matrix, shape, heads):
    found = infer(matrix)
    assert found.shape == shape
    assert found.hosts[: found.heads] == heads
    assert found.score == pytest.approx(1.0)
    assert found.share == pytest.approx(1.0)


def test_a_chain_is_told_from_end_to_end():
    assert infer(edges(4, (2, 0), (0, 3), (3, 1), both=True)).hosts == (1, 3, 0, 2)


def test_what_bytes_cannot_tell_apart_is_said():
    assert "parameter servers" in infer(edges(4, (0, 1), (1, 2), (2, 3), (3, 0), both=True)).same_as
    assert "all-to-all" in infer(edges(5, *((a, b) for a in range(5) for b in range(5) if a != b))).same_as
    assert "one parameter server" in infer(edges(5, (2, 0), (2, 1), (2, 3), (2, 4), both=True)).same_as


def test_nothing_that_fits_is_unknown_and_says_what_was_nearest():
    # A ring of which one host also talks to two others as much, and back.
    found = infer(
        edges(6, (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 2), (0, 3), (2, 0), (3, 0), (1, 4), (4, 1))
    )
    assert found.shape == "unknown"
    assert found.same_as
    assert found.runner_up
    assert found.edges == ()


def test_random_bytes_are_no_ring():
    random = np.random.default_rng(1)
    shapes = {infer(random.exponential(B, (6, 6))).shape for _ in range(50)}
    assert shapes <= {"unknown", "full mesh"}


def test_a_receiver_of_cross_traffic_takes_no_part():
    matrix = edges(5, (0, 1), (1, 2), (2, 3), (3, 0))
    matrix[0, 4] = 5 * B
    found = infer(matrix)
    assert (found.shape, found.hosts) == ("ring", (0, 1, 2, 3))
    assert found.share == pytest.approx(4 / 9)


def test_two_trainings_side_by_side_are_two_patterns():
    matrix = edges(7, (0, 1), (1, 2), (2, 0)) + 3 * edges(7, (3, 4), (4, 5), (5, 6), (6, 3))
    assert [found.hosts for found in infer_groups(matrix)] == [(3, 4, 5, 6), (0, 1, 2)]


def test_no_bytes_no_pattern():
    assert infer(np.zeros((4, 4))).shape == "none"
    assert infer(np.zeros((0, 0))).shape == "none"
    assert infer_groups(np.zeros((4, 4))) == []
