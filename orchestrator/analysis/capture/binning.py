"""Keeps bins of time within a bound of memory: they get wider when there are too many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from orchestrator.analysis.capture.trace import Bins, Ints

BIN_BUDGET = 1 << 22
_KEPT = np.dtype(
    [("bin", "i8"), ("wire", "i8"), ("payload", "i8"), ("repeated", "i8"), ("flow", "i4"), ("packets", "i4")]
)
_SUMMED = ("wire", "payload", "repeated", "packets")


class BinStore:
    """Rows of bins as the reader hands them out, at most `budget` of them."""

    def __init__(self, *, width_ns: int, budget: int = BIN_BUDGET) -> None:
        self.asked_ns = self.width_ns = width_ns
        self.budget = budget
        # Not written yet, so it takes no memory; a list of parts would take the double when they are joined.
        self._rows = np.empty(budget + (1 << 14), _KEPT)
        self._used = 0

    def add(self, _table: Any, bins: Any) -> None:
        """Take rows of bins of the asked width, as accounting lays them out."""
        end = self._used + len(bins)
        new = self._rows[self._used : end]
        new["flow"], new["packets"] = bins[:, 0], bins[:, 2]
        new["bin"] = bins[:, 1] // (self.width_ns // self.asked_ns)
        new["wire"], new["payload"], new["repeated"] = bins[:, 3], bins[:, 4], bins[:, 5]
        self._used = end
        while self._used > self.budget:
            self._rows["bin"][: self._used] //= 2
            self.width_ns *= 2
            self._merge()
            if self.width_ns > 1 << 61:
                break

    def bins(self, row_of: Any, *, in_order: bool) -> Bins:
        """All bins, with the flows renumbered by `row_of`."""
        if not in_order or self.width_ns != self.asked_ns:
            self._merge()
        rows = self._rows[: self._used]
        return Bins(
            width_ns=self.width_ns,
            flow=row_of[rows["flow"]],
            start_ns=rows["bin"] * self.width_ns,
            packets=rows["packets"].astype(np.int64),
            wire_bytes=rows["wire"],
            payload_bytes=rows["payload"],
            repeated_bytes=rows["repeated"],
        )

    def _merge(self) -> None:
        """Add up the rows of one flow and bin."""
        rows = self._rows[: self._used]
        order = _order(rows["bin"], rows["flow"])
        heads = _heads(rows["bin"][order], rows["flow"][order])
        for name in _SUMMED:
            rows[name][: len(heads)] = np.add.reduceat(rows[name][order], heads) if len(heads) else []
        firsts = order[heads]
        for name in ("bin", "flow"):
            rows[name][: len(heads)] = rows[name][firsts]
        self._used = len(heads)


def joined(parts: Sequence[tuple[Bins, int]], *, width_ns: int) -> Bins:
    """Bins of several tables of flows behind each other, in bins of the widest, which the others' widths divide.

    `parts`: bins, and how many flows their table has.
    """
    wide = [bins if bins.width_ns == width_ns else _widened(bins, width_ns) for bins, _ in parts]
    firsts = accumulate((count for _, count in parts), initial=0)
    start = np.concatenate([bins.start_ns for bins in wide])
    order = np.argsort(start, kind="stable")  # every part is in order, so this only merges

    def laid(values: Iterable[Ints]) -> Ints:
        return np.concatenate(list(values))[order]

    return Bins(
        width_ns=width_ns,
        flow=laid(bins.flow + first for bins, first in zip(wide, firsts, strict=False)),
        start_ns=start[order],
        packets=laid(bins.packets for bins in wide),
        wire_bytes=laid(bins.wire_bytes for bins in wide),
        payload_bytes=laid(bins.payload_bytes for bins in wide),
        repeated_bytes=laid(bins.repeated_bytes for bins in wide),
    )


def _widened(bins: Bins, width_ns: int) -> Bins:
    start = bins.start_ns // width_ns * width_ns
    order = _order(start // width_ns, bins.flow)
    heads = _heads(start[order], bins.flow[order])

    def summed(values: Ints) -> Ints:
        return np.add.reduceat(values[order], heads) if len(heads) else values

    return Bins(
        width_ns=width_ns, flow=bins.flow[order][heads], start_ns=start[order][heads], packets=summed(bins.packets),
        wire_bytes=summed(bins.wire_bytes), payload_bytes=summed(bins.payload_bytes),
        repeated_bytes=summed(bins.repeated_bytes),
    )  # fmt: skip


def _order(number: Any, flow: Any) -> Any:
    """What sorts rows by bin and flow. They nearly are, which one key shows to a stable sort and two keys hide."""
    if not len(number):
        return np.zeros(0, np.int64)
    first, flows = int(number.min()), int(flow.max()) + 1
    if (int(number.max()) - first) * flows >= 1 << 62:  # stamps of a damaged file
        return np.lexsort((flow, number))
    return np.argsort((number - first) * flows + flow, kind="stable")


def _heads(*keys: Any) -> Any:
    """Where a new combination of sorted keys begins."""
    changed = np.zeros(len(keys[0]), np.bool_)
    changed[:1] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changed)
