"""Follow TCP connections segment by segment: retransmitted payload, handshakes, receive windows (compiled).

What was never captured of a direction's sequence numbers are holes below its highest one. One hole is kept with the
direction, which is all that most ever have: captures begin in the middle of connections, and below their first segment
everything is a hole. More are in a block of an arena, small, middle or large.
"""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import inline, stage
from orchestrator.analysis.capture.stages.decoding import ACKNOWLEDGED, FLAGS, PAYLOAD, SCALE, SEQUENCE, WINDOW

Ints = npt.NDArray[np.int64]

# What both directions of a conversation share. HANDSHAKE: nanoseconds, -1 where it is not known. OUTER: the scope of
# the outermost addresses of its first packet where that came in a tunnel, then these (see decoding), two words each,
# the sender's first.
OPENER, HANDSHAKE, TWICE, OUTER = range(4)
CONVERSATION_WORDS = 8

# A direction's figures; its row is twice the conversation's, plus one where the higher end sends. Words 17, 18, 19, 30
# and 31 are its holes'. UNSURE: bytes called repeated below FORGOTTEN.
(
    PACKETS,
    WIRE,
    PAYLOAD_SUM,
    REPEATED,
    FIRST,
    LAST,
    HIGHEST,
    SLOW,
    BIN_PACKETS,
    BIN_WIRE,
    BIN_PAYLOAD,
    BIN_REPEATED,
    BIN_FRAMES,
    BIN_CAPTURED,
    MOST_WINDOW,
    BASE,
    SYN_NS,
) = range(17)
UNSURE, AGAIN, LATE, SYNS, FINS, RESETS, ZERO_WINDOWS, SHIFT, FROM_MAC, TO_MAC = range(20, 30)
DIRECTION_WORDS = 32

# Bits of SLOW, for which a segment has to be looked at closely: no sequence number of this side is known, none of the
# other side, the ACK that ends the handshake is awaited, this side's receive window is closed.
NO_BASE, NO_OTHER_BASE, _HANDSHAKE_OPEN, _CLOSED = 1, 2, 4, 8

SEQUENCE_SPACE = 1 << 32
FIN, SYN, RST, ACK = 1, 2, 4, 16

# Words of a direction: how many holes, and where in the arena they are (0: the one that there may be is LOW to HIGH).
# FORGOTTEN: below it holes were dropped.
_HOLES, _BLOCK, _FORGOTTEN, _LOW, _HIGH = 17, 18, 19, 30, 31

# Ranges of sequence numbers of a direction in order, each as its begin and its end.
MOST_HOLES = 256

# A block is a word with its kind, then holes; that of a free block is followed by the next free one. The arena begins
# with the first free block of each kind and where the part begins that was never used.
_SMALL, _MIDDLE, _LARGE = 4, 32, MOST_HOLES + 1
_KINDS, _UNUSED, _FIRST = 3, 3, 4
HOLE_ROOM = 4 * (1 + 2 * _LARGE)  # words that have to be unused before a segment: it takes at most two blocks


