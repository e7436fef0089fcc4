"""Closes the bins of directions in the order of their rows: part of the capture reader."""

# Compiled code takes no keyword-only arguments.

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import stage
from orchestrator.analysis.capture.stages.segments import BIN_PACKETS

Ints = npt.NDArray[np.int64]

# One closed bin of one direction, a column a word: its row, the bin's number, and what it holds: packets as captured,
# bytes of the frames that these are on the wire, payload bytes, repeated bytes, frames, bytes as captured.
BIN_FIGURES = 6
BIN_WORDS = 2 + BIN_FIGURES

# What goes on from piece to piece. ACTIVE: directions with an open bin, of which EMITTED are handed out already.
CONVERSATIONS, ACTIVE, EMITTED, BIN_BEGIN, BACK_BINS, HANDED_OUT = range(6)
STATE_WORDS = 6


@stage
def _sort(rows: Ints, count: int) -> None:
    """Sort the first numbers in place (Shell's method with gaps of 4^k + 3 * 2^(k-1) + 1, Sedgewick 1982)."""
    power = 0
    while (1 << 2 * power + 2) + 3 * (1 << power) + 1 < count:
        power += 1
    while power >= 0:
        gap = 1 if power == 0 else (1 << 2 * power) + 3 * (1 << power - 1) + 1
        for place in range(gap, count):
            row = rows[place]
            at = place
            while at >= gap and rows[at - gap] > row:
                rows[at] = rows[at - gap]
                at -= gap
            rows[at] = row
        power -= 1


@stage
def hand_out_bins(directions: Ints, active: Ints, state: Ints, number: int, out: Ints) -> None:
    """Close the open bins of the active directions, in the order of their rows, as far as `out` has room."""
    if state[EMITTED] == 0:
        _sort(active, state[ACTIVE])
    used = state[HANDED_OUT]
    while state[EMITTED] < state[ACTIVE] and used < out.shape[1]:
        row = active[state[EMITTED]]
        state[EMITTED] += 1
        out[0, used] = row
        out[1, used] = number
        for word in range(BIN_FIGURES):
            out[2 + word, used] = directions[row, BIN_PACKETS + word]
            directions[row, BIN_PACKETS + word] = 0
        used += 1
    state[HANDED_OUT] = used
    if state[EMITTED] == state[ACTIVE]:
        state[ACTIVE] = state[EMITTED] = 0
