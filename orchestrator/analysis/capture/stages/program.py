"""Entry points of the compiled part of the capture reader; each takes the address of an array of words.

The words hold numbers, addresses of arrays and how long these are, in and out.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import numpy as np

from orchestrator.analysis.capture.stages import (
    accounting,
    bin_rows,
    decoding,
    framing,
    queuepairs,
    segments,
    sightings,
)
from orchestrator.analysis.capture.stages.compiled import inline
from orchestrator.analysis.capture.stages.loads import address, octets, table, words

CALLABLE = (
    "survey", "account", "close_bins", "rehash", "account_pairs", "rehash_pairs", "sight", "pack", "unpack", "lay",
    "count_bins",
)  # fmt: skip

# Of a piece of a file. In: its bytes (DATA, HELD), which begin with a record, its format (NG: pcapng), the instant of
# the packet before, and room for packets (ROWS). Out: why and where its walk ended, its packets, and what they add up
# to. Instants are nanoseconds.
(
    DATA,
    HELD,
    NG,
    BIG,
    NANOS,
    MOST,
    LINK,
    HEAD,
    ORDER,
    OFFSET_NS,
    INTERFACES,
    INTERFACE_ROWS,
    KNOWN,
    BEFORE_NS,
    FRAMES,
    ROWS,
    HEADERS,
    PACKETS,
    WHY,
    END,
    FOUND,
    UNDECODED,
    FRAGMENTS,
    ROCE,
    INNER,
    WIRE,
    KEPT,
    SNAPPED,
    BACKWARDS,
    OPENING_NS,
    CLOSING_NS,
    LEAST_NS,
    MOST_NS,
    ODD,
) = range(34)
PIECE_WORDS = ODD + framing.ODDITIES  # the last ones: what framing counts

# Of accounting. PLACE: of the first row to look at, and of the one that it ended before.
(
    A_PACKETS,
    A_FOUND,
    A_HEADERS,
    A_ROWS,
    A_PLACE,
    A_BIN_NS,
    A_SEGMENT,
    A_MOST,
    A_SLOTS,
    A_SLOT_COUNT,
    A_KEYS,
    A_SHARED,
    A_DIRECTIONS,
    A_CONVERSATIONS,
    A_HOLES,
    A_HOLE_WORDS,
    A_ACTIVE,
    A_STATE,
    A_OUT,
    A_OUT_ROWS,
) = range(20)
ACCOUNT_WORDS = 20

# Of queue pairs.
(
    Q_DATA,
    Q_HELD,
    Q_FRAMES,
    Q_HEADERS,
    Q_ROWS,
    Q_PLACE,
    Q_FOUND,
    Q_SLOTS,
    Q_KEYS,
    Q_STATS,
    Q_OPCODES,
    Q_SIZES,
    Q_CAPACITY,
    Q_PAIRS,
    Q_COUNTS,
    Q_KEY,
) = range(16)
PAIR_WORDS = 16

# Of sightings.
S_FRAMES, S_HEADERS, S_ROWS, S_PLACE, S_FOUND, S_MASK, S_OUT, S_OUT_ROWS, S_USED = range(9)
SIGHT_WORDS = 9

# Of packing rows of bins, and of unpacking the first WANTED columns of them; COLUMN_ROWS is how long columns are.
K_COLUMNS, K_COLUMN_ROWS, K_COUNT, K_DATA, K_BYTES, K_WANTED = range(6)
PACK_WORDS = 6

# Of laying out bins: COUNT rows as accounting has them, in columns that are LENGTH long, and which flow each row of the
# directions' table is (FLOW_OF).
(
    L_ROWS,
    L_LENGTH,
    L_COUNT,
    L_FLOW_OF,
    L_TABLE_ROWS,
    L_CHOSEN,
    L_FLOWS,
    L_OTHERS,
    L_WIDTH_NS,
    L_OUT,
    L_CAPACITY,
    L_STATE,
    L_COUNTS,
) = range(13)
LAY_WORDS = 13

_AT_ONCE = 64  # packets that go through all stages
_LINES = 16  # words of two lines of a cache, which processors fetch together


def survey(pointer: Any) -> int:
    """Find and decode the packets of a piece of a file, and gather what accounting reads of each."""
    p = words(address(pointer), PIECE_WORDS)
    data = octets(p[DATA], p[HELD])
    for word in range(WHY, PIECE_WORDS):
        p[word] = 0
    last_ns = p[BEFORE_NS]
    # Some at a time, so that what one stage writes is in the fastest cache for the next.
    why = framing.FULL
    while why == framing.FULL and p[FOUND] < p[ROWS]:
        before = p[FOUND]
        frames = table(
            p[FRAMES] + 8 * framing.FRAME_WORDS * before, min(_AT_ONCE, p[ROWS] - before), framing.FRAME_WORDS
        )
        why, found = _framed(p, data, last_ns, frames)
        if found == 0:
            break
        row = table(p[HEADERS] + 8 * decoding.HEADER_WORDS * before, found, decoding.HEADER_WORDS)
        decoding.decode(data, frames, found, row, p[UNDECODED : INNER + 1])
        _add_up(frames, found, p)
        packets = table(p[PACKETS] + 8 * accounting.PACKET_WORDS * before, found, accounting.PACKET_WORDS)
        accounting.gather(frames, row, found, packets)
        p[FOUND] += found
        last_ns = p[CLOSING_NS]
    p[WHY] = why
    return p[FOUND]


@inline
def _framed(p: Any, data: Any, last_ns: int, frames: Any) -> tuple[int, int]:
    """Find the next packets of a piece; return why that ended, and how many there are."""
    big = p[BIG] != 0
    if p[NG]:
        interfaces = table(p[INTERFACES], p[INTERFACE_ROWS], framing.INTERFACE_WORDS)
        why, at, found = framing.pcapng_packets(
            data, p[END], p[HELD], big, interfaces, p[KNOWN], p[OFFSET_NS], last_ns, frames, p[ODD:PIECE_WORDS]
        )
    else:
        why, at, found = framing.pcap_packets(
            data,
            p[END],
            p[HELD],
            big,
            p[NANOS],
            p[MOST],
            p[LINK],
            p[HEAD],
            p[ORDER],
            p[OFFSET_NS],
            frames,
            p[ODD:PIECE_WORDS],
        )
    p[END] = at
    return why, found


@inline
def _add_up(frames: Any, found: int, p: Any) -> None:
    """Add the next packets of a piece to its totals."""
    wire, kept, snapped, backwards = p[WIRE], p[KEPT], p[SNAPPED], p[BACKWARDS]
    if p[FOUND] == 0:
        p[OPENING_NS] = p[CLOSING_NS] = p[LEAST_NS] = p[MOST_NS] = frames[0, framing.STAMP]
    least, most, last = p[LEAST_NS], p[MOST_NS], p[CLOSING_NS]
    for number in range(found):
        stamp, size = frames[number, framing.STAMP], frames[number, framing.END] - frames[number, framing.BEGIN]
        wire += frames[number, framing.WIRE]
        kept += size
        snapped += size < frames[number, framing.WIRE]
        backwards += stamp < last
        least, most, last = min(least, stamp), max(most, stamp), stamp
    p[WIRE], p[KEPT], p[SNAPPED], p[BACKWARDS] = wire, kept, snapped, backwards
    p[CLOSING_NS], p[LEAST_NS], p[MOST_NS] = last, least, most


def account(pointer: Any) -> int:
    """Account for the packets of a piece; return why it ended."""
    p = words(address(pointer), ACCOUNT_WORDS)
    rows = p[A_CONVERSATIONS]
    why, place = accounting.account(
        table(p[A_PACKETS], p[A_FOUND], accounting.PACKET_WORDS),
        table(p[A_HEADERS], p[A_ROWS], decoding.HEADER_WORDS),
        p[A_PLACE],
        p[A_FOUND],
        p[A_BIN_NS],
        p[A_SEGMENT],
        p[A_MOST],
        words(p[A_SLOTS], p[A_SLOT_COUNT]),
        table(p[A_KEYS], rows, accounting.KEY_WORDS),
        table(p[A_SHARED], rows, segments.CONVERSATION_WORDS),
        table(p[A_DIRECTIONS], 2 * rows, segments.DIRECTION_WORDS),
        words(p[A_HOLES], p[A_HOLE_WORDS]),
        words(p[A_ACTIVE], 2 * rows),
        words(p[A_STATE], accounting.STATE_WORDS),
        table(p[A_OUT], accounting.BIN_WORDS, p[A_OUT_ROWS]),
    )
    p[A_PLACE] = place
    return why


def close_bins(pointer: Any) -> int:
    """Hand out the open bins, as far as there is room; return how many stay open."""
    p = words(address(pointer), ACCOUNT_WORDS)
    rows, state = p[A_CONVERSATIONS], words(p[A_STATE], accounting.STATE_WORDS)
    accounting.hand_out_bins(
        table(p[A_DIRECTIONS], 2 * rows, segments.DIRECTION_WORDS),
        words(p[A_ACTIVE], 2 * rows),
        state,
        state[accounting.BIN_BEGIN] // p[A_BIN_NS],
        table(p[A_OUT], accounting.BIN_WORDS, p[A_OUT_ROWS]),
    )
    return state[accounting.ACTIVE]


def rehash(pointer: Any) -> int:
    """Fill empty slots from the known conversations."""
    p = words(address(pointer), ACCOUNT_WORDS)
    state = words(p[A_STATE], accounting.STATE_WORDS)
    keys = table(p[A_KEYS], p[A_CONVERSATIONS], accounting.KEY_WORDS)
    accounting.rehash(words(p[A_SLOTS], p[A_SLOT_COUNT]), keys, state[accounting.CONVERSATIONS])
    return 0


def account_pairs(pointer: Any) -> int:
    """Account for the RoCEv2 packets of a piece."""
    p = words(address(pointer), PAIR_WORDS)
    rows = p[Q_CAPACITY]
    place, pairs = queuepairs.account(
        octets(p[Q_DATA], p[Q_HELD]),
        table(p[Q_FRAMES], p[Q_ROWS], framing.FRAME_WORDS),
        table(p[Q_HEADERS], p[Q_ROWS], decoding.HEADER_WORDS),
        p[Q_PLACE],
        p[Q_FOUND],
        words(p[Q_SLOTS], 2 * rows),
        table(p[Q_KEYS], rows, queuepairs.KEY_WORDS),
        table(p[Q_STATS], rows, queuepairs.STAT_WORDS),
        table(p[Q_OPCODES], rows, queuepairs.OPCODES),
        table(p[Q_SIZES], rows, queuepairs.SIZE_BINS),
        p[Q_PAIRS],
        words(p[Q_COUNTS], 2),
        words(p[Q_KEY], queuepairs.KEY_WORDS),
    )
    p[Q_PLACE], p[Q_PAIRS] = place, pairs
    return 0


def rehash_pairs(pointer: Any) -> int:
    """Fill empty slots from the known queue pairs."""
    p = words(address(pointer), PAIR_WORDS)
    keys = table(p[Q_KEYS], p[Q_CAPACITY], queuepairs.KEY_WORDS)
    queuepairs.rehash(words(p[Q_SLOTS], 2 * p[Q_CAPACITY]), keys, p[Q_PAIRS])
    return 0


def sight(pointer: Any) -> int:
    """Sample when single packets of a piece were seen; return how many rows there are."""
    p = words(address(pointer), SIGHT_WORDS)
    place, used = sightings.sight(
        table(p[S_FRAMES], p[S_ROWS], framing.FRAME_WORDS),
        table(p[S_HEADERS], p[S_ROWS], decoding.HEADER_WORDS),
        p[S_PLACE],
        p[S_FOUND],
        p[S_MASK],
        table(p[S_OUT], p[S_OUT_ROWS], sightings.WORDS),
        p[S_USED],
    )
    p[S_PLACE], p[S_USED] = place, used
    return used


def pack(pointer: Any) -> int:
    """Pack rows of bins; return the bytes that they take."""
    p = words(address(pointer), PACK_WORDS)
    return bin_rows.pack(
        table(p[K_COLUMNS], accounting.BIN_WORDS, p[K_COLUMN_ROWS]), p[K_COUNT], octets(p[K_DATA], p[K_BYTES])
    )


def unpack(pointer: Any) -> int:
    """Unpack rows of bins; return the bytes that they took."""
    p = words(address(pointer), PACK_WORDS)
    return bin_rows.unpack(
        octets(p[K_DATA], p[K_BYTES]),
        table(p[K_COLUMNS], accounting.BIN_WORDS, p[K_COLUMN_ROWS]),
        p[K_COUNT],
        p[K_WANTED],
    )


def lay(pointer: Any) -> int:
    """Lay out a part of the rows of bins in columns."""
    p = words(address(pointer), LAY_WORDS)
    bin_rows.lay(
        table(p[L_ROWS], accounting.BIN_WORDS, p[L_LENGTH]),
        p[L_COUNT],
        words(p[L_FLOW_OF], p[L_TABLE_ROWS]),
        words(p[L_CHOSEN], p[L_FLOWS]),
        p[L_OTHERS],
        p[L_WIDTH_NS],
        table(p[L_OUT], bin_rows.COLUMNS, p[L_CAPACITY]),
        words(p[L_STATE], bin_rows.STATE_WORDS),
    )
    return 0


def count_bins(pointer: Any) -> int:
    """Count a part of the rows of bins by flow."""
    p = words(address(pointer), LAY_WORDS)
    bin_rows.count_rows(
        table(p[L_ROWS], accounting.BIN_WORDS, p[L_LENGTH]),
        p[L_COUNT],
        words(p[L_FLOW_OF], p[L_TABLE_ROWS]),
        words(p[L_COUNTS], p[L_FLOWS]),
    )
    return 0


def address_of(array: Any) -> int:
    """Return the address of an array's memory."""
    found: int = array.__array_interface__["data"][0]
    return found


def layout(size: int) -> Any:
    """Allocate words for a call in cache lines of their own, since each thread writes to its own."""
    whole = np.zeros(-(-size // _LINES) * _LINES + _LINES, np.int64)
    begin = -(address_of(whole) // 8) % _LINES
    return whole[begin : begin + size]
