"""Numbers as a report writes them: rates, sizes and shares with units, to four digits."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percent(share: float) -> str:
    """A difference as a share, with its sign; empty for NaN."""
    return "" if math.isnan(share) else f"{share:+.1%}"


def share(part: float) -> str:
    """A part of 1; empty for NaN."""
    return "" if math.isnan(part) else f"{part:.1%}"


def rate(bps: float) -> str:
    """Bits a second; empty for NaN."""
    return _with_unit(bps, ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")))


def size(amount: float) -> str:
    """Bytes; empty for NaN."""
    return _with_unit(amount, ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")))


def _with_unit(value: float, units: Sequence[tuple[float, str]]) -> str:
    if math.isnan(value):
        return ""
    factor, unit = next((pair for pair in units if value >= pair[0]), units[-1])
    return f"{value / factor:.4g} {unit}"
