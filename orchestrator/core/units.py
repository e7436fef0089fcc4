"""Parse and print rates, sizes and durations: SI inside, units in the text of files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

_NUMBER = re.compile(r" *([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?) *([A-Za-z%]+) *")

MOST = 1e30  # in SI units; what is more is a mistake, and products of it would soon be no numbers

RATES = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
SIZES = {
    "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
}  # fmt: skip
DURATIONS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
SHARES = {"%": 0.01}


class Mistake(ValueError):
    """A validator's error: what is wrong, and what would be accepted.

    `at` is the way from what is validated to the value that is meant, where that is not the whole of it. A message
    that begins with "not a" gets the value in front.
    """

    def __init__(self, message: str, *, accepted: str, at: tuple[str | int, ...] = ()) -> None:
        super().__init__(f"{message}; accepted: {accepted}")
        self.message = message
        self.accepted = accepted
        self.at = at


def measured(text: str, table: Mapping[str, float]) -> float | None:
    """Return the amount of a text such as "4gbit" in SI units.

    None for one of no unit of the table, or out of all bounds.
    """
    match = _NUMBER.fullmatch(text)
    unit = match.group(2).lower() if match else ""
    number = float(match.group(1)) * table[unit] if match and unit in table else math.inf
    return number if number <= MOST else None


def quantity(text: str) -> tuple[str, float] | None:
    """Return the quantity of a text such as "4gbit" and its amount, in SI units; None for any other text."""
    match = _NUMBER.fullmatch(text)
    for kind, table in (("rate", RATES), ("size", SIZES), ("duration", DURATIONS), ("share", SHARES)):
        if match and match.group(2).lower() in table:
            return kind, float(match.group(1)) * table[match.group(2).lower()]
    return None


def _best(value: float, table: dict[str, float], names: tuple[str, ...]) -> str:
    """Return the value in the largest of these units in which it is at least 1, without losing digits."""
    for name in reversed(names):
        if value >= table[name]:
            return f"{value / table[name]:.15g}{name}"
    return f"{value / table[names[0]]:.15g}{names[0]}"


def rate_text(value: float) -> str:
    """Return a rate in bit/s as a file would say it."""
    return _best(value, RATES, ("bit", "kbit", "mbit", "gbit"))


def size_text(value: float) -> str:
    """Return a size in bytes as a file would say it."""
    return _best(value, SIZES, ("b", "kb", "mb", "gb"))


def bytes_text(value: float) -> str:
    """Return a size in bytes for people, to four digits: "1.533 MB"."""
    return _people(value, 1e3, ("bytes", "kB", "MB", "GB", "TB"), 1.0)


def span_text(seconds: float) -> str:
    """Return a measured time for people, to three digits in the unit that fits: "46.3 ms"."""
    return "unknown" if math.isnan(seconds) else _people(seconds, 1e3, ("ns", "us", "ms", "s"), 1e-9, digits=3)


def _people(value: float, step: float, units: Sequence[str], least: float, *, digits: int = 4) -> str:
    """Return a value in the largest of the units that leaves at least one; each is `step` times the one before."""
    rounded = float(f"{value:.{digits}g}")
    place = 0
    while place + 1 < len(units) and abs(rounded) >= least * step ** (place + 1) * (1 - 1e-12):
        place += 1
    shown = rounded / (least * step**place)
    whole = abs(shown) >= 10 ** (digits - 1)
    return f"{shown:.0f} {units[place]}" if whole else f"{shown:.{digits}g} {units[place]}"


def duration_text(value: float) -> str:
    """Return a duration in seconds as a file would say it."""
    return _best(value, DURATIONS, ("ns", "us", "ms", "s"))


def share_text(value: float) -> str:
    """Return a share of 1 in per cent."""
    return f"{value * 100:.15g}%"
