"""Keeps a row for each conversation and each of its directions: the compiled third stage of the capture reader."""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: C901, PLR0912, PLR0915, PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages import holes as gaps
from orchestrator.analysis.capture.stages import segments
from orchestrator.analysis.capture.stages.compiled import stage
from orchestrator.analysis.capture.stages.decoding import (
    DST_HIGH,
    DST_LOW,
    DST_MAC,
    FLAGS,
    HASH,
    IP_BYTES,
    LINK_BYTES,
    MARKED_NS,
    MARKED_WIRE,
    PAYLOAD,
    SEQUENCE,
    SRC_HIGH,
    SRC_LOW,
    SRC_MAC,
    WINDOW,
    WORD,
    mixed,
    turned_word,
)
from orchestrator.analysis.capture.stages.segments import (
    ACK,
    BASE,
    BIN_CAPTURED,
    BIN_FRAMES,
    BIN_PACKETS,
    BIN_PAYLOAD,
    BIN_REPEATED,
    BIN_WIRE,
    BORN,
    FIN,
    FIRST,
    FROM_MAC,
    HANDSHAKE,
    HIGHEST,
    LAST,
    MOST_WINDOW,
    NO_BASE,
    NO_OTHER_BASE,
    OPENER,
    PACKETS,
    PAYLOAD_SUM,
    REPEATED,
    RST,
    SEQUENCE_SPACE,
    SHIFT,
    SLOW,
    SYN,
    TO_MAC,
    WIRE,
)

Ints = npt.NDArray[np.int64]

# A conversation's identity: the lower end's address (two words), the higher one's, and a WORD with the lower end's
# port before the higher one's. Row 0 is for all conversations beyond the most that are told apart.
KEY_WORDS = 5

# One closed bin of one direction: its row, the bin's number, and what it holds: packets as captured, bytes of the
# frames that these are on the wire, payload bytes, repeated bytes, frames, bytes as captured.
BIN_FIGURES = 6
BIN_WORDS = 2 + BIN_FIGURES

# What goes on from piece to piece. ACTIVE: directions with an open bin, of which EMITTED are handed out already.
CONVERSATIONS, ACTIVE, EMITTED, BIN_BEGIN, BACK_BINS, HANDED_OUT = range(6)
STATE_WORDS = 6

# Why a walk over packets ended.
DONE, TABLE_FULL, BINS_FULL, HOLES_FULL = 0, 1, 2, 3

_SHARD_BITS = 40  # of a hash: those below choose its place in the table


@stage
def _slot(slots: Ints, keys: Ints, code: int, first: int, second: int, third: int, fourth: int, word: int) -> int:
    """Where the conversation is in the open hash table, or the free place where it belongs.

    A slot holds part of the hash above the row, so that most others are told apart without a look at their keys.
    """
    mask = slots.shape[0] - 1
    at = code & mask
    tag = code >> 32
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
        code = mixed(key[0], key[1], key[2], key[3], key[4]) >> 1
        slots[_slot(slots, keys, code, key[0], key[1], key[2], key[3], key[4])] = (code >> 32) << 32 | row


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
    while state[EMITTED] < state[ACTIVE] and used < out.shape[0]:
        row = active[state[EMITTED]]
        state[EMITTED] += 1
        out[used, 0] = row
        out[used, 1] = number
        for word in range(BIN_FIGURES):
            out[used, 2 + word] = directions[row, BIN_PACKETS + word]
            directions[row, BIN_PACKETS + word] = 0
        used += 1
    state[HANDED_OUT] = used
    if state[EMITTED] == state[ACTIVE]:
        state[ACTIVE] = state[EMITTED] = 0


@stage
def _enter(slots: Ints, place: int, code: int, shared: Ints, directions: Ints, row: int) -> None:
    """Begin a conversation's row."""
    slots[place] = (code >> 32) << 32 | row
    shared[row, HANDSHAKE] = -1
    for one in range(2 * row, 2 * row + 2):
        directions[one, SLOW] = NO_BASE | NO_OTHER_BASE
        directions[one, SHIFT] = -1


