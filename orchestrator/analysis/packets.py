"""Compiled core of the capture reader: walks packet records, decodes headers, keeps a row a 5-tuple and direction."""

# Compiled code takes no keyword-only arguments, and for mypy its integers are NumPy's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# A flow's identity, five words: source and destination (two words each), and SCOPE: how to read them.
KEY_WORDS = 5
SCOPE_V4, SCOPE_V6, SCOPE_LINK = 4, 6, 2  # IPv4, IPv6, or neither: then the two addresses are hardware addresses
# SCOPE word: scope << 48 | protocol or ethertype << 32 | source port << 16 | destination port

# A flow's figures.
(
    PACKETS, WIRE, PAYLOAD, REPEATED, FIRST, LAST, SRC_MAC, DST_MAC,
    HIGHEST, HOLES, HOLE_ROW, FORGOTTEN, UNSURE, BIN, BIN_PACKETS, BIN_WIRE, BIN_PAYLOAD, BIN_REPEATED,
) = range(18)  # fmt: skip
STAT_WORDS = 18

# Ranges of sequence numbers below a flow's highest that were never captured, in order, each as its begin and its end.
# A flow has a row of them while it has any (HOLE_ROW; 0: none). The first word of a free row is the next free row, and
# that of row 0 the first one. FORGOTTEN: below it holes were dropped; UNSURE: bytes called repeated there.
MOST_HOLES = 256

# One closed bin of one flow: flow, bin, packets, wire bytes, payload bytes, repeated bytes.
BIN_WORDS = 6

# Why the walk over a buffer ended.
MORE, CORRUPT, TABLE_FULL, BINS_FULL, HOLES_FULL = 0, 1, 2, 3, 4

_SEQUENCE_SPACE = 1 << 32
_MOST_TAGS = 4
_MOST_EXTENSIONS = 8
_RECORD_HEADER = 16


@njit(cache=True, inline="never")
def _be16(data: Bytes, at: int) -> int:
    return (np.int64(data[at]) << 8) | np.int64(data[at + 1])


@njit(cache=True, inline="never")
def _be32(data: Bytes, at: int) -> int:
    return (_be16(data, at) << 16) | _be16(data, at + 2)


@njit(cache=True, inline="never")
def _be64(data: Bytes, at: int) -> int:
    return (_be32(data, at) << 32) | _be32(data, at + 4)


@njit(cache=True, inline="never")
def _host32(data: Bytes, at: int, big: bool) -> int:
    if big:
        return _be32(data, at)
    low = np.int64(data[at]) | (np.int64(data[at + 1]) << 8)
    return low | (np.int64(data[at + 2]) << 16) | (np.int64(data[at + 3]) << 24)


@njit(cache=True, inline="never")
def _slot(slots: Ints, keys: Ints, key: Ints) -> int:
    """Where the key is in the open hash table, or the free place where it belongs."""
    mixed = np.uint64(14695981039346656037)
    for word in range(KEY_WORDS):
        mixed = (mixed ^ np.uint64(key[word])) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mask = np.int64(slots.shape[0] - 1)
    at = np.int64(mixed & np.uint64(mask))
    while slots[at] >= 0:
        row = slots[at]
        if (
            keys[row, 4] == key[4]
            and keys[row, 0] == key[0]
            and keys[row, 1] == key[1]
            and keys[row, 2] == key[2]
            and keys[row, 3] == key[3]
        ):
            return at
        at = (at + 1) & mask
    return at


@njit(cache=True)
def rehash(slots: Ints, keys: Ints, flows: int) -> None:
    """Fill empty slots from the flows that are known."""
    slots[:] = -1
    for row in range(flows):
        slots[_slot(slots, keys, keys[row])] = row


