"""Find the packets in a buffer of a pcap or pcapng file: the compiled first stage of the capture reader."""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: C901, PLR0912, PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import inline, stage
from orchestrator.analysis.capture.stages.loads import be16, be32, le16, le32

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# One packet found: nanoseconds, where its bytes begin and end in the buffer, bytes on the wire, and the number of its
# interface << 16 | link type.
STAMP, BEGIN, END, WIRE, LINK = range(5)
FRAME_WORDS = 5

# One interface of a pcapng section: LINK as of a packet, snap length, and how its stamps become nanoseconds:
# stamp * MULTIPLY // DIVIDE, or binary fractions of SHIFT bits where that is not -1; plus OFFSET nanoseconds.
(IF_LINK, IF_SNAP, IF_MULTIPLY, IF_DIVIDE, IF_SHIFT, IF_OFFSET) = range(6)
INTERFACE_WORDS = 6

# Why a walk ended: it needs more bytes, there is room for no more packets, what stands there is no record, or it is a
# block that the caller has to look at (a section or an interface, or one too long for the buffer).
MORE, FULL, CORRUPT, BLOCK = range(4)

# Interfaces of which a file says the kernel's index have this bit in their number, above the index's lower bits.
INDEXED = 1 << 18

# What a walk counts beside its packets: blocks of unknown kinds; packet blocks whose lengths contradict each other, and
# those of interfaces that are not described, which are both left out; packets without a stamp of their own, of which
# more was kept than there was on the wire, and whose fraction of a second is a second or more; records of nothing but
# zeros, which are left out; packets whose stamps are beyond those that are told apart.
UNKNOWN, DAMAGED, UNDESCRIBED, STAMPLESS, LONGER, CARRIED, ZEROS, BEYOND = range(8)
ODDITIES = 8

# How classic pcap's two lengths stand in a record: captured before original, the other way round (before version 2.3),
# or the smaller one is what was captured (version 2.3).
CAPTURED_FIRST, ORIGINAL_FIRST, EITHER = range(3)

LONGEST_KEPT = 262_144  # bytes of a packet, what libpcap itself writes at most
LONGEST_BLOCK = LONGEST_KEPT + 65_536  # with its header and options
SECTION, INTERFACE = 0x0A0D0D0A, 1
_OLD_PACKET, _SIMPLE_PACKET, _PACKET = 2, 3, 6
_NAMES, _STATISTICS, _JOURNAL, _SECRETS, _CUSTOM = 4, 5, 9, 10, 0xBAD  # blocks that hold no packets
_UNCOPIED = ~0x40000000  # without the bit that forbids programs to copy a custom block
_LATEST_NS = (1 << 62) - 1  # in 2116; two stamps between here and _EARLIEST_NS differ by no more than 63 bits
_EARLIEST_NS = -_LATEST_NS
_SECOND = 1_000_000_000


@inline
def _record(data: Bytes, at: int, big: bool, order: int) -> tuple[int, int, int, int]:
    """Return seconds, fraction, captured and original length of a record of classic pcap."""
    if big:
        seconds, fraction, kept, wire = be32(data, at), be32(data, at + 4), be32(data, at + 8), be32(data, at + 12)
    else:
        seconds, fraction, kept, wire = le32(data, at), le32(data, at + 4), le32(data, at + 8), le32(data, at + 12)
    if order == ORIGINAL_FIRST or (order == EITHER and kept > wire):
        kept, wire = wire, kept
    return seconds, fraction, kept, wire


@inline
def _within(stamp: int, counts: Ints) -> int:
    """Clamp a stamp to the range of instants that the reader represents."""
    if stamp > _LATEST_NS or stamp < _EARLIEST_NS:
        counts[BEYOND] += 1
        return min(max(stamp, _EARLIEST_NS), _LATEST_NS)
    return stamp


@stage
def pcap_packets(
    data: Bytes,
    at: int,
    size: int,
    big: bool,
    nanos: int,
    most: int,
    link: int,
    head: int,
    order: int,
    offset_ns: int,
    frames: Ints,
    counts: Ints,
) -> tuple[int, int, int]:
    """Find the records of classic pcap that are whole in data[at:size].

    Return (why it ended, where, packets in `frames`). `nanos`: nanoseconds in a unit of the record's fraction of a
    second. `most`: a captured length above it is no record (draft-ietf-opsawg-pcap, section 5); whatever else a record
    says is read on over, as libpcap does. `head`: bytes of a record's header; of 24 the fifth word is an interface's
    index. `order`: of the two lengths.
    """
    found = 0
    most_found = frames.shape[0]
    while at + head <= size:
        if found == most_found:
            return FULL, at, found
        seconds, fraction, kept, wire = _record(data, at, big, order)
        if kept > most:
            return CORRUPT, at, found
        end = at + head + kept
        if end > size:
            break
        if kept > wire:
            wire = kept
            counts[LONGER] += 1
        elif wire == 0 and seconds == 0 and fraction == 0:
            counts[ZEROS] += 1
            at = end
            continue
        fraction *= nanos
        counts[CARRIED] += fraction >= _SECOND
        frames[found, STAMP] = _within(seconds * _SECOND + fraction + offset_ns, counts)
        frames[found, BEGIN] = at + head
        frames[found, END] = end
        frames[found, WIRE] = wire
        frames[found, LINK] = link
        if head > 16:
            index = be32(data, at + 16) if big else le32(data, at + 16)
            frames[found, LINK] |= (INDEXED | index & (INDEXED - 1)) << 16
        found += 1
        at = end
    return MORE, at, found


