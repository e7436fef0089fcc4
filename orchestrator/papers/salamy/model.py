"""A measured curve with its fits and congestion point, for every part of a study's page."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.analysis.compare.curves import Series
from orchestrator.analysis.stats import fits
from orchestrator.analysis.stats.fits import Fit
from orchestrator.analysis.traffic import congestion
from orchestrator.analysis.traffic.congestion import CongestionPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """A curve with its congestion point, congested part, and fits."""

    series: Series
    point: CongestionPoint
    part: congestion.Curve
    candidates: tuple[Fit, ...]
    fit: Fit | None

    @property
    def whole(self) -> bool:
        return len(self.part.seconds) == len(self.series.points)


def analysed(series: Series) -> Analysed:
    """Compute the congestion point, the congested part, and the fits of that part."""
    of = series.curve
    point = congestion.congestion_point(of)
    part = congestion.congested_part(of, point)
    found = fits.candidates(part.load_bps, part.seconds, capacity_bps=series.capacity_bps, runs=part.runs)
    return Analysed(series=series, point=point, part=part, candidates=found, fit=fits.chosen(found))
