"""Reduces a capture to what each of its flows carried over time, in bins fine enough to see single bursts.

The same reading notes when single packets were seen, since it is the one that every capture gets once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orchestrator.analysis.capture import accounting
from orchestrator.analysis.capture.binning import BinStore
from orchestrator.analysis.capture.flowtable import FlowTable
from orchestrator.analysis.capture.rotation import in_order
from orchestrator.analysis.capture.sightings import Ints, Sightings
from orchestrator.core.errors import CaptureError
from orchestrator.parts.rows import Columns

FINEST_NS = 1_000_000
MOST_ROWS = 2_000_000  # of a capture; beyond, bins become wider


def reduce(
    files: Sequence[Path], *, port: str, offset_ns: int = 0, segment: int | None = None, most: int = MOST_ROWS
) -> tuple[Columns, Ints]:
    """Columns of `flow_packets`, and what `sightings` notes, for a (rotated) set of files of one port.

    Arguments are as of `captures.reduce`.

    Files that cannot be read are left out here; `captures.reduce` says what is wrong with them.
    """
    store = BinStore(width_ns=FINEST_NS, budget=most)
    seen = Sightings()
    table = FlowTable(offset_ns=offset_ns, bin_ns=FINEST_NS, segment=segment, on_bins=store.add, sightings=seen)
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
    columns = {
        "port": [port] * len(bins),
        "flow": bins.flow,
        "bin_ns": bins.start_ns,
        "width_ns": np.full(len(bins), bins.width_ns),
        "packets": bins.packets,
        "wire_bytes": bins.wire_bytes,
        "payload_bytes": bins.payload_bytes,
        "repeated_bytes": bins.repeated_bytes,
    }
    return columns, seen.rows()