@njit(cache=True, inline="never")
def _network(data: Bytes, start: int, end: int, wire: int, key: Ints, seen: Ints) -> int:
    """Read IP at `start`: fills the addresses of `key`; returns where the transport is, or -1 when it is no whole IP.

    `seen` gets: protocol, bytes from the transport header on, whether a transport header is there (a later fragment
    has none), and at 7 the bytes of the whole packet.
    """
    version = data[start] >> 4 if start < end else 0
    if version == 4 and start + 20 <= end:
        header = np.int64(data[start] & 15) * 4
        total = _be16(data, start + 2)
        # Segmentation offload can leave the total at zero for packets over 64 kB (BIG TCP).
        seen[7] = total if total > 0 else wire
        seen[1] = seen[7] - header
        seen[0] = data[start + 9]
        seen[2] = 1 if _be16(data, start + 6) & 0x1FFF == 0 else 0
        key[0], key[1] = 0, _be32(data, start + 12)
        key[2], key[3] = 0, _be32(data, start + 16)
        key[4] = SCOPE_V4 << 48
        return start + header if header >= 20 and seen[1] >= 0 else -1
    if version == 6 and start + 40 <= end:
        length = _be16(data, start + 4)
        seen[7] = length + 40 if length > 0 else wire
        seen[1] = seen[7] - 40
        seen[0] = data[start + 6]
        seen[2] = 1
        key[0], key[1] = _be64(data, start + 8), _be64(data, start + 16)
        key[2], key[3] = _be64(data, start + 24), _be64(data, start + 32)
        key[4] = SCOPE_V6 << 48
        return _extensions(data, start + 40, end, seen)
    return -1


@njit(cache=True, inline="never")
def _extensions(data: Bytes, start: int, end: int, seen: Ints) -> int:
    """Step over IPv6's extension headers (RFC 8200, section 4), as many as the snap length kept."""
    at = start
    for _ in range(_MOST_EXTENSIONS):
        kind = seen[0]
        if kind not in (0, 43, 44, 51, 60) or at + 8 > end:
            break
        if kind == 44:
            size = 8
            if _be16(data, at + 2) >> 3 != 0:
                seen[2] = 0
        elif kind == 51:
            size = (np.int64(data[at + 1]) + 2) * 4
        else:
            size = (np.int64(data[at + 1]) + 1) * 8
        seen[0] = data[at]
        seen[1] = max(0, seen[1] - size)
        at += size
        if seen[2] == 0:
            break
    return at


@njit(cache=True, inline="never")
def _ethernet(data: Bytes, start: int, end: int, key: Ints, seen: Ints) -> int:
    """Read Ethernet and its VLAN tags; returns where the network header is, or -1; `seen`: ethertype, both MACs."""
    seen[:] = 0
    if start + 14 > end:
        return -1
    seen[4] = (_be16(data, start) << 32) | _be32(data, start + 2)
    seen[3] = (_be16(data, start + 6) << 32) | _be32(data, start + 8)
    kind = _be16(data, start + 12)
    at = start + 14
    for _ in range(_MOST_TAGS):
        if kind not in (0x8100, 0x88A8) or at + 4 > end:
            break
        kind = _be16(data, at + 2)
        at += 4
    key[0], key[1], key[2], key[3] = 0, seen[3], 0, seen[4]
    key[4] = (SCOPE_LINK << 48) | (kind << 32)
    return at if kind in (0x0800, 0x86DD) else -1


