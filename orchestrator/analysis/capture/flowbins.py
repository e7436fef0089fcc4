"""Reduces a capture to what each of its flows carried over time, in bins fine enough to see single bursts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orchestrator.analysis.capture import accounting
from orchestrator.analysis.capture.binning import BinStore
from orchestrator.analysis.capture.flowtable import FlowTable
from orchestrator.analysis.capture.rotation import in_order
from orchestrator.core.errors import CaptureError
from orchestrator.parts.rows import Columns

FINEST_NS = 1_000_000
MOST_ROWS = 2_000_000  # of a capture; beyond, bins become wider


def reduce(
    files: Sequence[Path], *, port: str, offset_ns: int = 0, segment: int | None = None, most: int = MOST_ROWS
) -> Columns:
    """Columns of `flow_packets` for a (rotated) set of files of one port; arguments as of `captures.reduce`.

    Files that cannot be read are left out here; `captures.reduce` says what is wrong with them.
    """
    store = BinStore(width_ns=FINEST_NS, budget=most)
    table = FlowTable(offset_ns=offset_ns, bin_ns=FINEST_NS, segment=segment, on_bins=store.add)
    ordered, _ = in_order(files)
    for file in ordered:
        try:
            table.add(file)
        except CaptureError:
            continue
    # The rows that `captures.reduce` gives to directions that sent anything.
    rows = np.flatnonzero(table.figures(accounting.PACKETS))
    row_of = np.full(table.directions, -1, np.int64)
    row_of[rows] = np.arange(len(rows))
    bins = store.bins(row_of, in_order=not table.counts[accounting.BACK_BINS])
    return {
        "port": [port] * len(bins),
        "flow": bins.flow,
        "bin_ns": bins.start_ns,
        "width_ns": np.full(len(bins), bins.width_ns),
        "packets": bins.packets,
        "wire_bytes": bins.wire_bytes,
        "payload_bytes": bins.payload_bytes,
        "repeated_bytes": bins.repeated_bytes,
    }
