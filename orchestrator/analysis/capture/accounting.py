"""Keeps a row for each conversation and each of its directions: the compiled third stage of the capture reader.

One file, since numba's cache watches the file of a compiled function and none that it calls.
"""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: C901, PLR0912, PLR0915, PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.compiled import stage
from orchestrator.analysis.capture.decoding import (
    ACKNOWLEDGED,
    DST_HIGH,
    DST_LOW,
    DST_MAC,
    FLAGS,
    IP_BYTES,
    LINK_BYTES,
    PAYLOAD,
    SCALE,
    SEQUENCE,
    SRC_HIGH,
    SRC_LOW,
    SRC_MAC,
    WINDOW,
    WORD,
)
from orchestrator.analysis.capture.framing import BEGIN, END, STAMP
from orchestrator.analysis.capture.framing import WIRE as ON_WIRE

Ints = npt.NDArray[np.int64]

# A conversation's identity: the lower end's address (two words), the higher one's, and a WORD with the lower end's
# port before the higher one's. Row 0 is for all conversations beyond MOST_CONVERSATIONS.
KEY_WORDS = 5
MOST_CONVERSATIONS = 1 << 20

# What both directions of a conversation share. HANDSHAKE: nanoseconds, -1 where it is not known.
OPENER, HANDSHAKE, TWICE = range(3)
CONVERSATION_WORDS = 4

# A direction's figures; its row is twice the conversation's, plus one where the higher end sends.
(
    PACKETS, WIRE, PAYLOAD_SUM, REPEATED, FIRST, LAST, HIGHEST, SLOW,
    BIN_PACKETS, BIN_WIRE, BIN_PAYLOAD, BIN_REPEATED, BIN_FRAMES, BIN_CAPTURED, MOST_WINDOW,
    BASE, SYN_NS, HOLES, HOLE_ROW, FORGOTTEN, UNSURE, AGAIN, LATE,
    SYNS, FINS, RESETS, ZERO_WINDOWS, SHIFT, FROM_MAC, TO_MAC,
) = range(30)  # fmt: skip
DIRECTION_WORDS = 32

# Bits of SLOW, for which a segment has to be looked at closely: no sequence number of this side is known, none of the
# other side, the ACK that ends the handshake is awaited, this side's receive window is closed.
_NO_BASE, _NO_OTHER_BASE, _HANDSHAKE_OPEN, _CLOSED = 1, 2, 4, 8

# Ranges of sequence numbers below a direction's highest that were never captured, in order, each as its begin and its
# end. A direction has a row of them while it has any (HOLE_ROW; 0: none). The first word of a free row is the next
# free row, and that of row 0 the first one. FORGOTTEN: below it holes were dropped; UNSURE: bytes called repeated
# there.
MOST_HOLES = 256

# One closed bin of one direction: its row, the bin's number, and what it holds: packets as captured, bytes of the
# frames that these are on the wire, payload bytes, repeated bytes, frames, bytes as captured.
BIN_FIGURES = 6
BIN_WORDS = 2 + BIN_FIGURES

# What goes on from batch to batch.
(
    CONVERSATIONS, ACTIVE, BIN_BEGIN, SEEN, SNAPPED, BACKWARDS, BACK_BINS, LAST_STAMP, FIRST_NS, LAST_NS, KEPT_BYTES,
    WIRE_BYTES, HANDED_OUT,
) = range(13)  # fmt: skip
STATE_WORDS = 13

# Why a walk over a batch ended.
DONE, TABLE_FULL, BINS_FULL, HOLES_FULL = 0, 1, 2, 3

_SEQUENCE_SPACE = 1 << 32
_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16


@stage
def _mixed(first: int, second: int, third: int, fourth: int, word: int) -> int:
    """A hash of a conversation's identity, not negative."""
    mixed = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(second)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93)
    mixed += np.uint64(third) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(fourth)
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(word)
    mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ mixed >> np.uint64(32)) >> np.uint64(1))


