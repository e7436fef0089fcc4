"""How high bursts of generated traffic are on the wire, against what their schedule asks for."""

from __future__ import annotations

import numpy as np

from orchestrator.analysis.traffic.throughput import Bins


def height(bins: Bins, *, zero_ns: int, width_ns: int, period_ns: int, span_ns: tuple[int, int]) -> float:
    """The rate in a burst over the mean, all periods of a span laid upon one another; NaN without any traffic.

    `zero_ns` is where a burst begins. Bins are not aligned to it, so that a burst of n bins lies in n + 1 of them: what
    the one that is too many carries otherwise, the median of the bins outside of bursts, is taken off.
    """
    inside = (bins.start_ns >= span_ns[0]) & (bins.start_ns < span_ns[1])
    count = period_ns // bins.width_ns
    touched = -(-width_ns // bins.width_ns) + 1
    if not inside.any() or count <= touched:
        return float("nan")
    # A bin that begins less than its width before the burst is the first that the burst touches.
    place = (bins.start_ns[inside] - zero_ns + bins.width_ns - 1) % period_ns // bins.width_ns
    folded = np.bincount(place, bins.amount[inside], count)[:count]
    burst = folded[:touched].sum() - np.median(folded[touched:])
    return float(burst / (touched - 1) / folded.mean())
