"""Looks closely at TCP segments: what was captured before, handshakes, windows; part of the capture reader."""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages import holes as gaps
from orchestrator.analysis.capture.stages.compiled import stage
from orchestrator.analysis.capture.stages.decoding import ACKNOWLEDGED, FLAGS, PAYLOAD, SCALE, SEQUENCE, WINDOW
from orchestrator.analysis.capture.stages.holes import FORGOTTEN, HOLES

Ints = npt.NDArray[np.int64]

# What both directions of a conversation share. HANDSHAKE: nanoseconds, -1 where it is not known. BORN: the number of
# its first packet. OUTER: the scope of the outermost addresses of its first packet where that came in a tunnel, then
# these (see decoding), two words each, the sender's first.
OPENER, HANDSHAKE, TWICE, BORN, OUTER = range(5)
CONVERSATION_WORDS = 9

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


@stage
def _repeated(stat: Ints, holes: Ints, sequence: int, payload: int, opens: bool) -> int:
    """Count payload bytes whose sequence numbers this direction has shown before (RFC 9293, 3.4).

    Below the highest number that was seen, all was seen but for the holes: a segment that was lost before it came by
    here is new when it is sent again. Positions are sequence numbers that do not wrap; 0: none was seen yet.
    """
    if opens:
        gaps.clear(stat, holes)
        stat[HIGHEST] = SEQUENCE_SPACE + sequence + 1 + payload
        stat[FORGOTTEN] = 0
        return 0
    if payload == 0:
        return 0
    known = stat[HIGHEST]
    if known == 0:
        begin = SEQUENCE_SPACE + sequence
        stat[HIGHEST] = begin + payload
        gaps.add(stat, holes, 0, begin - SEQUENCE_SPACE // 2, begin)
        return 0
    behind = (known - sequence) % SEQUENCE_SPACE
    begin = known - behind if behind < SEQUENCE_SPACE // 2 else known - behind + SEQUENCE_SPACE
    end = begin + payload
    stat[HIGHEST] = max(known, end)
    if begin > known:
        gaps.add(stat, holes, stat[HOLES], known, begin)
        return 0
    end = min(end, known)
    fresh = gaps.fill(stat, holes, begin, end)
    stat[UNSURE] += max(0, min(end, stat[FORGOTTEN]) - begin)
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
    """Look closely at a segment; gives its repeated payload bytes."""
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