@stage
def account(
    marks: Ints, headers: Ints, begin: int, found: int, base: int, shard: int, shards: int, bin_ns: int,
    segment: int, most: int, slots: Ints, keys: Ints, shared: Ints, directions: Ints, holes: Ints, active: Ints,
    state: Ints, out: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Account for the packets from `begin` to `found` of a piece; gives (why it ended, the packet it ended before).

    Only for those of conversations of `shard`. `base`: how many packets there were before the piece. `segment`: the
    longest IP packet on the wire, 0 where captured packets are what is on it. `most`: conversations that are told
    apart. All else is in the tables: `slots`, `keys`, `shared` and `directions` of the conversations, `holes`,
    `active`: the directions with an open bin, and `out`: closed bins, state[HANDED_OUT] of them.
    """
    conversations, bin_begin, why, number = state[CONVERSATIONS], state[BIN_BEGIN], DONE, begin
    while number < found:
        stamp = marks[number, MARKED_NS]
        # Other shards' packets close bins as well, so that rows of bins are the same for any number of shards.
        if stamp < bin_begin or stamp - bin_begin >= bin_ns:
            if state[ACTIVE] > 0:
                hand_out_bins(directions, active, state, bin_begin // bin_ns, out)
                if state[ACTIVE] > 0:
                    why = BINS_FULL
                    break
            now = stamp // bin_ns * bin_ns
            state[BACK_BINS] += now < bin_begin
            bin_begin = now
        code = marks[number, HASH]
        if shards > 1 and (code >> _SHARD_BITS) % shards != shard:
            number += 1
            continue
        wire = marks[number, MARKED_WIRE]
        if gaps.is_full(holes):
            why = HOLES_FULL
            break
        header = headers[number]
        first, second, third, fourth, word = (
            header[SRC_HIGH], header[SRC_LOW], header[DST_HIGH], header[DST_LOW], header[WORD],
        )  # fmt: skip
        payload = header[PAYLOAD]
        turned = code & 1
        if turned:
            first, second, third, fourth = third, fourth, first, second
            word = turned_word(word)
        place = _slot(slots, keys, code >> 1, first, second, third, fourth, word)
        row = slots[place] & 0xFFFFFFFF
        flags = header[FLAGS]
        again_used = (
            row > 0
            and flags >= 0
            and flags & (SYN | ACK) == SYN
            and directions[2 * row + turned, SLOW] & NO_BASE == 0
            and directions[2 * row + turned, BASE] != header[SEQUENCE]
        )
        if row == 0 or again_used:
            if conversations >= most:
                row, flags = 0, -1
            elif conversations < keys.shape[0]:
                row = conversations
                conversations += 1
                keys[row, 0] = first
                keys[row, 1] = second
                keys[row, 2] = third
                keys[row, 3] = fourth
                keys[row, 4] = word
                shared[row, OPENER] = turned
                shared[row, BORN] = base + number
                _enter(slots, place, code >> 1, shared, directions, row)
            else:
                why = TABLE_FULL
                break
        mine = 2 * row + turned
        stat = directions[mine]
        again = 0
        if flags >= 0:
            # Most segments follow the one before and ask for nothing else: these are spared the close look.
            if (
                flags & (FIN | SYN | RST) == 0
                and stat[SLOW] == 0
                and header[WINDOW] > 0
                and (payload == 0 or (stat[HIGHEST] > 0 and stat[HIGHEST] & (SEQUENCE_SPACE - 1) == header[SEQUENCE]))
            ):
                if payload > 0:
                    stat[HIGHEST] += payload
                stat[MOST_WINDOW] = max(stat[MOST_WINDOW], header[WINDOW])
            else:
                again = segments.segment(stat, directions[mine ^ 1], shared[row], holes, header, stamp)
        captured, on_wire = wire, 1
        if segment > 0:
            wire, on_wire = _on_wire(wire, header, segment)
        if stat[PACKETS] == 0:
            stat[FIRST] = stamp
            stat[LAST] = stamp
            stat[FROM_MAC] = header[SRC_MAC]
            stat[TO_MAC] = header[DST_MAC]
        if stat[BIN_PACKETS] == 0:
            active[state[ACTIVE]] = mine
            state[ACTIVE] += 1
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
        number += 1
    state[CONVERSATIONS], state[BIN_BEGIN] = conversations, bin_begin
    return why, number
