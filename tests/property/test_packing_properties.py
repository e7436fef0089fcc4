"""Rows of bins that wait in few bytes come back as they were, whatever numbers they hold, in memory or on disk."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.capture.flowtable import BinRows
from orchestrator.analysis.capture.stages import accounting, bin_rows

SMALLEST, LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@st.composite
def parts(draw):
    """Tables of columns, each of its own spread: constant, of one, two, four or eight bytes; some equal to another."""
    found = []
    for rows in draw(st.lists(st.integers(1, 2 * bin_rows.BLOCK_ROWS + 3), min_size=1, max_size=3)):
        random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
        columns = np.empty((accounting.BIN_WORDS, rows), np.int64)
        for number in range(accounting.BIN_WORDS):
            bits = draw(st.sampled_from([0, 1, 8, 9, 16, 17, 32, 33, 63]))
            least = draw(st.sampled_from([0, 1, -5, 1_700_000_000_000, -(1 << 62)]))
            columns[number] = least + random.integers(0, 1 << bits, rows)
        if draw(st.booleans()):
            columns[6:] = columns[2:4]
        found.append(columns)
    return found


@given(parts=parts(), held=st.sampled_from([0, 3000, 1 << 20]))
def test_rows_come_back(parts, held):
    bins = BinRows(held=held)
    for part in parts:
        bins.add(part, part.shape[1])
    assert bins.count == sum(part.shape[1] for part in parts)
    for wanted in (1, 6, accounting.BIN_WORDS):
        found = [part[:wanted].copy() for part in bins.parts(wanted=wanted)]
        assert len(found) == len(parts)
        for one, other in zip(found, parts, strict=True):
            np.testing.assert_array_equal(one, other[:wanted])


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_numbers_of_all_64_bits_come_back(held):
    part = np.full((accounting.BIN_WORDS, 3), 7, np.int64)
    part[2] = SMALLEST, LARGEST, 0
    part[3] = LARGEST, LARGEST - 1, LARGEST - 255
    bins = BinRows(held=held)
    bins.add(part, 3)
    (found,) = bins.parts()
    np.testing.assert_array_equal(found, part)


def test_rows_with_small_numbers_take_few_bytes():
    rows = 8 * bin_rows.BLOCK_ROWS
    part = np.zeros((accounting.BIN_WORDS, rows), np.int64)
    part[0], part[1] = np.arange(rows) % 100, 1_700_000_000_000 + np.arange(rows) // 50
    part[2], part[3], part[4] = 2, 3028, 2896
    part[6:] = part[2:4]
    bins = BinRows(held=4 * rows)
    bins.add(part, rows)
    assert bins._file is None
