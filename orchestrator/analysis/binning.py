"""Keeps bins of time within a bound of memory: they get wider when there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrator.analysis.trace import Bins

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
        """Take rows of (flow, bin, packets, wire bytes, payload bytes, repeated bytes), the bins of the asked width."""
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
        order = np.lexsort((rows["flow"], rows["bin"]))
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
    first, flows, starts = 0, [], []
    for bins, count in parts:
        flows.append(bins.flow + first)
        starts.append(bins.start_ns // width_ns * width_ns)
        first += count
    flow, start = np.concatenate(flows), np.concatenate(starts)
    order = np.lexsort((flow, start))
    heads = _heads(start[order], flow[order])

    def summed(name: str) -> Any:
        values = np.concatenate([getattr(bins, name) for bins, _ in parts])[order]
        return np.add.reduceat(values, heads) if len(heads) else values

    return Bins(
        width_ns=width_ns, flow=flow[order][heads], start_ns=start[order][heads], packets=summed("packets"),
        wire_bytes=summed("wire_bytes"), payload_bytes=summed("payload_bytes"),
        repeated_bytes=summed("repeated_bytes"),
    )  # fmt: skip


def _heads(*keys: Any) -> Any:
    """Where a new combination of sorted keys begins."""
    changed = np.zeros(len(keys[0]), np.bool_)
    changed[:1] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changed)