@njit(cache=True, inline="never")
def _decode(data: Bytes, start: int, end: int, wire: int, key: Ints, seen: Ints) -> None:
    """Fill `key` and `seen` from one frame of which start..end was captured and which had `wire` bytes.

    `seen`: 0 protocol, 1 payload bytes, 2 whether there is a TCP sequence number, 3 and 4 the hardware addresses
    (source, destination), 5 the sequence number, 6 whether it opens a connection, 7 bytes of the IP packet (0: it is
    none), 8 bytes of the headers before it.
    """
    at = _ethernet(data, start, end, key, seen)
    if at >= 0:
        link = key[4]
        seen[8] = at - start
        at = _network(data, at, end, wire - (at - start), key, seen)
        if at < 0:
            key[0], key[1], key[2], key[3], key[4] = 0, seen[3], 0, seen[4], link
    if at < 0:
        seen[1] = 0
        seen[2] = 0
        seen[7] = 0
        return
    key[4] |= seen[0] << 32
    has_header = seen[2] == 1
    seen[2] = 0
    if not has_header or seen[0] not in (6, 17) or at + 4 > end:
        return
    key[4] |= (_be16(data, at) << 16) | _be16(data, at + 2)
    if seen[0] == 17:
        seen[1] = max(0, seen[1] - 8)
    elif at + 14 <= end:
        seen[1] = max(0, seen[1] - np.int64(data[at + 12] >> 4) * 4)
        seen[5] = _be32(data, at + 4)
        seen[6] = (data[at + 13] >> 1) & 1
        seen[2] = 1


@njit(cache=True, inline="never")
def _add_hole(stat: Ints, holes: Ints, at: int, low: int, high: int) -> None:
    """Put low..high in as hole `at` of the flow; beyond MOST_HOLES the lowest, which is the oldest, is forgotten."""
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


@njit(cache=True, inline="never")
def _remove_hole(stat: Ints, holes: Ints, at: int) -> None:
    mine = holes[stat[HOLE_ROW]]
    for word in range(2 * at, 2 * stat[HOLES] - 2):
        mine[word] = mine[word + 2]
    stat[HOLES] -= 1
    if stat[HOLES] == 0:
        _give_back(stat, holes)


@njit(cache=True, inline="never")
def _give_back(stat: Ints, holes: Ints) -> None:
    """The flow has no hole any more: another one may have its row."""
    row = stat[HOLE_ROW]
    if row > 0:
        holes[row, 0] = holes[0, 0]
        holes[0, 0] = row
    stat[HOLE_ROW] = stat[HOLES] = 0


@njit(cache=True, inline="never")
def _fill(stat: Ints, holes: Ints, begin: int, end: int) -> int:
    """Close what begin..end covers of the flow's holes; returns how many bytes that was."""
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


@njit(cache=True, inline="never")
def _repeated(stat: Ints, holes: Ints, seen: Ints) -> int:
    """Payload bytes whose sequence numbers this flow has shown before (RFC 9293, 3.4).

    Below the highest number that was seen, all was seen but for the holes: a segment that was lost before it came by
    here is new when it is sent again. Positions are sequence numbers that do not wrap; 0: none was seen yet.
    """
    payload, sequence = seen[1], seen[5]
    if seen[6] == 1:
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


@njit(cache=True, inline="never")
def _on_wire(wire: int, seen: Ints, segment: int) -> int:
    """Layer-2 bytes of the frames that a device cuts a packet into, which all repeat its headers.

    Within them no IP packet is longer than `segment`. Where `segment` is 0 nothing cuts packets.
    """
    payload = seen[1]
    headers = seen[7] - payload
    if segment == 0 or seen[7] <= segment or headers >= segment:
        return wire
    room = segment - headers
    return payload + (payload + room - 1) // room * (seen[8] + headers)


@njit(cache=True, inline="never")
def _close_bin(stat: Ints, row: int, out: Ints, used: int) -> int:
    """Hand out what the flow's open bin holds; returns how many are handed out by now."""
    if stat[BIN_PACKETS] == 0:
        return used
    out[used, 0] = row
    out[used, 1] = stat[BIN]
    for word in range(4):
        out[used, 2 + word] = stat[BIN_PACKETS + word]
        stat[BIN_PACKETS + word] = 0
    return used + 1


@njit(cache=True)
def close_bins(stats: Ints, flows: int, out: Ints) -> int:
    """Hand out every open bin; `out` has a row for each flow."""
    used = 0
    for row in range(flows):
        used = _close_bin(stats[row], row, out, used)
    return used


