"""Pack rows of bins into few bytes, and lay them out in columns: the compiled last stage of the capture reader.

A capture has a row for each direction and bin, far more than are kept in the end, and most numbers in them are small or
close to each other. So they wait in blocks, of which each column is its least number and what is beyond it in as few
bytes as the largest needs. They are laid out in one linear pass.
"""

# Compiled code takes no keyword-only arguments, and for mypy its integers are NumPy's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import inline, stage
from orchestrator.analysis.capture.stages.loads import le16, le32, le64, store8, store16, store32, store64

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

BLOCK_ROWS = 256
_HEAD = 9  # of a column in a block: how wide its numbers are, and the least of them
_AS_BEFORE = 255  # in place of a width: the column is the same as the one four before (frames and captured bytes are)
_BACK = 4

# Columns that are laid out: the flow, where its bin begins (ns), and sums.
FLOW, START_NS, PACKETS, WIRE, PAYLOAD, REPEATED = range(6)
COLUMNS = 6

COUNTED, LAID = 1, 6  # columns of rows that `count` and `lay` look at

# What goes on from call to call: rows that are laid out, the one with the sums of a bin's small flows (-1: none), and
# its bin.
USED, SLOT, SLOT_BIN = range(3)
STATE_WORDS = 3


def packed_room(rows: int, columns: int) -> int:
    """Return the most bytes that so many packed rows may take."""
    return rows * columns * 8 + (rows // BLOCK_ROWS + 1) * columns * _HEAD


@inline
def _same(one: Ints, other: Ints, begin: int, end: int) -> bool:
    different = 0
    for row in range(begin, end):
        different |= one[row] ^ other[row]
    return different == 0


@inline
def _put(column: Ints, begin: int, end: int, out: Bytes, at: int) -> int:
    """Write a column of a block; return where it ends."""
    least = most = column[begin]
    for row in range(begin, end):
        least, most = min(least, column[row]), max(most, column[row])
    span = most - least
    # A difference that is too large for 64 bits looks negative.
    width = 8 if span < 0 or span >> 32 else 4 if span >> 16 else 2 if span >> 8 else 1 if span else 0
    store8(out, at, width)
    store64(out, at + 1, least)
    at += _HEAD
    count = end - begin
    if width == 1:
        for place in range(count):
            store8(out, at + place, column[begin + place] - least)
    elif width == 2:
        for place in range(count):
            store16(out, at + 2 * place, column[begin + place] - least)
    elif width == 4:
        for place in range(count):
            store32(out, at + 4 * place, column[begin + place] - least)
    elif width == 8:
        for place in range(count):
            store64(out, at + 8 * place, column[begin + place] - least)
    return at + width * count


@stage
def pack(columns: Ints, rows: int, out: Bytes) -> int:
    """Pack the first rows of a table of columns; return how many bytes that takes."""
    at = 0
    for begin in range(0, rows, BLOCK_ROWS):
        end = min(rows, begin + BLOCK_ROWS)
        for number in range(columns.shape[0]):
            if number >= _BACK + 2 and _same(columns[number], columns[number - _BACK], begin, end):
                store8(out, at, _AS_BEFORE)
                at += 1
            else:
                at = _put(columns[number], begin, end, out, at)
    return at


@inline
def _take(data: Bytes, at: int, column: Ints, begin: int, end: int) -> int:
    """Read a column of a block; return where it ends."""
    width, least = np.int64(data[at]), le64(data, at + 1)
    at += _HEAD
    count = end - begin
    if width == 0:
        for place in range(count):
            column[begin + place] = least
    elif width == 1:
        for place in range(count):
            column[begin + place] = least + np.int64(data[at + place])
    elif width == 2:
        for place in range(count):
            column[begin + place] = least + le16(data, at + 2 * place)
    elif width == 4:
        for place in range(count):
            column[begin + place] = least + le32(data, at + 4 * place)
    else:
        for place in range(count):
            column[begin + place] = least + le64(data, at + 8 * place)
    return at + width * count


@stage
def unpack(data: Bytes, columns: Ints, rows: int, wanted: int) -> int:
    """Fill the first rows of the first `wanted` of a table's columns; return how many packed bytes all columns took."""
    at = 0
    for begin in range(0, rows, BLOCK_ROWS):
        end = min(rows, begin + BLOCK_ROWS)
        for number in range(columns.shape[0]):
            if data[at] == _AS_BEFORE:
                at += 1
                if number < wanted:
                    for row in range(begin, end):
                        columns[number, row] = columns[number - _BACK, row]
            elif number < wanted:
                at = _take(data, at, columns[number], begin, end)
            else:
                at += _HEAD + np.int64(data[at]) * (end - begin)
    return at


@stage
def lay(
    rows: Ints, count: int, flow_of: Ints, chosen: Ints, others: int, width_ns: int, out: Ints, state: Ints
) -> None:
    """Lay out the next rows, bin by bin, in columns: chosen flows each, all others of a bin as `others`."""
    used, slot, slot_bin = state[USED], state[SLOT], state[SLOT_BIN]
    for at in range(count):
        flow, number = flow_of[rows[0, at]], rows[1, at]
        if chosen[flow] == 0:
            if slot >= 0 and slot_bin == number:
                out[PACKETS, slot] += rows[2, at]
                out[WIRE, slot] += rows[3, at]
                out[PAYLOAD, slot] += rows[4, at]
                out[REPEATED, slot] += rows[5, at]
                continue
            flow, slot, slot_bin = others, used, number
        out[FLOW, used] = flow
        out[START_NS, used] = number * width_ns
        out[PACKETS, used] = rows[2, at]
        out[WIRE, used] = rows[3, at]
        out[PAYLOAD, used] = rows[4, at]
        out[REPEATED, used] = rows[5, at]
        used += 1
    state[USED], state[SLOT], state[SLOT_BIN] = used, slot, slot_bin


@stage
def count_rows(rows: Ints, count: int, flow_of: Ints, counts: Ints) -> None:
    """Count the next rows of each flow."""
    for at in range(count):
        counts[flow_of[rows[0, at]]] += 1
