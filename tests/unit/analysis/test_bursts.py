"""How high bursts are on the wire."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.traffic.throughput import Bins, burst_height

MS = 1_000_000
ZERO_NS = 1_795_000_000_000_000_000


def bins(*, asked, offset_ns, width_ms=1, period_ms=10, periods=50):
    """Bins of a millisecond of a rate that is `asked` times its mean in bursts that begin `offset_ns` after a bin."""
    fine_ns = 10_000
    at = np.arange(0, periods * period_ms * MS, fine_ns)
    phase = (at - offset_ns) % (period_ms * MS)
    rest = (period_ms - asked * width_ms) / (period_ms - width_ms)
    rate = np.where(phase < width_ms * MS, asked, rest)
    return Bins(ZERO_NS + np.arange(periods * period_ms) * MS, rate.reshape(-1, MS // fine_ns).sum(axis=1), MS)


@pytest.mark.parametrize("offset_ns", [0, 10_000, 400_000, 990_000, 7_300_000])
@pytest.mark.parametrize(("asked", "width_ms"), [(3.0, 1), (1.0, 1), (2.5, 2)])
def test_the_height_is_what_was_made_wherever_bins_begin(asked, width_ms, offset_ns):
    made = bins(asked=asked, offset_ns=offset_ns, width_ms=width_ms)
    span_ns = (ZERO_NS, ZERO_NS + 500 * MS)
    found = burst_height(made, zero_ns=ZERO_NS + offset_ns, width_ns=width_ms * MS, period_ns=10 * MS, span_ns=span_ns)
    assert found == pytest.approx(asked, rel=0.02)


def test_nothing_is_said_without_traffic():
    made = bins(asked=3, offset_ns=0)
    assert math.isnan(burst_height(made, zero_ns=0, width_ns=MS, period_ns=10 * MS, span_ns=(0, MS)))
