"""What a figure can draw of a window: a number of its training, within each run and at full size."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.core.errors import ConfigError
from orchestrator.store.manifests.window_records import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number of a job in a window; `of` gives it in SI units, as on the wire, and `factor` makes `unit` of it.

    `scales` says that the run's scale multiplies it back.
    """

    title: str
    unit: str
    factor: float
    of: Callable[[Training], Estimate]
    scales: bool = False

    @property
    def axis(self) -> str:
        """Title and unit, as an axis has them."""
        return f"{self.title} ({self.unit})"


def _estimate(value: float | None, low: float | None, high: float | None) -> Estimate:
    return Estimate(*(math.nan if end is None else end for end in (value, low, high)))


QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        "iteration-time": Quantity(
            title="median iteration time",
            unit="ms",
            factor=1e3,
            of=lambda row: _estimate(row.p50_s, row.p50_low_s, row.p50_high_s),
        ),
        "mean-iteration-time": Quantity(
            title="mean iteration time",
            unit="ms",
            factor=1e3,
            of=lambda row: _estimate(row.mean_s, row.mean_low_s, row.mean_high_s),
        ),
        "p99-iteration-time": Quantity(
            title="99th percentile of the iteration time",
            unit="ms",
            factor=1e3,
            of=lambda row: _estimate(row.p99_s, row.p99_low_s, row.p99_high_s),
        ),
        "sent-bytes": Quantity(
            title="payload sent by a rank in an iteration",
            unit="MB",
            factor=1e-6,
            scales=True,
            of=lambda row: _estimate(row.sent_bytes, None, None),
        ),
    }
)


def named(name: str) -> Quantity:
    """The quantity of this name; ConfigError for another."""
    if name not in QUANTITIES:
        raise ConfigError(f"no figure {name!r}; accepted: {', '.join(QUANTITIES)}, completion-times, slowdown")
    return QUANTITIES[name]
