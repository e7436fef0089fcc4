from __future__ import annotations

import pytest

from orchestrator.core.intervals import common, length_s, merged, overlap_s


def test_a_union_is_disjoint_and_in_order():
    assert merged([(5, 7), (0, 2), (2, 3), (6, 9)]) == [(0, 3), (5, 9)]


def test_an_intersection_is_what_both_have():
    assert common([(0, 3), (5, 9)], [(2, 6), (8, 12)]) == [(2, 3), (5, 6), (8, 9)]
    assert common([], [(0, 1)]) == []


def test_overlap_counts_no_instant_twice():
    second = 1_000_000_000
    found = overlap_s([(0, 2 * second), (second, 3 * second)], [(second, 4 * second), (second, 2 * second)])
    assert found == {"compute_s": 3, "communication_s": 3, "overlap_s": 2}
    assert length_s([]) == pytest.approx(0)
