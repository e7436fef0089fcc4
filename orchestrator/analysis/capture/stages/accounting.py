"""Account for packets by conversation and direction: the compiled third stage of the capture reader.

What accounting reads of a packet is gathered in one row first, so that what it needs of a table can be asked for some
packets ahead. What directions carry in a bin is handed out in the order of their rows when the bin ends.
"""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: C901, PLR0912, PLR0915, PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages import framing, segments
from orchestrator.analysis.capture.stages.compiled import inline, stage
from orchestrator.analysis.capture.stages.decoding import (
    DST_HIGH,
    DST_LOW,
    DST_MAC,
    FLAGS,
    IP_BYTES,
    KIND_SHIFT,
    KINDS_MASK,
    LINK_BYTES,
    OUTER_DST_HIGH,
    OUTER_DST_LOW,
    OUTER_SCOPE,
    OUTER_SRC_HIGH,
    OUTER_SRC_LOW,
    PAYLOAD,
    SEQUENCE,
    SRC_HIGH,
    SRC_LOW,
    SRC_MAC,
    VIA,
    WINDOW,
    WORD,
)
from orchestrator.analysis.capture.stages.loads import prefetch
from orchestrator.analysis.capture.stages.segments import (
    ACK,
    BASE,
    BIN_CAPTURED,
    BIN_FRAMES,
    BIN_PACKETS,
    BIN_PAYLOAD,
    BIN_REPEATED,
    BIN_WIRE,
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
    OUTER,
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

# One packet: its instant, a hash of its conversation, of which the lowest bit says whether the conversation's higher
# end sent it, the conversation's identity (as of accounting's keys: ends' addresses of two words each, WORD, VIA), of
# TCP flags << 48 | window << 32 | sequence number (negative where there is none), payload and wire bytes.
NS, HASH, LOWER_HIGH, LOWER_LOW, HIGHER_HIGH, HIGHER_LOW, ENDS, CAME_BY, TCP, PAYLOAD_BYTES, WIRE_BYTES = range(11)
PACKET_WORDS = 11

# A conversation's identity: the lower end's address (two words), the higher one's, a WORD with the lower end's port
# before the higher one's, and VIA. Row 0 is for all conversations beyond the most that are told apart.
KEY_WORDS = 6

# Why a walk over packets ended.
DONE, TABLE_FULL, BINS_FULL, HOLES_FULL = 0, 1, 2, 3

# Where slots, keys and directions may be out of the processor's caches, their memory is asked for this many packets
# before it is needed: a slot first, then what it says. In words, a line of the cache is 8 long.
_FAR_SLOTS = 1 << 13
_SLOT_AHEAD, _ROW_AHEAD = 24, 12
_LINE = 8

# One closed bin of one direction, a column a word: its row, the bin's number, and what it holds: packets as captured,
# bytes of the frames that these are on the wire, payload bytes, repeated bytes, frames, bytes as captured.
BIN_FIGURES = 6
BIN_WORDS = 2 + BIN_FIGURES

# What goes on from piece to piece. ACTIVE: directions with an open bin, of which EMITTED are handed out already.
CONVERSATIONS, ACTIVE, EMITTED, BIN_BEGIN, BACK_BINS, HANDED_OUT = range(6)
STATE_WORDS = 6


@stage
def gather(frames: Ints, headers: Ints, found: int, packets: Ints) -> None:
    """Write what accounting reads of each of the first packets into a row of `packets`."""
    for number in range(found):
        row = headers[number]
        first, second, third, fourth, word = row[SRC_HIGH], row[SRC_LOW], row[DST_HIGH], row[DST_LOW], row[WORD]
        ports = word & 0xFFFFFFFF
        turned = second > fourth or (
            second == fourth and (first > third or (first == third and ports >> 16 > ports & 0xFFFF))
        )
        if turned:
            first, second, third, fourth = third, fourth, first, second
            word = turned_word(word)
        via = row[VIA]
        code = mixed(first, second, third, fourth, word, via)
        into = packets[number]
        into[NS] = frames[number, framing.STAMP]
        into[HASH] = code >> 1 << 1 | turned
        into[LOWER_HIGH] = first
        into[LOWER_LOW] = second
        into[HIGHER_HIGH] = third
        into[HIGHER_LOW] = fourth
        into[ENDS] = word
        into[CAME_BY] = via
        into[TCP] = row[FLAGS] << 48 | row[WINDOW] << 32 | row[SEQUENCE] if row[FLAGS] >= 0 else -1
        into[PAYLOAD_BYTES] = row[PAYLOAD]
        into[WIRE_BYTES] = frames[number, framing.WIRE]


@inline
def turned_word(word: int) -> int:
    """Return WORD with both ports exchanged."""
    ports = word & 0xFFFFFFFF
    return word ^ ports ^ ((ports & 0xFFFF) << 16 | ports >> 16)


@inline
def mixed(first: int, second: int, third: int, fourth: int, word: int, via: int) -> int:
    """Return a non-negative hash of a conversation's identity."""
    bits = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(second)
    bits = (bits ^ bits >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93)
    bits += np.uint64(third) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(fourth)
    bits = (bits ^ bits >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(word)
    bits += np.uint64(via) * np.uint64(0x9FB21C651E98DF25)
    bits = (bits ^ bits >> np.uint64(29)) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((bits ^ bits >> np.uint64(32)) >> np.uint64(1))


@inline
def _slot(
    slots: Ints, keys: Ints, code: int, first: int, second: int, third: int, fourth: int, word: int, via: int
) -> int:
    """Return the slot of the conversation in the open hash table, or the free slot where it belongs.

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
                and keys[row, 5] == via
                and keys[row, 1] == second
                and keys[row, 3] == fourth
                and keys[row, 0] == first
                and keys[row, 2] == third
            ):
                return at
        at = (at + 1) & mask


@stage
def rehash(slots: Ints, keys: Ints, conversations: int) -> None:
    """Fill empty slots from the known conversations; of those with one identity the last one counts."""
    for row in range(1, conversations):
        key = keys[row]
        code = mixed(key[0], key[1], key[2], key[3], key[4], key[5]) >> 1
        slots[_slot(slots, keys, code, key[0], key[1], key[2], key[3], key[4], key[5])] = (code >> 32) << 32 | row


@inline
def _on_wire(wire: int, header: Ints, segment: int) -> tuple[int, int]:
    """Return the layer-2 bytes and number of the frames that a device cuts a packet into, each with all headers.

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
def _enter(
    slots: Ints, place: int, code: int, shared: Ints, directions: Ints, row: int, via: int, header: Ints
) -> None:
    """Initialise a conversation's row; `header`: of its first packet."""
    slots[place] = (code >> 32) << 32 | row
    if via >> KIND_SHIFT & KINDS_MASK:
        shared[row, OUTER] = header[OUTER_SCOPE]
        shared[row, OUTER + 1] = header[OUTER_SRC_HIGH]
        shared[row, OUTER + 2] = header[OUTER_SRC_LOW]
        shared[row, OUTER + 3] = header[OUTER_DST_HIGH]
        shared[row, OUTER + 4] = header[OUTER_DST_LOW]
    shared[row, HANDSHAKE] = -1
    for one in range(2 * row, 2 * row + 2):
        directions[one, SLOW] = NO_BASE | NO_OTHER_BASE
        directions[one, SHIFT] = -1


@inline
def _ask_ahead(packets: Ints, number: int, found: int, slots: Ints, keys: Ints, directions: Ints) -> None:
    """Prefetch the memory that packets some way ahead of this one need."""
    mask = slots.shape[0] - 1
    if number + _SLOT_AHEAD < found:
        prefetch(slots, packets[number + _SLOT_AHEAD, HASH] >> 1 & mask)
    if number + _ROW_AHEAD < found:
        code = packets[number + _ROW_AHEAD, HASH]
        row = slots[code >> 1 & mask] & 0xFFFFFFFF
        prefetch(keys, row * KEY_WORDS)
        prefetch(keys, row * KEY_WORDS + KEY_WORDS - 1)
        stat = (2 * row + (code & 1)) * segments.DIRECTION_WORDS
        prefetch(directions, stat)
        prefetch(directions, stat + _LINE)


@stage
def account(
    packets: Ints,
    headers: Ints,
    begin: int,
    found: int,
    bin_ns: int,
    segment: int,
    most: int,
    slots: Ints,
    keys: Ints,
    shared: Ints,
    directions: Ints,
    holes: Ints,
    active: Ints,
    state: Ints,
    out: Ints,
) -> tuple[int, int]:
    """Account for the packets `begin` to `found` of a piece.

    Return (why it ended, before which packet). `segment`: the longest IP packet on the wire, 0 where captured packets
    are what is on it. `most`: conversations that are told apart. All else is in the tables: `slots`, `keys`, `shared`
    and `directions` of the conversations, `holes`, `active`: the directions with an open bin, and `out`: closed bins,
    state[HANDED_OUT] of them.
    """
    conversations, bin_begin, why, number = state[CONVERSATIONS], state[BIN_BEGIN], DONE, begin
    far = slots.shape[0] >= _FAR_SLOTS
    while number < found:
        if far:
            _ask_ahead(packets, number, found, slots, keys, directions)
        packet = packets[number]
        stamp = packet[NS]
        if stamp < bin_begin or stamp - bin_begin >= bin_ns:
            if state[ACTIVE] > 0:
                hand_out_bins(directions, active, state, bin_begin // bin_ns, out)
                if state[ACTIVE] > 0:
                    why = BINS_FULL
                    break
            now = stamp // bin_ns * bin_ns
            state[BACK_BINS] += now < bin_begin
            bin_begin = now
        code = packet[HASH]
        if segments.holes_full(holes):
            why = HOLES_FULL
            break
        first, second, third, fourth, word, via = (
            packet[LOWER_HIGH],
            packet[LOWER_LOW],
            packet[HIGHER_HIGH],
            packet[HIGHER_LOW],
            packet[ENDS],
            packet[CAME_BY],
        )
        wire, payload, tcp = packet[WIRE_BYTES], packet[PAYLOAD_BYTES], packet[TCP]
        turned = code & 1
        place = _slot(slots, keys, code >> 1, first, second, third, fourth, word, via)
        row = slots[place] & 0xFFFFFFFF
        flags, sequence = tcp >> 48, tcp & (SEQUENCE_SPACE - 1)
        again_used = (
            row > 0
            and flags >= 0
            and flags & (SYN | ACK) == SYN
            and directions[2 * row + turned, SLOW] & NO_BASE == 0
            and directions[2 * row + turned, BASE] != sequence
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
                keys[row, 5] = via
                shared[row, OPENER] = turned
                _enter(slots, place, code >> 1, shared, directions, row, via, headers[number])
            else:
                why = TABLE_FULL
                break
        mine = 2 * row + turned
        stat = directions[mine]
        again = 0
        if flags >= 0:
            # Most segments follow the one before and ask for nothing else: these are spared the close look.
            window = tcp >> 32 & 0xFFFF
            if (
                flags & (FIN | SYN | RST) == 0
                and stat[SLOW] == 0
                and window > 0
                and (payload == 0 or (stat[HIGHEST] > 0 and stat[HIGHEST] & (SEQUENCE_SPACE - 1) == sequence))
            ):
                if payload > 0:
                    stat[HIGHEST] += payload
                stat[MOST_WINDOW] = max(stat[MOST_WINDOW], window)
            else:
                again = segments.segment(stat, directions[mine ^ 1], shared[row], holes, headers[number], stamp)
        captured, on_wire = wire, 1
        if segment > 0:
            wire, on_wire = _on_wire(wire, headers[number], segment)
        if stat[PACKETS] == 0:
            stat[FIRST] = stamp
            stat[LAST] = stamp
            stat[FROM_MAC] = headers[number, SRC_MAC]
            stat[TO_MAC] = headers[number, DST_MAC]
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