@stage
def _slot(slots: Ints, keys: Ints, mixed: int, first: int, second: int, third: int, fourth: int, word: int) -> int:
    """Where the conversation is in the open hash table, or the free place where it belongs.

    A slot holds part of the hash above the row, so that most others are told apart without a look at their keys.
    """
    mask = slots.shape[0] - 1
    at = mixed & mask
    tag = mixed >> 32
    while True:
        held = slots[at]
        if held == 0:
            return at
        if held >> 32 == tag:
            row = held & 0xFFFFFFFF
            if (
                keys[row, 4] == word
                and keys[row, 1] == second
                and keys[row, 3] == fourth
                and keys[row, 0] == first
                and keys[row, 2] == third
            ):
                return at
        at = (at + 1) & mask


@stage
def rehash(slots: Ints, keys: Ints, conversations: int) -> None:
    """Fill empty slots from the conversations that are known; of those with one identity the last one counts."""
    for row in range(1, conversations):
        key = keys[row]
        mixed = _mixed(key[0], key[1], key[2], key[3], key[4])
        slots[_slot(slots, keys, mixed, key[0], key[1], key[2], key[3], key[4])] = (mixed >> 32) << 32 | row


@stage
def _add_hole(stat: Ints, holes: Ints, at: int, low: int, high: int) -> None:
    """Put low..high in as hole `at` of the direction; beyond MOST_HOLES the lowest, the oldest, is forgotten."""
    if stat[HOLE_ROW] == 0:
        stat[HOLE_ROW] = holes[0, 0]
        holes[0, 0] = holes[stat[HOLE_ROW], 0]
    mine = holes[stat[HOLE_ROW]]
    for word in range(2 * stat[HOLES] - 1, 2 * at - 1, -1):
        mine[word + 2] = mine[word]
    mine[2 * at], mine[2 * at + 1] = low, high
    stat[HOLES] += 1
    if stat[HOLES] > MOST_HOLES:
        stat[FORGOTTEN] = mine[1]
        _remove_hole(stat, holes, 0)


@stage
def _remove_hole(stat: Ints, holes: Ints, at: int) -> None:
    mine = holes[stat[HOLE_ROW]]
    for word in range(2 * at, 2 * stat[HOLES] - 2):
        mine[word] = mine[word + 2]
    stat[HOLES] -= 1
    if stat[HOLES] == 0:
        _give_back(stat, holes)


@stage
def _give_back(stat: Ints, holes: Ints) -> None:
    """The direction has no hole any more: another one may have its row."""
    row = stat[HOLE_ROW]
    if row > 0:
        holes[row, 0] = holes[0, 0]
        holes[0, 0] = row
    stat[HOLE_ROW] = stat[HOLES] = 0


@stage
def _fill(stat: Ints, holes: Ints, begin: int, end: int) -> int:
    """Close what begin..end covers of the direction's holes; returns how many bytes that was."""
    fresh, at = 0, 0
    while at < stat[HOLES]:
        mine = holes[stat[HOLE_ROW]]
        low, high = mine[2 * at], mine[2 * at + 1]
        from_, to = max(low, begin), min(high, end)
        if from_ >= to:
            at += 1
            continue
        fresh += to - from_
        if low < from_:
            mine[2 * at + 1] = from_
            at += 1
            if to < high:
                _add_hole(stat, holes, at, to, high)
                break
        elif to < high:
            mine[2 * at] = to
            at += 1
        else:
            _remove_hole(stat, holes, at)
    return fresh


