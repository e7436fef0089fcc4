"""Deals the packets of a piece out to shards, what accounting reads of each in one row: part of the capture reader.

A shard reads its rows one behind the other, whoever wrote them, and nothing of other shards' packets.
"""

# Compiled code takes no keyword-only arguments, a call of a small part costs it time, and for mypy its integers are
# NumPy's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import inline, stage
from orchestrator.analysis.capture.stages.decoding import (
    DST_HIGH,
    DST_LOW,
    FLAGS,
    PAYLOAD,
    SEQUENCE,
    SRC_HIGH,
    SRC_LOW,
    VIA,
    WINDOW,
    WORD,
)
from orchestrator.analysis.capture.stages.framing import STAMP, WIRE

Ints = npt.NDArray[np.int64]

# One packet: its instant, a hash of its conversation, of which the lowest bit says whether the conversation's higher
# end sent it, the conversation's identity (as of accounting's keys: ends' addresses of two words each, WORD, VIA), of
# TCP flags << 48 | window << 32 | sequence number (negative where there is none), payload and wire bytes, and which
# packet of the piece it is. A row of ANOTHERS says that a packet of another shard begins a bin at that instant, since
# every shard closes its bins then.
(NS, HASH, LOWER_HIGH, LOWER_LOW, HIGHER_HIGH, HIGHER_LOW, ENDS, CAME_BY, TCP, PAYLOAD_BYTES, WIRE_BYTES, NUMBER) = (
    range(12)
)
DEALT_WORDS = 12
ANOTHERS = -1

_SHARD_SHIFT, _SHARD_BITS = 40, 20  # of a hash: those below choose its place in the table


@inline
def _tell(dealt: Ints, begin: int, counts: Ints, shard: int, stamp: int) -> None:
    """Tell a shard, whose rows begin at `begin`, that a packet of another one begins a bin.

    Of three such rows in a row, each later than the one before, the one in the middle is left out: the last one closes
    what it would have closed. So a shard's rows do not grow with other shards' packets, but where stamps go back.
    """
    place = begin + counts[shard]
    if (
        counts[shard] >= 2
        and dealt[place - 1, HASH] == ANOTHERS
        and dealt[place - 2, HASH] == ANOTHERS
        and dealt[place - 2, NS] < dealt[place - 1, NS] < stamp
    ):
        place -= 1
    else:
        counts[shard] += 1
    dealt[place, NS] = stamp
    dealt[place, HASH] = ANOTHERS


@stage
def deal(
    frames: Ints, headers: Ints, begin: int, found: int, bin_ns: int, bin_begin: int, dealt: Ints, counts: Ints
) -> int:
    """Deal out packets `begin` to `found` of a piece; gives where the bin of the last one begins.

    `dealt` has as many rows for each of the shards, of which `counts` says how many are used.
    """
    shards = counts.shape[0]
    most = dealt.shape[0] // shards
    for number in range(begin, found):
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
        stamp = frames[number, STAMP]
        shard = (code >> _SHARD_SHIFT & (1 << _SHARD_BITS) - 1) * shards >> _SHARD_BITS
        if shards > 1 and (stamp < bin_begin or stamp - bin_begin >= bin_ns):
            bin_begin = stamp // bin_ns * bin_ns
            for other in range(shards):
                if other != shard:
                    _tell(dealt, other * most, counts, other, stamp)
        into = dealt[shard * most + counts[shard]]
        counts[shard] += 1
        into[NS] = stamp
        into[HASH] = code >> 1 << 1 | turned
        into[LOWER_HIGH] = first
        into[LOWER_LOW] = second
        into[HIGHER_HIGH] = third
        into[HIGHER_LOW] = fourth
        into[ENDS] = word
        into[CAME_BY] = via
        into[TCP] = row[FLAGS] << 48 | row[WINDOW] << 32 | row[SEQUENCE] if row[FLAGS] >= 0 else -1
        into[PAYLOAD_BYTES] = row[PAYLOAD]
        into[WIRE_BYTES] = frames[number, WIRE]
        into[NUMBER] = number
    return bin_begin


@inline
def turned_word(word: int) -> int:
    """WORD with both ports in each other's place."""
    ports = word & 0xFFFFFFFF
    return word ^ ports ^ ((ports & 0xFFFF) << 16 | ports >> 16)


@inline
def mixed(first: int, second: int, third: int, fourth: int, word: int, via: int) -> int:
    """A hash of a conversation's identity, not negative."""
    bits = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(second)
    bits = (bits ^ bits >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93)
    bits += np.uint64(third) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(fourth)
    bits = (bits ^ bits >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(word)
    bits += np.uint64(via) * np.uint64(0x9FB21C651E98DF25)
    bits = (bits ^ bits >> np.uint64(29)) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((bits ^ bits >> np.uint64(32)) >> np.uint64(1))
