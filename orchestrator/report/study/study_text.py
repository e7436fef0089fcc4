"""Numbers and tables of a study's page as text."""

from __future__ import annotations

import math

NOTHING = "-"
Rows = list[tuple[str, ...]]
Table = tuple[str, str, tuple[str, ...], Rows]  # title, caption, head, rows


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
