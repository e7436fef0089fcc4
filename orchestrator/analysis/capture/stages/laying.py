"""Merges rows of bins into columns in one linear pass: the compiled last stage of the capture reader."""

# Compiled code takes no keyword-only arguments, and for mypy its integers are NumPy's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.closing import BIN_WORDS as _BIN_WORDS
from orchestrator.analysis.capture.stages.compiled import inline, stage
from orchestrator.analysis.capture.stages.loads import table, words

Ints = npt.NDArray[np.int64]

# Columns that are laid out: the flow, where its bin begins (ns), and sums.
FLOW, START_NS, PACKETS, WIRE, PAYLOAD, REPEATED = range(6)
COLUMNS = 6

# One source of rows, each in the order of bins: a part of its rows as accounting has them, in columns of some length,
# how many, which is next, and whether more follow. Of rows of the table that they are from: which flow each is, and
# whether it counts among the conversations that are not told apart, of which no repetitions are known.
ROWS, LENGTH, COUNT, NEXT, ENDED, FLOW_OF, FOLDED, TABLE_ROWS = range(8)
SOURCE_WORDS = 8

COUNTED, LAID = 1, 6  # columns of rows that `count` and `lay` look at

# What goes on from call to call: rows that are laid out, the one with the sums of a bin's small flows (-1: none), and
# its bin.
USED, SLOT, SLOT_BIN = range(3)
STATE_WORDS = 3


@stage
def lay(sources: Ints, chosen: Ints, others: int, width_ns: int, out: Ints, state: Ints) -> int:
    """Merge the rows of sources bin by bin into columns: those of chosen flows each, a bin's others as of `others`.

    Gives the source that it needs more rows of, -1 when all are laid out.
    """
    while True:
        best, first_bin = -1, 0
        for number in range(sources.shape[0]):
            source = sources[number]
            if source[NEXT] < source[COUNT]:
                here = table(source[ROWS], _BIN_WORDS, source[LENGTH])[1, source[NEXT]]
                if best < 0 or here < first_bin:
                    best, first_bin = number, here
            elif source[ENDED] == 0:
                return number
        if best < 0:
            return -1
        _lay_bin(sources[best], first_bin, chosen, others, width_ns, out, state)


@inline
def _lay_bin(source: Ints, number: int, chosen: Ints, others: int, width_ns: int, out: Ints, state: Ints) -> None:
    """Lay out a source's rows of one bin."""
    used, slot, slot_bin = state[USED], state[SLOT], state[SLOT_BIN]
    rows = table(source[ROWS], _BIN_WORDS, source[LENGTH])
    flow_of, folded = words(source[FLOW_OF], source[TABLE_ROWS]), words(source[FOLDED], source[TABLE_ROWS])
    at, end = source[NEXT], source[COUNT]
    while at < end and rows[1, at] == number:
        row = rows[0, at]
        flow = flow_of[row]
        repeated = 0 if folded[row] else rows[5, at]
        if chosen[flow] == 0:
            if slot >= 0 and slot_bin == number:
                out[PACKETS, slot] += rows[2, at]
                out[WIRE, slot] += rows[3, at]
                out[PAYLOAD, slot] += rows[4, at]
                out[REPEATED, slot] += repeated
                at += 1
                continue
            flow, slot, slot_bin = others, used, number
        out[FLOW, used] = flow
        out[START_NS, used] = number * width_ns
        out[PACKETS, used] = rows[2, at]
        out[WIRE, used] = rows[3, at]
        out[PAYLOAD, used] = rows[4, at]
        out[REPEATED, used] = repeated
        used += 1
        at += 1
    source[NEXT] = at
    state[USED], state[SLOT], state[SLOT_BIN] = used, slot, slot_bin


@stage
def count(source: Ints, counts: Ints) -> None:
    """Count the rows of each flow in a part of a source."""
    rows = table(source[ROWS], _BIN_WORDS, source[LENGTH])
    flow_of = words(source[FLOW_OF], source[TABLE_ROWS])
    for number in range(source[COUNT]):
        counts[flow_of[rows[0, number]]] += 1