@stage
def _repeated(stat: Ints, holes: Ints, sequence: int, payload: int, opens: bool) -> int:
    """Count payload bytes whose sequence numbers this direction has shown before (RFC 9293, 3.4).

    Below the highest number that was seen, all was seen but for the holes: a segment that was lost before it came by
    here is new when it is sent again. Positions are sequence numbers that do not wrap; 0: none was seen yet.
    """
    if opens:
        _clear_holes(stat, holes)
        stat[HIGHEST] = SEQUENCE_SPACE + sequence + 1 + payload
        stat[_FORGOTTEN] = 0
        return 0
    if payload == 0:
        return 0
    known = stat[HIGHEST]
    if known == 0:
        begin = SEQUENCE_SPACE + sequence
        stat[HIGHEST] = begin + payload
        _add_hole(stat, holes, 0, begin - SEQUENCE_SPACE // 2, begin)
        return 0
    behind = (known - sequence) % SEQUENCE_SPACE
    begin = known - behind if behind < SEQUENCE_SPACE // 2 else known - behind + SEQUENCE_SPACE
    end = begin + payload
    stat[HIGHEST] = max(known, end)
    if begin > known:
        _add_hole(stat, holes, stat[_HOLES], known, begin)
        return 0
    end = min(end, known)
    fresh = _fill_holes(stat, holes, begin, end)
    stat[UNSURE] += max(0, min(end, stat[_FORGOTTEN]) - begin)
    return end - begin - fresh


@stage
def _handshake(mine: Ints, other: Ints, shared: Ints, flags: int, stamp: int) -> None:
    """Time the three segments that open a connection; one that was sent twice says nothing (RFC 6298, section 3)."""
    if flags & SYN:
        shared[TWICE] |= mine[SYNS] > 0
        mine[SYNS] += 1
        mine[SYN_NS] = stamp
        if flags & ACK and other[SYNS] > 0:
            other[SLOW] |= _HANDSHAKE_OPEN
    elif flags & ACK and mine[SLOW] & _HANDSHAKE_OPEN:
        mine[SLOW] &= ~_HANDSHAKE_OPEN
        if shared[TWICE] == 0 and shared[HANDSHAKE] < 0:
            shared[HANDSHAKE] = max(0, stamp - mine[SYN_NS])


@stage
def segment(mine: Ints, other: Ints, shared: Ints, holes: Ints, header: Ints, stamp: int) -> int:
    """Account for a TCP segment; return its repeated payload bytes."""
    flags, sequence, payload = header[FLAGS], header[SEQUENCE], header[PAYLOAD]
    opens = flags & SYN != 0
    if mine[SLOW] & NO_BASE:
        mine[BASE] = sequence if opens else (sequence - 1) % SEQUENCE_SPACE
        mine[SLOW] &= ~NO_BASE
        other[SLOW] &= ~NO_OTHER_BASE
    if mine[SLOW] & NO_OTHER_BASE and flags & ACK:
        if other[SLOW] & NO_BASE:
            other[BASE] = (header[ACKNOWLEDGED] - 1) % SEQUENCE_SPACE
            other[SLOW] &= ~NO_BASE
        mine[SLOW] &= ~NO_OTHER_BASE
    _handshake(mine, other, shared, flags, stamp)
    if opens:
        mine[SHIFT] = header[SCALE]
    else:
        mine[MOST_WINDOW] = max(mine[MOST_WINDOW], header[WINDOW])
    mine[FINS] += flags & FIN
    mine[RESETS] += flags >> 2 & 1
    if header[WINDOW] > 0:
        mine[SLOW] &= ~_CLOSED
    elif flags & (FIN | SYN | RST) == 0 and mine[SLOW] & _CLOSED == 0:
        mine[ZERO_WINDOWS] += 1
        mine[SLOW] |= _CLOSED
    known = mine[HIGHEST]
    again = _repeated(mine, holes, sequence, payload, opens)
    if payload == 0:
        return again
    behind = (known - sequence) % SEQUENCE_SPACE
    advances = known == 0 or opens or behind == 0 or behind >= SEQUENCE_SPACE // 2
    keeps_alive = payload == 1 and behind == 1  # RFC 9293, 3.8.4
    if not advances and not keeps_alive:
        # Which of reordering and a loss on the way to here made a segment late, no capture can tell.
        mine[AGAIN if again > 0 else LATE] += 1
    return again


def hole_arena(words: int, before: Ints | None = None) -> Ints:
    """Allocate an arena for holes, with those of a smaller arena copied."""
    made = np.zeros(words, np.int64)
    made[_UNUSED] = _FIRST
    if before is not None:
        made[: len(before)] = before
    return made


@inline
def holes_full(holes: Ints) -> bool:
    """Return whether the next segment may find no block."""
    return holes.shape[0] - holes[_UNUSED] < HOLE_ROOM


@stage
def _block_holes(kind: int) -> int:
    return _SMALL if kind == 0 else _MIDDLE if kind == 1 else _LARGE


@stage
def _take_block(holes: Ints, kind: int) -> int:
    """Return a block, free or new."""
    at = holes[kind]
    if at > 0:
        holes[kind] = holes[at + 1]
    else:
        at = holes[_UNUSED]
        holes[_UNUSED] = at + 1 + 2 * _block_holes(kind)
    holes[at] = kind
    return at


@stage
def _give_block(holes: Ints, at: int) -> None:
    kind = holes[at]
    holes[at + 1] = holes[kind]
    holes[kind] = at


@stage
def _add_hole(stat: Ints, holes: Ints, at: int, low: int, high: int) -> None:
    """Insert low..high as hole `at` of the direction; beyond MOST_HOLES the lowest, the oldest, is forgotten."""
    count = stat[_HOLES]
    if count == 0:
        stat[_HOLES], stat[_LOW], stat[_HIGH] = 1, low, high
        return
    if stat[_BLOCK] == 0:
        block = _take_block(holes, 0)
        holes[block + 1], holes[block + 2] = stat[_LOW], stat[_HIGH]
        stat[_BLOCK] = block
    block = stat[_BLOCK]
    kind = holes[block]
    if count == _block_holes(kind):
        larger = _take_block(holes, kind + 1)
        for word in range(1, 1 + 2 * count):
            holes[larger + word] = holes[block + word]
        _give_block(holes, block)
        stat[_BLOCK] = block = larger
    for word in range(2 * count, 2 * at, -1):
        holes[block + word + 2] = holes[block + word]
    holes[block + 1 + 2 * at], holes[block + 2 + 2 * at] = low, high
    stat[_HOLES] = count + 1
    if stat[_HOLES] > MOST_HOLES:
        stat[_FORGOTTEN] = holes[block + 2]
        _remove_hole(stat, holes, 0)


@stage
def _remove_hole(stat: Ints, holes: Ints, at: int) -> None:
    block = stat[_BLOCK]
    stat[_HOLES] -= 1
    if block == 0:
        return
    for word in range(1 + 2 * at, 1 + 2 * stat[_HOLES]):
        holes[block + word] = holes[block + word + 2]
    if stat[_HOLES] == 1:
        stat[_LOW], stat[_HIGH] = holes[block + 1], holes[block + 2]
        _give_block(holes, block)
        stat[_BLOCK] = 0


@stage
def _clear_holes(stat: Ints, holes: Ints) -> None:
    """Remove all holes of the direction."""
    if stat[_BLOCK] > 0:
        _give_block(holes, stat[_BLOCK])
    stat[_BLOCK] = stat[_HOLES] = 0


@stage
def _hole_ends(stat: Ints, holes: Ints, at: int) -> tuple[int, int]:
    block = stat[_BLOCK]
    if block == 0:
        return stat[_LOW], stat[_HIGH]
    return holes[block + 1 + 2 * at], holes[block + 2 + 2 * at]


@stage
def _set_hole(stat: Ints, holes: Ints, at: int, low: int, high: int) -> None:
    block = stat[_BLOCK]
    if block == 0:
        stat[_LOW], stat[_HIGH] = low, high
    else:
        holes[block + 1 + 2 * at], holes[block + 2 + 2 * at] = low, high


@stage
def _fill_holes(stat: Ints, holes: Ints, begin: int, end: int) -> int:
    """Fill what begin..end covers of the direction's holes; return how many bytes that was."""
    fresh, at = 0, 0
    while at < stat[_HOLES]:
        low, high = _hole_ends(stat, holes, at)
        from_, to = max(low, begin), min(high, end)
        if from_ >= to:
            at += 1
            continue
        fresh += to - from_
        if low < from_:
            _set_hole(stat, holes, at, low, from_)
            at += 1
            if to < high:
                _add_hole(stat, holes, at, to, high)
                break
        elif to < high:
            _set_hole(stat, holes, at, to, high)
            at += 1
        else:
            _remove_hole(stat, holes, at)
    return fresh
