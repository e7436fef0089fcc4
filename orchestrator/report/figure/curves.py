"""Collect one quantity over one axis for a figure: points of runs that were set alike, with intervals over runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.analysis.compare.selection import Chosen, natural
from orchestrator.analysis.stats.levels import Level, level, one_a_run
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.core.errors import ConfigError
from orchestrator.core.units import quantity as quantity_of
from orchestrator.core.where import Condition
from orchestrator.report.figure import windows
from orchestrator.report.figure.windows import LOAD, FigureWindow
from orchestrator.store.manifests.summaries import Training

_UNITS = {"rate": (1e9, "Gbit/s"), "size": (1e6, "MB"), "duration": (1e-3, "ms"), "share": (0.01, "%")}


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A value of the axis, what runs measured there in the quantity's unit, and how many iterations that rests on.

    `at` is where it is drawn: the value in the axis' unit, or the place among values that are no numbers.
    """

    text: str
    at: float
    level: Level
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points with the same value of the axis `series`, in order."""

    label: str
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The content of a figure, and the conditions under which it was measured.

    `over` and `series` are paths of settings (`series` may be empty), `unit` that of the axis, empty where its values
    are words.
    """

    quantity: Quantity
    over: str
    series: str
    unit: str
    curves: tuple[Curve, ...]
    common: windows.SharedSettings

    @property
    def axis(self) -> str:
        """The axis with its unit."""
        name = "cross traffic, as requested" if self.over == LOAD else self.over
        return f"{name} ({self.unit})" if self.unit else name


def figure(
    chosen: Chosen, quantity: Quantity, *, over: str, series: str = "", conditions: Sequence[Condition] = ()
) -> Figure:
    """Return the figure of these measurements; ConfigError where they cannot be in one, or have no such axis."""
    seen = [one for one in windows.figure_windows(chosen, conditions) if math.isfinite(quantity.of(one.row).value)]
    if not seen:
        raise ConfigError(f"{chosen.name}: {quantity.title} was not measured in any window")
    path = windows.axis(seen, over)
    by = windows.axis(seen, series) if series else ""
    windows.refuse_mixed(seen, filter(None, (path, by)))
    places, unit = _places(sorted({one.value(path) for one in seen}, key=natural))
    return Figure(
        quantity=quantity,
        over=path,
        series=by,
        unit=unit,
        common=windows.shared_settings(seen, chosen),
        curves=_curves(seen, quantity, path, by, places),
    )


def _places(values: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return where each value of the axis is drawn, and the unit; words, and mixed kinds of numbers, in their order."""
    known = {value: quantity_of(value) or _plain(value) for value in values}
    kinds = {found[0] if found else None for found in known.values()}
    if len(kinds) != 1 or None in kinds:
        return {value: float(place) for place, value in enumerate(values)}, ""
    factor, unit = _UNITS.get(kinds.pop() or "", (1.0, "number"))
    return {value: found[1] / factor for value, found in known.items() if found}, unit


def _plain(text: str) -> tuple[str, float] | None:
    try:
        return "", float(text)
    except ValueError:
        return None


def _curves(
    seen: Sequence[FigureWindow], quantity: Quantity, path: str, by: str, places: dict[str, float]
) -> tuple[Curve, ...]:
    # Over load, a window without cross traffic is a point of every curve that differs in its traffic alone.
    shared = path == LOAD and windows.of_traffic(by) and any(one.loaded for one in seen)
    labels = sorted({one.value(by) for one in seen if one.loaded or not shared}, key=natural) if by else [""]
    found = []
    for label in labels:
        mine = [one for one in seen if not by or one.value(by) == label or (shared and not one.loaded)]
        found.append(Curve(label=label, points=_points(mine, quantity, path, places)))
    return tuple(found)


def _points(
    seen: Sequence[FigureWindow], quantity: Quantity, path: str, places: dict[str, float]
) -> tuple[CurvePoint, ...]:
    at: dict[str, list[FigureWindow]] = defaultdict(list)
    for one in seen:
        at[one.value(path)].append(one)
    return tuple(
        CurvePoint(
            text=text,
            at=places[text],
            iterations=sum(one.row.iterations for one in at[text]),
            level=level(one_a_run((one.entry.run, _at_full_size(one, quantity)) for one in at[text])),
        )
        for text in sorted(at, key=lambda text: places[text])
    )


def _at_full_size(one: FigureWindow, quantity: Quantity) -> Estimate:
    found, factor = quantity.of(one.row), quantity.factor * (one.scale if quantity.scales else 1)
    return Estimate(found.value * factor, found.low * factor, found.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A quantity of a job in a window; `of` gives it in SI units, as on the wire, and `factor` makes `unit` of it.

    `scales` says that the run's scale multiplies it back.
    """

    title: str
    unit: str
    factor: float
    of: Callable[[Training], Estimate]
    scales: bool = False

    @property
    def axis(self) -> str:
        """The label of an axis: title and unit."""
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


def quantity_named(name: str) -> Quantity:
    """Return the quantity of this name; ConfigError for another."""
    if name not in QUANTITIES:
        raise ConfigError(f"no figure {name!r}; accepted: {', '.join(QUANTITIES)}, completion-times, slowdown")
    return QUANTITIES[name]
