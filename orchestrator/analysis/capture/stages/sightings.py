"""Sample TCP packets by a hash, with stamps, so that captures of both ends of a link can be matched (compiled)."""

# Compiled code takes no keyword-only arguments, and for mypy its integers are NumPy's.
# ruff: noqa: PLR0917
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.capture.stages.compiled import stage
from orchestrator.analysis.capture.stages.decoding import DST_LOW, FLAGS, PAYLOAD, SEQUENCE, SRC_LOW, WORD
from orchestrator.analysis.capture.stages.framing import STAMP

Ints = npt.NDArray[np.int64]

KEY, AT, SRC, DST = range(4)
WORDS = 4


@stage
def sight(frames: Ints, headers: Ints, place: int, packets: int, mask: int, out: Ints, used: int) -> tuple[int, int]:
    """Sample the packets from `place` on that carry TCP payload and whose key has none of the bits of `mask`.

    Return the packet before which `out` was full, and how many rows it has.
    """
    for number in range(place, packets):
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
        if used == out.shape[0]:
            return number, used
        out[used, KEY] = key
        out[used, AT] = frames[number, STAMP]
        out[used, SRC] = row[SRC_LOW]
        out[used, DST] = row[DST_LOW]
        used += 1
    return packets, used
