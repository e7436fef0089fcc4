"""Merges rows of bins into columns in one linear pass: the compiled last stage of the capture reader."""

# Compiled code takes no keyword-only arguments, and for mypy its integers are NumPy's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.accounting import BIN_WORDS as _ROW_WORDS
from orchestrator.analysis.capture.stages.compiled import stage
from orchestrator.analysis.capture.stages.loads import table, words

Ints = npt.NDArray[np.int64]

# Columns that are laid out: the flow, where its bin begins (ns), and sums.
FLOW, START_NS, PACKETS, WIRE, PAYLOAD, REPEATED = range(6)
COLUMNS = 6

# One source of rows, each in the order of bins: a part of its rows as accounting has them, how many, which is next, and
# whether more follow. Of rows of the table that they are from: which flow each is, and whether it counts among the
# conversations that are not told apart, of which no repetitions are known.
ROWS, COUNT, NEXT, ENDED, FLOW_OF, FOLDED, TABLE_ROWS = range(7)
SOURCE_WORDS = 7

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
                here = table(source[ROWS], source[COUNT], _ROW_WORDS)[source[NEXT], 1]
                if best < 0 or here < first_bin:
                    best, first_bin = number, here
            elif source[ENDED] == 0:
                return number
        if best < 0:
            return -1
        _lay_bin(sources[best], first_bin, chosen, others, width_ns, out, state)


@stage
def _lay_bin(source: Ints, number: int, chosen: Ints, others: int, width_ns: int, out: Ints, state: Ints) -> None:
    """Lay out a source's rows of one bin."""
    used, slot, slot_bin = state[USED], state[SLOT], state[SLOT_BIN]
    rows = table(source[ROWS], source[COUNT], _ROW_WORDS)
    flow_of, folded = words(source[FLOW_OF], source[TABLE_ROWS]), words(source[FOLDED], source[TABLE_ROWS])
    at = source[NEXT]
    while at < source[COUNT] and rows[at, 1] == number:
        row = rows[at]
        at += 1
        flow = flow_of[row[0]]
        repeated = 0 if folded[row[0]] else row[5]
        if not chosen[flow]:
            if slot >= 0 and slot_bin == number:
                out[PACKETS, slot] += row[2]
                out[WIRE, slot] += row[3]
                out[PAYLOAD, slot] += row[4]
                out[REPEATED, slot] += repeated
                continue
            flow, slot, slot_bin = others, used, number
        out[FLOW, used] = flow
        out[START_NS, used] = number * width_ns
        out[PACKETS, used] = row[2]
        out[WIRE, used] = row[3]
        out[PAYLOAD, used] = row[4]
        out[REPEATED, used] = repeated
        used += 1
    source[NEXT] = at
    state[USED], state[SLOT], state[SLOT_BIN] = used, slot, slot_bin


@stage
def count(source: Ints, counts: Ints) -> None:
    """Count the rows of each flow in a part of a source."""
    rows, flow_of = table(source[ROWS], source[COUNT], _ROW_WORDS), words(source[FLOW_OF], source[TABLE_ROWS])
    for number in range(rows.shape[0]):
        counts[flow_of[rows[number, 0]]] += 1
