"""Numbers of a study's page as text."""

from __future__ import annotations

import math

NOTHING = "-"
Rows = list[tuple[str, ...]]


def number(value: float) -> str:
    """To four digits, with commas for thousands; whole numbers as they are, nothing for NaN."""
    if math.isnan(value):
        return NOTHING
    if value == round(value) and abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def seconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def gbps(value: float) -> str:
    return f"{value / 1e9:.2f}"


def mb(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value / 1e6:.1f}"


def span(bounds: tuple[float, float] | None) -> str:
    return NOTHING if bounds is None else f"{gbps(bounds[0])} to {gbps(bounds[1])}"


def off(ours: float, theirs: float | None) -> str:
    return NOTHING if not theirs or math.isnan(ours) else f"{(ours / theirs - 1) * 100:+.0f} %"