@njit(cache=True)
def walk(
    data: Bytes, size: int, big: bool, nanos: int, most: int, offset_ns: int, bin_ns: int, segment: int,
    slots: Ints, keys: Ints, stats: Ints, holes: Ints, flows: int, out: Ints,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """Account for the whole records of classic pcap in data[:size].

    `nanos`: nanoseconds in a unit of the record's fraction of a second. `most`: a captured length above it is no
    record. `segment`: the longest IP packet on the wire, 0 where captured packets are what is on it. Returns (why it
    ended, bytes used, packets, flows, bins handed out); all else is in `keys`, `stats`, `holes`, `out`.
    """
    at, packets, used = 0, 0, 0
    key = np.zeros(KEY_WORDS, np.int64)
    seen = np.zeros(9, np.int64)
    while at + _RECORD_HEADER <= size:
        fraction = _host32(data, at + 4, big)
        kept = _host32(data, at + 8, big)
        wire = _host32(data, at + 12, big)
        if kept > most or kept > wire or fraction * nanos >= 1_000_000_000:
            return CORRUPT, at, packets, flows, used
        start = at + _RECORD_HEADER
        if start + kept > size:
            break
        if used >= out.shape[0]:
            return BINS_FULL, at, packets, flows, used
        if holes[0, 0] == 0:
            return HOLES_FULL, at, packets, flows, used
        key[:] = 0
        _decode(data, start, start + kept, wire, key, seen)
        place = _slot(slots, keys, key)
        row = slots[place]
        stamp = _host32(data, at, big) * 1_000_000_000 + fraction * nanos + offset_ns
        if row < 0:
            if flows >= keys.shape[0]:
                return TABLE_FULL, at, packets, flows, used
            row = flows
            slots[place] = row
            keys[row] = key
            stats[row] = 0
            stats[row, FIRST] = stats[row, LAST] = stamp
            stats[row, SRC_MAC], stats[row, DST_MAC] = seen[3], seen[4]
            flows += 1
        stat = stats[row]
        # Most segments follow the one before: to see it here spares a call, and with it a fifth of the time.
        follows = seen[2] - seen[6] == 1 and stat[HIGHEST] > 0 and stat[HIGHEST] & (_SEQUENCE_SPACE - 1) == seen[5]
        stat[HIGHEST] += seen[1] if follows else 0
        again = _repeated(stat, holes, seen) if seen[2] == 1 and not follows else 0
        wire = _on_wire(wire, seen, segment)
        bin_index = stamp // bin_ns
        if bin_index != stat[BIN]:
            used = _close_bin(stat, row, out, used)
            stat[BIN] = bin_index
        stat[FIRST] = min(stat[FIRST], stamp)
        stat[LAST] = max(stat[LAST], stamp)
        stat[PACKETS] += 1
        stat[WIRE] += wire
        stat[PAYLOAD] += seen[1]
        stat[REPEATED] += again
        stat[BIN_PACKETS] += 1
        stat[BIN_WIRE] += wire
        stat[BIN_PAYLOAD] += seen[1]
        stat[BIN_REPEATED] += again
        packets += 1
        at = start + kept
    return MORE, at, packets, flows, used


def empty_table(rows: int) -> tuple[Any, Any, Any]:
    """Slots, keys and figures for `rows` flows (a power of two); slots are twice as many, so that probes stay short."""
    slots = np.full(2 * rows, -1, np.int64)
    return slots, np.zeros((rows, KEY_WORDS), np.int64), np.zeros((rows, STAT_WORDS), np.int64)


def more_holes(holes: Ints, rows: int) -> Ints:
    """The same rows of holes with `rows` free ones behind them, for when none is free (or there are none yet)."""
    had = max(1, len(holes))
    grown = np.zeros((had + rows, 2 * (MOST_HOLES + 1)), np.int64)
    grown[: len(holes)] = holes
    grown[had:-1, 0] = np.arange(had + 1, had + rows)
    grown[0, 0] = had
    return grown