@inline
def _u16(data: Bytes, at: int, big: bool) -> int:
    return be16(data, at) if big else le16(data, at)


@inline
def _u32(data: Bytes, at: int, big: bool) -> int:
    return be32(data, at) if big else le32(data, at)


@inline
def _nanoseconds(high: int, low: int, interface: Ints) -> int:
    """Convert a stamp of two words from its interface's units to nanoseconds; clamp one that is too late."""
    stamp = (high & 0x7FFFFFFF) << 32 | low
    shift = interface[IF_SHIFT]
    if shift >= 0:
        seconds = stamp >> shift
        fraction = stamp & ((np.int64(1) << shift) - 1)
        if shift > 30:
            fraction >>= shift - 30
            shift = 30
        whole, unit = seconds, _SECOND
        part = (fraction * _SECOND) >> shift
    else:
        whole, unit, part = stamp // interface[IF_DIVIDE], interface[IF_MULTIPLY], np.int64(0)
    if whole > _LATEST_NS // unit:
        return _LATEST_NS + 1
    return whole * unit + part + interface[IF_OFFSET]


@stage
def pcapng_packets(
    data: Bytes,
    at: int,
    size: int,
    big: bool,
    interfaces: Ints,
    known: int,
    offset_ns: int,
    last_ns: int,
    frames: Ints,
    counts: Ints,
) -> tuple[int, int, int]:
    """Find the packets of pcapng blocks that are whole in data[at:size].

    Return (why it ended, where, packets in `frames`). `interfaces`: the rows of which `known` are described so far in
    this section. A simple packet block has no stamp: it gets `last_ns`, or that of the packet before it.
    draft-ietf-opsawg-pcapng, sections 3.1 and 4.
    """
    found = 0
    while at + 12 <= size:
        if found == frames.shape[0]:
            return FULL, at, found
        kind = _u32(data, at, big)
        length = _u32(data, at + 4, big)
        if kind == SECTION:
            return BLOCK, at, found
        if length < 12 or length % 4:
            return CORRUPT, at, found
        if kind == INTERFACE or length > LONGEST_BLOCK:
            return BLOCK, at, found
        if at + length > size:
            break
        if _u32(data, at + length - 4, big) != length:
            return CORRUPT, at, found
        body, rest = at + 8, length - 12
        at += length
        if kind == _PACKET and rest >= 20:
            interface, head = _u32(data, body, big), 20
        elif kind == _OLD_PACKET and rest >= 20:
            interface, head = _u16(data, body, big), 20
        elif kind == _SIMPLE_PACKET and rest >= 4:
            interface, head = 0, 4
        elif kind in (_PACKET, _OLD_PACKET, _SIMPLE_PACKET):
            counts[DAMAGED] += 1
            continue
        else:
            known_kind = kind in (_NAMES, _STATISTICS, _JOURNAL, _SECRETS) or kind & _UNCOPIED == _CUSTOM
            counts[UNKNOWN] += not known_kind
            continue
        if interface >= known:
            counts[UNDESCRIBED] += 1
            continue
        if kind == _SIMPLE_PACKET:
            wire = _u32(data, body, big)
            snap = interfaces[interface, IF_SNAP]
            kept = min(wire, rest - head) if snap == 0 else min(wire, snap, rest - head)
            stamp = last_ns if found == 0 else frames[found - 1, STAMP]
        else:
            kept, wire = _u32(data, body + 12, big), _u32(data, body + 16, big)
            stamp = _nanoseconds(_u32(data, body + 4, big), _u32(data, body + 8, big), interfaces[interface])
            stamp = _within(stamp + offset_ns if stamp <= _LATEST_NS else stamp, counts)
        if kept > rest - head or kept > LONGEST_KEPT:
            counts[DAMAGED] += 1
            continue
        counts[STAMPLESS] += kind == _SIMPLE_PACKET
        counts[LONGER] += kept > wire
        frames[found, STAMP] = stamp
        frames[found, BEGIN] = body + head
        frames[found, END] = body + head + kept
        frames[found, WIRE] = max(kept, wire)
        frames[found, LINK] = interfaces[interface, IF_LINK]
        found += 1
    return MORE, at, found
