"""Measure one-way delays: match the same packets seen at both ends of a link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import numpy as np

from orchestrator.analysis.capture.pcap import Piece
from orchestrator.analysis.capture.stages import compiled, program
from orchestrator.analysis.capture.stages.sightings import AT, DST, KEY, SRC, WORDS, Ints
from orchestrator.parts.rows import Columns

MOST = 1 << 15  # packets of a capture that are noted: of more, every second, fourth, ... as their keys have it
_SPARE = 1 << 12
LOW_SHARE = 0.001


class Sightings:
    """Stamps of sampled packets of a capture; both ends of a link sample the same ones, by a hash of the packet."""

    def __init__(self) -> None:
        self._rows = np.zeros((MOST + _SPARE, WORDS), np.int64)
        self._words = program.layout(program.SIGHT_WORDS)
        self._words[[program.S_OUT, program.S_OUT_ROWS]] = program.address_of(self._rows), len(self._rows)

    def add(self, piece: Piece) -> None:
        """Add the sampled packets of a piece."""
        words, from_ = self._words, piece.words
        words[program.S_FRAMES : program.S_FOUND + 1] = (
            from_[program.FRAMES],
            from_[program.HEADERS],
            from_[program.ROWS],
            0,
            piece.packets,
        )
        while words[program.S_PLACE] < piece.packets:
            compiled.program()["sight"](program.address_of(words))
            if words[program.S_PLACE] < piece.packets:
                self._thin()

    def rows(self) -> Ints:
        """Return rows of key, instant (ns), and the low words of both addresses."""
        while self._words[program.S_USED] > MOST:
            self._thin()
        found: Ints = self._rows[: self._words[program.S_USED]].copy()
        return found

    def _thin(self) -> None:
        """Halve the sampled packets: keep those whose key has none of the bits of a mask that is one bit longer."""
        words = self._words
        words[program.S_MASK] = 2 * words[program.S_MASK] + 1
        noted = self._rows[: words[program.S_USED]]
        kept = noted[(noted[:, KEY] & words[program.S_MASK]) == 0]
        words[program.S_USED] = len(kept)
        self._rows[: len(kept)] = kept


def one_way(seen: Iterable[tuple[str, Ints]], addresses: Mapping[str, Sequence[str]]) -> Columns:
    """Return columns of the table `one_way`: delays between captures at both ends; `addresses` are those of each node.

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
    """Return the rows whose key no other row has."""
    _, first, count = np.unique(rows[:, KEY], return_index=True, return_counts=True)
    found: Ints = rows[first[count == 1]]
    return found


def _low_word(address: str) -> int:
    """Return the lower 64 bits of an address as the reader keeps them, signed."""
    low = int(ip_address(address)) & (1 << 64) - 1
    return low - (1 << 64) if low >> 63 else low
