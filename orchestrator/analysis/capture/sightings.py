"""Notes when single TCP packets were seen, so that captures of both ends of a link can be held against each other."""

# Compiled code takes no keyword-only arguments, and for mypy its integers are NumPy's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.compiled import stage
from orchestrator.analysis.capture.decoding import DST_LOW, FLAGS, PAYLOAD, SEQUENCE, SRC_LOW, WORD
from orchestrator.analysis.capture.framing import STAMP
from orchestrator.parts.rows import Columns

Ints = npt.NDArray[np.int64]

KEY, AT, SRC, DST = range(4)
WORDS = 4
MOST = 1 << 15  # packets of a capture that are noted: of more, every second, fourth, ... as their keys have it
SPARE = 1 << 12  # more packets than a batch has
LOW_SHARE = 0.001


@stage
def sight(frames: Ints, headers: Ints, packets: int, mask: int, out: Ints, used: int) -> int:
    """Note the packets of a batch that carry TCP payload and whose key has none of the bits of `mask`."""
    for number in range(packets):
        row = headers[number]
        if row[FLAGS] < 0 or row[PAYLOAD] <= 0:
            continue
        mixed = np.uint64(row[SRC_LOW]) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(row[DST_LOW])
        mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93) + np.uint64(row[WORD])
        mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(row[SEQUENCE])
        mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0xD6E8FEB86659FD93)
        key = np.int64((mixed ^ mixed >> np.uint64(31)) >> np.uint64(1))
        if key & mask != 0:
            continue
        out[used, KEY] = key
        out[used, AT] = frames[number, STAMP]
        out[used, SRC] = row[SRC_LOW]
        out[used, DST] = row[DST_LOW]
        used += 1
    return used


class Sightings:
    """When packets of a capture were seen; both ends of a link note the same ones, since the key decides."""

    def __init__(self) -> None:
        self._rows = np.zeros((MOST + SPARE, WORDS), np.int64)
        self._used = 0
        self._mask = 0

    def add(self, frames: Ints, headers: Ints, packets: int) -> None:
        """Take a batch as the reader decoded it, of at most SPARE packets."""
        self._used = sight(frames, headers, packets, self._mask, self._rows, self._used)
        while self._used > MOST:
            self._mask = 2 * self._mask + 1
            kept = self._rows[: self._used][(self._rows[: self._used, KEY] & self._mask) == 0]
            self._used = len(kept)
            self._rows[: self._used] = kept

    def rows(self) -> Ints:
        """Rows of key, instant (ns), and the low words of both addresses."""
        return self._rows[: self._used].copy()


def one_way(seen: Iterable[tuple[str, Ints]], addresses: Mapping[str, Sequence[str]]) -> Columns:
    """Columns of `one_way`: what captures at both ends say of how long packets took; `addresses` of each node.

    `seen` has rows a capture, of which a node may have several. A key that one end has several times is a packet that
    was sent again, and is left out.
    """
    place = {_low_word(address): number for number, some in enumerate(addresses.values()) for address in some}
    names = list(addresses)
    parts = [np.column_stack((rows, np.full(len(rows), names.index(node)))) for node, rows in seen]
    rows = np.concatenate(parts) if parts else np.zeros((0, WORDS + 1), np.int64)
    source, target = (np.array([place.get(int(word), -1) for word in rows[:, column]]) for column in (SRC, DST))
    sent, came = (_once(rows[rows[:, WORDS] == end]) for end in (source, target))
    _, one, other = np.intersect1d(sent[:, KEY], came[:, KEY], assume_unique=True, return_indices=True)
    took = came[other, AT] - sent[one, AT]
    pair = sent[one, WORDS] * len(names) + came[other, WORDS]
    made: dict[str, list[Any]] = {name: [] for name in ("src", "dst", "packets", "early", "low_s", "p50_s")}
    for code in np.unique(pair):
        delays = took[pair == code]
        low, middle = np.quantile(delays, [LOW_SHARE, 0.5], method="higher") / 1e9
        src, dst = (names[number] for number in divmod(int(code), len(names)))
        values = (src, dst, len(delays), int((delays < 0).sum()), low, middle)
        for name, value in zip(made, values, strict=True):
            made[name].append(value)
    return made


def _once(rows: Ints) -> Ints:
    """The rows whose key no other has."""
    _, first, count = np.unique(rows[:, KEY], return_index=True, return_counts=True)
    return rows[first[count == 1]]


def _low_word(address: str) -> int:
    """The lower 64 bits of an address as the reader keeps them, signed."""
    low = int(ip_address(address)) & (1 << 64) - 1
    return low - (1 << 64) if low >> 63 else low


def warm() -> None:
    """Compile the stage now, so that no run waits for it."""
    Sightings().add(np.zeros((1, 8), np.int64), np.zeros((1, 16), np.int64), 0)
