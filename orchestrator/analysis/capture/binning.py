"""Make a capture's time bins from its rows of bins: of large flows each, of small flows summed.

Every bin has the width that was requested, whatever the number of flows. Where there are more rows than may be kept,
the flows with the most bytes keep theirs, as many flows as fit, and the others' are summed, bin by bin, under one row
of the flows (protocol "others").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from orchestrator.analysis.capture.directions import Spool
from orchestrator.analysis.capture.stages import bin_rows, compiled, program
from orchestrator.analysis.capture.trace import Bins, Ints

BIN_BUDGET = 1 << 21  # rows of bins that are kept
_FLOW, _NUMBER = 0, 1
_PACKETS, _CAPTURED = 2, 7  # columns of the rows


def large(spool: Spool, wire_bytes: Ints, *, budget: int) -> Any:
    """Return a mask of the flows with bins of their own.

    They are those with the most bytes, as many as have no more than `budget` bins together. The first of equal flows
    come first.
    """
    found = np.ones(len(wire_bytes), np.bool_)
    if spool.count <= budget:
        return found
    counts = np.zeros(len(wire_bytes), np.int64)
    words = program.layout(program.LAY_WORDS)
    words[[program.L_COUNTS, program.L_FLOWS]] = program.address_of(counts), len(counts)
    for _ in _filled(spool, words, wanted=bin_rows.COUNTED):
        compiled.program()["count_bins"](program.address_of(words))
    order = np.argsort(-wire_bytes, kind="stable")
    fits = np.cumsum(counts[order]) <= budget
    found[order] = fits
    return found


def bins(
    spool: Spool, wire_bytes: Ints, *, budget: int, width_ns: int, others: int, in_order: bool
) -> tuple[Bins, Any]:
    """Return the bins of large flows and, as those of the flow `others`, the sums of all other flows' bins.

    `in_order`: whether no stamp went back, so that there are rows bin after bin, each flow's bin once. With them, which
    flows are large.
    """
    chosen = large(spool, wire_bytes, budget=budget)
    out = np.empty((bin_rows.COLUMNS, spool.count), np.int64)  # what is not written takes no memory
    state, mask = np.zeros(bin_rows.STATE_WORDS, np.int64), chosen.astype(np.int64)
    state[bin_rows.SLOT] = -1
    words = program.layout(program.LAY_WORDS)
    words[program.L_CHOSEN : program.L_COUNTS] = (
        program.address_of(mask),
        len(mask),
        others,
        width_ns,
        program.address_of(out),
        spool.count,
        program.address_of(state),
    )
    for _ in _filled(spool, words, wanted=bin_rows.LAID):
        compiled.program()["lay"](program.address_of(words))
    columns = [column[: state[bin_rows.USED]] for column in out]
    flow, start, *sums = columns if in_order else _merged(columns, width_ns)
    made = Bins(
        width_ns=width_ns,
        flow=flow,
        start_ns=start,
        packets=sums[0],
        wire_bytes=sums[1],
        payload_bytes=sums[2],
        repeated_bytes=sums[3],
    )
    return made, chosen


def _filled(spool: Spool, words: Ints, *, wanted: int) -> Iterator[None]:
    """Fill in the words for each part of a spool: the first `wanted` columns of its rows."""
    words[[program.L_FLOW_OF, program.L_TABLE_ROWS]] = program.address_of(spool.flow_of), len(spool.flow_of)
    for part in spool.rows.parts(wanted=wanted):
        words[[program.L_ROWS, program.L_LENGTH, program.L_COUNT]] = (
            program.address_of(part),
            part.strides[0] // part.itemsize,
            part.shape[1],
        )
        yield


def summed(spool: Spool, group_of: Ints, *, wider: int) -> tuple[Ints, Ints, list[Ints]]:
    """Sum the six figures over groups of flows, in bins that are `wider` times as wide.

    Return group, number of the bin, and sums, ordered by group and bin; flows of a negative group are left out.
    """
    held: list[list[Ints]] = [[np.zeros(0, np.int64)] * 8]
    for part in spool.parts():
        group = group_of[part[_FLOW]]
        keep = np.flatnonzero(group >= 0)
        number = part[_NUMBER, keep] // wider
        figures = [part[column, keep] for column in range(_PACKETS, _CAPTURED + 1)]
        held.append(_merged([group[keep], number, *figures]))
    found = _merged([np.concatenate([one[column] for one in held]) for column in range(8)])
    order = np.argsort(found[0], kind="stable")
    return found[0][order], found[1][order], [column[order] for column in found[2:]]


def _merged(columns: list[Ints], step: int = 1) -> list[Ints]:
    """Sort rows of (flow, instant, figures...) by instant and flow, and add up those with both in common.

    They mostly are in that order, in runs, which one key shows to a stable sort and two keys hide. Instants are
    multiples of `step`.
    """
    flow, instant = columns[:2]
    if not len(flow):
        return columns
    first, flows = int(instant.min()), int(flow.max()) + 1
    if (int(instant.max()) - first) // step * flows >= 1 << 62:  # stamps of a damaged file
        order = np.lexsort((flow, instant))
    else:
        order = np.argsort((instant - first) // step * flows + flow, kind="stable")
    for column in columns:
        column[:] = column[order]
    heads = _heads(instant, flow)
    if len(heads) == len(order):
        return columns
    return [flow[heads], instant[heads], *(np.add.reduceat(column, heads) for column in columns[2:])]


def joined(parts: Sequence[tuple[Bins, int]], *, width_ns: int) -> Bins:
    """Concatenate bins of several tables of flows, all of one width.

    `parts`: bins, and how many flows their table has.
    """
    firsts = accumulate((count for _, count in parts), initial=0)
    start = np.concatenate([bins.start_ns for bins, _ in parts])
    order = np.argsort(start, kind="stable")  # every part is in order, so this only merges

    def laid(values: Iterator[Ints]) -> Ints:
        return np.concatenate(list(values))[order]

    return Bins(
        width_ns=width_ns,
        flow=laid(bins.flow + first for (bins, _), first in zip(parts, firsts, strict=False)),
        start_ns=start[order],
        packets=laid(bins.packets for bins, _ in parts),
        wire_bytes=laid(bins.wire_bytes for bins, _ in parts),
        payload_bytes=laid(bins.payload_bytes for bins, _ in parts),
        repeated_bytes=laid(bins.repeated_bytes for bins, _ in parts),
    )


def _heads(*keys: Any) -> Any:
    """Return a mask of the rows where a new combination of sorted keys begins."""
    changed = np.zeros(len(keys[0]), np.bool_)
    changed[:1] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changed)
