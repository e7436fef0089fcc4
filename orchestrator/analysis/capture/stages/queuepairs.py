"""Account for RoCEv2 queue pairs: opcodes, messages and their sizes (compiled, part of the capture reader)."""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: C901, PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import stage
from orchestrator.analysis.capture.stages.decoding import (
    DST_HIGH,
    DST_LOW,
    PAYLOAD,
    ROCE_PORT,
    SRC_HIGH,
    SRC_LOW,
    TRANSPORT,
    VIA,
    WORD,
)
from orchestrator.analysis.capture.stages.framing import END, STAMP
from orchestrator.analysis.capture.stages.framing import WIRE as ON_WIRE
from orchestrator.analysis.capture.stages.loads import be32

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# Identity: the addresses of both ends (two words each), scope << 32 | destination queue pair, VIA.
KEY_WORDS = 6
(
    PACKETS,
    WIRE,
    PAYLOAD_SUM,
    FIRST,
    LAST,
    MESSAGES,
    MESSAGE_BYTES,
    OUT_OF_SEQUENCE,
    EXPECTED,
    ASKED,
    SENT,
    ANSWERED,  # bytes of the message under way: by its RDMA header, of requests, of responses; -1: none
    NEGATIVE,
) = range(13)
STAT_WORDS = 13
OPCODES = 256
SIZE_BINS = 256
ACKNOWLEDGE = 17  # the low five bits of the opcode

_FIRST_ROWS = 1 << 6
MOST_ROWS = 1 << 16
_NUMBERS = 1 << 24  # packet sequence numbers wrap
_UDP = 17


