"""Keeps what was never captured of a direction's sequence numbers: the holes below its highest one.

One hole is kept with the direction, which is all that most ever have: captures begin in the middle of connections, and
below their first segment everything is a hole. More are in a block of an arena, small, middle or large.
"""

# For mypy the integers of compiled code are NumPy's.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import inline, stage

Ints = npt.NDArray[np.int64]

# Words of a direction: how many holes, and where in the arena they are (0: the one that there may be is LOW to HIGH).
# FORGOTTEN: below it holes were dropped.
HOLES, BLOCK, FORGOTTEN, LOW, HIGH = 17, 18, 19, 30, 31

# Ranges of sequence numbers of a direction in order, each as its begin and its end.
MOST_HOLES = 256

# A block is a word with its kind, then holes; that of a free block is followed by the next free one. The arena begins
# with the first free block of each kind and where the part begins that was never used.
_SMALL, _MIDDLE, _LARGE = 4, 32, MOST_HOLES + 1
_KINDS, _UNUSED, _FIRST = 3, 3, 4
ROOM = 4 * (1 + 2 * _LARGE)  # words that have to be unused before a segment: it takes at most two blocks


def arena(words: int, before: Ints | None = None) -> Ints:
    """Room for holes, with those of a smaller arena."""
    made = np.zeros(words, np.int64)
    made[_UNUSED] = _FIRST
    if before is not None:
        made[: len(before)] = before
    return made


@inline
def is_full(holes: Ints) -> bool:
    """Whether the next segment may find no block."""
    return holes.shape[0] - holes[_UNUSED] < ROOM


@stage
def _capacity(kind: int) -> int:
    return _SMALL if kind == 0 else _MIDDLE if kind == 1 else _LARGE


@stage
def _taken(holes: Ints, kind: int) -> int:
    """A block, free or new."""
    at = holes[kind]
    if at > 0:
        holes[kind] = holes[at + 1]
    else:
        at = holes[_UNUSED]
        holes[_UNUSED] = at + 1 + 2 * _capacity(kind)
    holes[at] = kind
    return at


@stage
def _given(holes: Ints, at: int) -> None:
    kind = holes[at]
    holes[at + 1] = holes[kind]
    holes[kind] = at


@stage
def add(stat: Ints, holes: Ints, at: int, low: int, high: int) -> None:
    """Put low..high in as hole `at` of the direction; beyond MOST_HOLES the lowest, the oldest, is forgotten."""
    count = stat[HOLES]
    if count == 0:
        stat[HOLES], stat[LOW], stat[HIGH] = 1, low, high
        return
    if stat[BLOCK] == 0:
        block = _taken(holes, 0)
        holes[block + 1], holes[block + 2] = stat[LOW], stat[HIGH]
        stat[BLOCK] = block
    block = stat[BLOCK]
    kind = holes[block]
    if count == _capacity(kind):
        larger = _taken(holes, kind + 1)
        for word in range(1, 1 + 2 * count):
            holes[larger + word] = holes[block + word]
        _given(holes, block)
        stat[BLOCK] = block = larger
    for word in range(2 * count, 2 * at, -1):
        holes[block + word + 2] = holes[block + word]
    holes[block + 1 + 2 * at], holes[block + 2 + 2 * at] = low, high
    stat[HOLES] = count + 1
    if stat[HOLES] > MOST_HOLES:
        stat[FORGOTTEN] = holes[block + 2]
        _remove(stat, holes, 0)


@stage
def _remove(stat: Ints, holes: Ints, at: int) -> None:
    block = stat[BLOCK]
    stat[HOLES] -= 1
    if block == 0:
        return
    for word in range(1 + 2 * at, 1 + 2 * stat[HOLES]):
        holes[block + word] = holes[block + word + 2]
    if stat[HOLES] == 1:
        stat[LOW], stat[HIGH] = holes[block + 1], holes[block + 2]
        _given(holes, block)
        stat[BLOCK] = 0


@stage
def clear(stat: Ints, holes: Ints) -> None:
    """The direction has no hole any more."""
    if stat[BLOCK] > 0:
        _given(holes, stat[BLOCK])
    stat[BLOCK] = stat[HOLES] = 0


@stage
def _ends(stat: Ints, holes: Ints, at: int) -> tuple[int, int]:
    block = stat[BLOCK]
    if block == 0:
        return stat[LOW], stat[HIGH]
    return holes[block + 1 + 2 * at], holes[block + 2 + 2 * at]


@stage
def _set(stat: Ints, holes: Ints, at: int, low: int, high: int) -> None:
    block = stat[BLOCK]
    if block == 0:
        stat[LOW], stat[HIGH] = low, high
    else:
        holes[block + 1 + 2 * at], holes[block + 2 + 2 * at] = low, high


@stage
def fill(stat: Ints, holes: Ints, begin: int, end: int) -> int:
    """Close what begin..end covers of the direction's holes; returns how many bytes that was."""
    fresh, at = 0, 0
    while at < stat[HOLES]:
        low, high = _ends(stat, holes, at)
        from_, to = max(low, begin), min(high, end)
        if from_ >= to:
            at += 1
            continue
        fresh += to - from_
        if low < from_:
            _set(stat, holes, at, low, from_)
            at += 1
            if to < high:
                add(stat, holes, at, to, high)
                break
        elif to < high:
            _set(stat, holes, at, to, high)
            at += 1
        else:
            _remove(stat, holes, at)
    return fresh