@stage
def _repeated(stat: Ints, holes: Ints, sequence: int, payload: int, opens: bool) -> int:
    """Count payload bytes whose sequence numbers this direction has shown before (RFC 9293, 3.4).

    Below the highest number that was seen, all was seen but for the holes: a segment that was lost before it came by
    here is new when it is sent again. Positions are sequence numbers that do not wrap; 0: none was seen yet.
    """
    if opens:
        _give_back(stat, holes)
        stat[HIGHEST] = _SEQUENCE_SPACE + sequence + 1 + payload
        stat[FORGOTTEN] = 0
        return 0
    if payload == 0:
        return 0
    known = stat[HIGHEST]
    if known == 0:
        begin = _SEQUENCE_SPACE + sequence
        stat[HIGHEST] = begin + payload
        _add_hole(stat, holes, 0, begin - _SEQUENCE_SPACE // 2, begin)
        return 0
    behind = (known - sequence) % _SEQUENCE_SPACE
    begin = known - behind if behind < _SEQUENCE_SPACE // 2 else known - behind + _SEQUENCE_SPACE
    end = begin + payload
    stat[HIGHEST] = max(known, end)
    if begin > known:
        _add_hole(stat, holes, stat[HOLES], known, begin)
        return 0
    end = min(end, known)
    fresh = _fill(stat, holes, begin, end)
    stat[UNSURE] += max(0, min(end, stat[FORGOTTEN]) - begin)
    return end - begin - fresh


@stage
def _handshake(mine: Ints, other: Ints, shared: Ints, flags: int, stamp: int) -> None:
    """Time the three segments that open a connection; one that was sent twice says nothing (RFC 6298, section 3)."""
    if flags & _SYN:
        shared[TWICE] |= mine[SYNS] > 0
        mine[SYNS] += 1
        mine[SYN_NS] = stamp
        if flags & _ACK and other[SYNS] > 0:
            other[SLOW] |= _HANDSHAKE_OPEN
    elif flags & _ACK and mine[SLOW] & _HANDSHAKE_OPEN:
        mine[SLOW] &= ~_HANDSHAKE_OPEN
        if shared[TWICE] == 0 and shared[HANDSHAKE] < 0:
            shared[HANDSHAKE] = max(0, stamp - mine[SYN_NS])


@stage
def _segment(mine: Ints, other: Ints, shared: Ints, holes: Ints, header: Ints, stamp: int) -> int:
    """Look closely at a segment; gives its repeated payload bytes."""
    flags, sequence, payload = header[FLAGS], header[SEQUENCE], header[PAYLOAD]
    opens = flags & _SYN != 0
    if mine[SLOW] & _NO_BASE:
        mine[BASE] = sequence if opens else (sequence - 1) % _SEQUENCE_SPACE
        mine[SLOW] &= ~_NO_BASE
        other[SLOW] &= ~_NO_OTHER_BASE
    if mine[SLOW] & _NO_OTHER_BASE and flags & _ACK:
        if other[SLOW] & _NO_BASE:
            other[BASE] = (header[ACKNOWLEDGED] - 1) % _SEQUENCE_SPACE
            other[SLOW] &= ~_NO_BASE
        mine[SLOW] &= ~_NO_OTHER_BASE
    _handshake(mine, other, shared, flags, stamp)
    if opens:
        mine[SHIFT] = header[SCALE]
    else:
        mine[MOST_WINDOW] = max(mine[MOST_WINDOW], header[WINDOW])
    mine[FINS] += flags & _FIN
    mine[RESETS] += flags >> 2 & 1
    if header[WINDOW] > 0:
        mine[SLOW] &= ~_CLOSED
    elif flags & (_FIN | _SYN | _RST) == 0 and mine[SLOW] & _CLOSED == 0:
        mine[ZERO_WINDOWS] += 1
        mine[SLOW] |= _CLOSED
    known = mine[HIGHEST]
    again = _repeated(mine, holes, sequence, payload, opens)
    if payload == 0:
        return again
    behind = (known - sequence) % _SEQUENCE_SPACE
    advances = known == 0 or opens or behind == 0 or behind >= _SEQUENCE_SPACE // 2
    keeps_alive = payload == 1 and behind == 1  # RFC 9293, 3.8.4
    if not advances and not keeps_alive:
        # Which of reordering and a loss on the way to here made a segment late, no capture can tell.
        mine[AGAIN if again > 0 else LATE] += 1
    return again


@stage
def _on_wire(wire: int, header: Ints, segment: int) -> tuple[int, int]:
    """Layer-2 bytes and number of the frames that a device cuts a packet into, which all repeat its headers.

    Within them no IP packet is longer than `segment`.
    """
    payload = header[PAYLOAD]
    headers = header[IP_BYTES] - payload
    if header[IP_BYTES] <= segment or headers >= segment:
        return wire, 1
    room = segment - headers
    frames = (payload + room - 1) // room
    return payload + frames * (header[LINK_BYTES] + headers), frames


@stage
def hand_out_bins(directions: Ints, active: Ints, open_bins: int, number: int, out: Ints, used: int) -> tuple[int, int]:
    """Close the open bins of the active directions as far as `out` has room behind `used` rows; gives both anew."""
    while open_bins > 0 and used < out.shape[0]:
        open_bins -= 1
        row = active[open_bins]
        out[used, 0] = row
        out[used, 1] = number
        for word in range(BIN_FIGURES):
            out[used, 2 + word] = directions[row, BIN_PACKETS + word]
            directions[row, BIN_PACKETS + word] = 0
        used += 1
    return open_bins, used


@stage
def _enter(slots: Ints, place: int, mixed: int, shared: Ints, directions: Ints, row: int) -> None:
    """Begin a conversation's row."""
    slots[place] = (mixed >> 32) << 32 | row
    shared[row, HANDSHAKE] = -1
    for one in range(2 * row, 2 * row + 2):
        directions[one, SLOW] = _NO_BASE | _NO_OTHER_BASE
        directions[one, SHIFT] = -1


@stage
def account(
    frames: Ints, headers: Ints, begin: int, found: int, bin_ns: int, segment: int,
    slots: Ints, keys: Ints, shared: Ints, directions: Ints, holes: Ints, active: Ints, state: Ints, out: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Account for the packets from `begin` to `found` of a batch; gives (why it ended, the packet it ended before).

    `segment`: the longest IP packet on the wire, 0 where captured packets are what is on it. All else is in the
    tables: `slots`, `keys`, `shared` and `directions` of the conversations, `holes`, `active`: the directions with an
    open bin, and `out`: closed bins, state[HANDED_OUT] of them.
    """
    conversations, open_bins, bin_begin = state[CONVERSATIONS], state[ACTIVE], state[BIN_BEGIN]
    last, why, number, used = state[LAST_STAMP], DONE, begin, state[HANDED_OUT]
    least, most, wire_bytes, kept_bytes = state[FIRST_NS], state[LAST_NS], 0, 0
    while number < found:
        stamp, wire = frames[number, STAMP], frames[number, ON_WIRE]
        if stamp < bin_begin or stamp - bin_begin >= bin_ns:
            if open_bins > 0:
                open_bins, used = hand_out_bins(directions, active, open_bins, bin_begin // bin_ns, out, used)
                if open_bins > 0:
                    why = BINS_FULL
                    break
            now = stamp // bin_ns * bin_ns
            state[BACK_BINS] += now < bin_begin
            bin_begin = now
        if holes[0, 0] == 0:
            why = HOLES_FULL
            break
        header = headers[number]
        first, second, third, fourth, word = (
            header[SRC_HIGH], header[SRC_LOW], header[DST_HIGH], header[DST_LOW], header[WORD],
        )  # fmt: skip
        payload = header[PAYLOAD]
        turned = 0
        ports = word & 0xFFFFFFFF
        if second > fourth or (
            second == fourth and (first > third or (first == third and ports >> 16 > ports & 0xFFFF))
        ):
            first, second, third, fourth = third, fourth, first, second
            word ^= ports ^ ((ports & 0xFFFF) << 16 | ports >> 16)
            turned = 1
        mixed = _mixed(first, second, third, fourth, word)
        place = _slot(slots, keys, mixed, first, second, third, fourth, word)
        row = slots[place] & 0xFFFFFFFF
        flags = header[FLAGS]
        again_used = (
            row > 0
            and flags >= 0
            and flags & (_SYN | _ACK) == _SYN
            and directions[2 * row + turned, SLOW] & _NO_BASE == 0
            and directions[2 * row + turned, BASE] != header[SEQUENCE]
        )
        if row == 0 or again_used:
            if conversations < keys.shape[0]:
                row = conversations
                conversations += 1
                keys[row, 0] = first
                keys[row, 1] = second
                keys[row, 2] = third
                keys[row, 3] = fourth
                keys[row, 4] = word
                shared[row, OPENER] = turned
                _enter(slots, place, mixed, shared, directions, row)
            elif conversations < MOST_CONVERSATIONS:
                why = TABLE_FULL
                break
            else:
                row, flags = 0, -1
        mine = 2 * row + turned
        stat = directions[mine]
        again = 0
        if flags >= 0:
            # Most segments follow the one before and ask for nothing else: these are spared the close look.
            if (
                flags & (_FIN | _SYN | _RST) == 0
                and stat[SLOW] == 0
                and header[WINDOW] > 0
                and (payload == 0 or (stat[HIGHEST] > 0 and stat[HIGHEST] & (_SEQUENCE_SPACE - 1) == header[SEQUENCE]))
            ):
                if payload > 0:
                    stat[HIGHEST] += payload
                stat[MOST_WINDOW] = max(stat[MOST_WINDOW], header[WINDOW])
            else:
                again = _segment(stat, directions[mine ^ 1], shared[row], holes, header, stamp)
        kept = frames[number, END] - frames[number, BEGIN]
        kept_bytes += kept
        wire_bytes += wire
        state[SNAPPED] += kept < wire
        captured, on_wire = wire, 1
        if segment > 0:
            wire, on_wire = _on_wire(wire, header, segment)
        if stat[PACKETS] == 0:
            stat[FIRST] = stamp
            stat[LAST] = stamp
            stat[FROM_MAC] = header[SRC_MAC]
            stat[TO_MAC] = header[DST_MAC]
        if stat[BIN_PACKETS] == 0:
            active[open_bins] = mine
            open_bins += 1
        stat[FIRST] = min(stat[FIRST], stamp)
        stat[LAST] = max(stat[LAST], stamp)
        stat[PACKETS] += 1
        stat[WIRE] += wire
        stat[PAYLOAD_SUM] += payload
        stat[REPEATED] += again
        stat[BIN_PACKETS] += 1
        stat[BIN_WIRE] += wire
        stat[BIN_PAYLOAD] += payload
        stat[BIN_REPEATED] += again
        stat[BIN_FRAMES] += on_wire
        stat[BIN_CAPTURED] += captured
        state[BACKWARDS] += stamp < last
        last = stamp
        least = min(least, stamp)
        most = max(most, stamp)
        number += 1
    state[CONVERSATIONS], state[ACTIVE], state[BIN_BEGIN] = conversations, open_bins, bin_begin
    state[LAST_STAMP], state[FIRST_NS], state[LAST_NS] = last, least, most
    state[WIRE_BYTES] += wire_bytes
    state[KEPT_BYTES] += kept_bytes
    state[SEEN] += number - begin
    state[HANDED_OUT] = used
    return why, number


def empty_conversations(rows: int) -> tuple[Any, Any, Any, Any, Any]:
    """Slots, keys, shared and directions for `rows` conversations (a power of two), and room for active directions.

    Slots are twice as many, so that probes stay short. What is not used yet takes no memory.
    """
    return (
        np.zeros(2 * rows, np.int64),
        np.zeros((rows, KEY_WORDS), np.int64),
        np.zeros((rows, CONVERSATION_WORDS), np.int64),
        np.zeros((2 * rows, DIRECTION_WORDS), np.int64),
        np.zeros(2 * rows, np.int64),
    )


def empty_state() -> Any:
    """State before the first packet."""
    state = np.zeros(STATE_WORDS, np.int64)
    state[CONVERSATIONS] = 1
    state[BIN_BEGIN], state[LAST_STAMP] = -(1 << 62), -(1 << 62)
    state[FIRST_NS], state[LAST_NS] = 1 << 62, -(1 << 62)
    return state


def more_holes(holes: Ints, rows: int) -> Ints:
    """The same rows of holes with `rows` free ones behind them, for when none is free (or there are none yet)."""
    had = max(1, len(holes))
    grown = np.zeros((had + rows, 2 * (MOST_HOLES + 1)), np.int64)
    grown[: len(holes)] = holes
    grown[had:-1, 0] = np.arange(had + 1, had + rows)
    grown[0, 0] = had
    return grown