def size_edges() -> Ints:
    """Return where each class of message sizes begins: every byte below 8, then eight classes an octave."""
    classes = np.arange(SIZE_BINS)
    octave = np.maximum(0, classes // 8 - 1)
    return np.where(classes < 8, classes, (8 + classes % 8) << octave).astype(np.int64)


@stage
def _size_class(size: int) -> int:
    octave = 0
    while size >> octave >= 16:
        octave += 1
    return size if size < 8 else min(SIZE_BINS - 1, 8 * octave + (size >> octave))


@stage
def _finish(stat: Ints, sizes: Ints, size: int) -> None:
    stat[MESSAGES] += 1
    stat[MESSAGE_BYTES] += size
    sizes[_size_class(size)] += 1


@stage
def _extended_bytes(service: int, kind: int) -> int:
    """Return the bytes of extended transport headers (InfiniBand Specification 1.4, chapters 9.2 and 9.4)."""
    size = 0
    if service == 3:
        size += 8
    elif service == 2:
        size += 4 if kind >= 13 and kind <= 18 else 12
    elif service == 5 and (kind < 13 or kind > 18):
        size += 4
    if kind in (6, 10, 11, 12):
        size += 16
    if kind in (3, 5, 9, 11, 13, 15, 16, 17, 18, 22, 23):
        size += 4
    if kind in (19, 20):
        size += 28
    elif kind == 18:
        size += 8
    return size


@stage
def _message(stat: Ints, sizes: Ints, kind: int, payload: int, asked: int) -> None:
    """Follow a message through its packets. `asked`: the length that an RDMA header gives, or -1."""
    if kind in (0, 6):
        stat[SENT], stat[ASKED] = payload, asked
    elif kind in (1, 7) and stat[SENT] >= 0:
        stat[SENT] += payload
    elif kind in (2, 3, 8, 9, 22) and stat[SENT] >= 0:
        _finish(stat, sizes, stat[ASKED] if stat[ASKED] >= 0 else stat[SENT] + payload)
        stat[SENT] = -1
    elif kind in (4, 5, 10, 11, 23):
        _finish(stat, sizes, asked if asked >= 0 else payload)
    elif kind == 13:
        stat[ANSWERED] = payload
    elif kind == 14 and stat[ANSWERED] >= 0:
        stat[ANSWERED] += payload
    elif kind == 15 and stat[ANSWERED] >= 0:
        _finish(stat, sizes, stat[ANSWERED] + payload)
        stat[ANSWERED] = -1
    elif kind == 16:
        _finish(stat, sizes, payload)


@stage
def _row(slots: Ints, keys: Ints, key: Ints) -> int:
    """Return the slot of the queue pair in the open hash table, or the free slot where it belongs."""
    mixed = np.uint64(1)
    for word in range(KEY_WORDS):
        mixed = (mixed ^ np.uint64(key[word])) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mask = slots.shape[0] - 1
    at = np.int64(mixed & np.uint64(mask))
    while slots[at] > 0:
        row = slots[at] - 1
        same = True
        for word in range(KEY_WORDS):
            same &= keys[row, word] == key[word]
        if same:
            break
        at = (at + 1) & mask
    return at


@stage
def rehash(slots: Ints, keys: Ints, rows: int) -> None:
    """Fill empty slots from the known queue pairs."""
    for row in range(rows):
        slots[_row(slots, keys, keys[row])] = row + 1


@stage
def account(
    data: Bytes,
    frames: Ints,
    headers: Ints,
    begin: int,
    found: int,
    slots: Ints,
    keys: Ints,
    stats: Ints,
    opcodes: Ints,
    sizes: Ints,
    rows: int,
    counts: Ints,
    key: Ints,
) -> tuple[int, int]:
    """Account for the RoCEv2 packets of a batch; return (the packet it ended before, rows).

    It ends early when there is no free row. `counts`: packets whose base transport header was not captured, and
    packets of queue pairs beyond MOST_ROWS. `key`: room for one.
    """
    for number in range(begin, found):
        header = headers[number]
        word = header[WORD]
        if (word >> 32) & 0xFFFF != _UDP or word & 0xFFFF != ROCE_PORT:
            continue
        at, end = header[TRANSPORT] + 8, frames[number, END]
        if at + 12 > end:
            counts[0] += 1
            continue
        opcode = np.int64(data[at])
        service, kind = opcode >> 5, opcode & 31
        key[0], key[1], key[2], key[3] = header[SRC_HIGH], header[SRC_LOW], header[DST_HIGH], header[DST_LOW]
        key[5] = header[VIA]
        key[4] = (word >> 48) << 32 | be32(data, at + 4) & 0xFFFFFF
        place = _row(slots, keys, key)
        row = slots[place] - 1
        stamp = frames[number, STAMP]
        if row < 0:
            if rows == keys.shape[0]:
                if rows >= MOST_ROWS:
                    counts[1] += 1
                    continue
                return number, rows
            row = rows
            rows += 1
            slots[place] = row + 1
            for one in range(KEY_WORDS):
                keys[row, one] = key[one]
            stats[row, FIRST] = stats[row, LAST] = stamp
            stats[row, EXPECTED] = stats[row, SENT] = stats[row, ASKED] = stats[row, ANSWERED] = -1
        stat = stats[row]
        padding = np.int64(data[at + 1] >> 4) & 3
        payload = max(0, header[PAYLOAD] - 12 - _extended_bytes(service, kind) - padding - 4)
        stat[PACKETS] += 1
        stat[WIRE] += frames[number, ON_WIRE]
        stat[FIRST] = min(stat[FIRST], stamp)
        stat[LAST] = max(stat[LAST], stamp)
        opcodes[row, opcode] += 1
        if service > 5 or service == 4:  # congestion notifications, and what vendors made
            continue
        stat[PAYLOAD_SUM] += payload
        asked = -1
        behind = at + 12 + (4 if service == 5 else 0)
        if kind in (6, 10, 11) and service not in (2, 3) and behind + 16 <= end:
            asked = be32(data, behind + 12)
        _message(stat, sizes[row], kind, payload, asked)
        if kind == ACKNOWLEDGE and behind + 4 <= end:
            stat[NEGATIVE] += (data[behind] >> 5) & 3 in (1, 3)
        if kind < 13 or kind > 18:
            sequence = be32(data, at + 8) & (_NUMBERS - 1)
            stat[OUT_OF_SEQUENCE] += stat[EXPECTED] >= 0 and stat[EXPECTED] != sequence
            # The answer to a read takes as many numbers as it has packets, which the request does not tell.
            stat[EXPECTED] = -1 if kind == 12 else (sequence + 1) % _NUMBERS
    return found, rows
