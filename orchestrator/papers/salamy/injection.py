"""Draw generated web search as it was sent: rates (Fig 3-8), schedules and traces (Figs B-4 and B-5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.analysis.compare.curves import LoadedWindow
from orchestrator.report.run import schedules
from orchestrator.report.runs import Run
from orchestrator.report.style import Picture, look, save

CONSISTENT, BURST = "websearch", "websearch-burst"
TRACED_GBPS = {BURST: 10.0, CONSISTENT: 6.0}  # of the traces of Fig B-5
NEXT_TO_GBPS = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The windows that are drawn: both kinds at one load, and one of each kind near the loads of the thesis' traces."""

    rates: tuple[LoadedWindow, ...]
    traces: tuple[LoadedWindow, ...]


def samples(places: Sequence[LoadedWindow]) -> Samples:
    """Return windows of both kinds at the highest common load of a model, and near the traces' loads."""
    both = {
        (burst.requested_bps, burst.kind.model): (consistent, burst)
        for burst in places
        for consistent in places
        if (burst.kind.traffic, consistent.kind.traffic) == (BURST, CONSISTENT)
        and (burst.requested_bps, burst.kind.model) == (consistent.requested_bps, consistent.kind.model)
    }
    near = [_next_to(places, kind, load) for kind, load in TRACED_GBPS.items()]
    return Samples(rates=both[max(both)] if both else (), traces=tuple(place for place in near if place is not None))


def draw(found: Samples, folder: Path) -> list[Picture]:
    """Draw their figures, as far as they were captured."""
    with look():
        return [*_rates(found.rates, folder), *(one for place in found.traces for one in _trace(place, folder))]


def _next_to(places: Sequence[LoadedWindow], kind: str, load_gbps: float) -> LoadedWindow | None:
    mine = [place for place in places if place.kind.traffic == kind]
    best = min(mine, key=lambda place: abs(place.load_bps / 1e9 - load_gbps), default=None)
    return best if best is not None and abs(best.load_bps / 1e9 - load_gbps) <= NEXT_TO_GBPS else None


def _rates(places: Sequence[LoadedWindow], folder: Path) -> list[Picture]:
    curves = [
        (f"{place.kind.traffic}, {place.requested_bps / 1e9:g} Gbit/s requested", rate)
        for place in places
        for window, _, rate in schedules.sent_rates(Run(place.path))
        if window == place.record.name and len(rate)
    ]
    if not curves:
        return []
    caption = (
        "Layer 2, captured where it is sent, in steps of a millisecond; the lowest class may be cut off; dotted: "
        "means. The thesis requests 24 Gbit/s."
    )
    title = "Rates of web search as sent, consistent and in bursts (as in Fig 3-8)"
    return [_picture("injection", title, caption, schedules.distribution(curves), folder)]


def _trace(place: LoadedWindow, folder: Path) -> list[Picture]:
    drawn = schedules.beside(Run(place.path), place.record.name)
    if drawn is None:
        return []
    title = f"Schedule and trace of {place.kind.traffic}, {place.load_bps / 1e9:.1f} Gbit/s (as in Figs B-4 and B-5)"
    return [_picture(f"trace-{place.kind.traffic}", title, drawn[1], drawn[0], folder)]


def _picture(name: str, title: str, caption: str, drawing: Any, folder: Path) -> Picture:
    return Picture(name=name, title=title, caption=caption, saved=save(drawing, folder / name))
