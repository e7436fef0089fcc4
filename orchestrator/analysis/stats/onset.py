"""Where congestion begins on a curve of times over a load: appendix A.2 of Salamy (2022).

A line through the flat region of low loads meets the tangent, a line through the first points that are clearly slower.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Line = tuple[float, float]  # seconds without load, and by which they grow for each Gbit/s of it

FLAT_WITHIN = 0.05  # what is flat stays so close to the time at the lowest load
FLAT_SHARE = 0.2  # of the capacity that a flat region must reach, to be called one
FEWEST_FLAT = 3
GAP_SHARE = 0.35  # of the capacity: points further apart do not tell where a flat region ends
NO_FLAT = "none: it has no flat region, its time grows from the lowest loads on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The parameters of appendix A.2's construction, which the thesis did by eye.

    The tangent is a line through the first `tangent_points` points whose time is above `above` times that at the lowest
    load.
    """

    above: float
    tangent_points: int


# Fixed before anything was measured, in the middle of RULES; the range over all of them says what it is worth.
RULE = Rule(above=1.1, tangent_points=3)
RULES = tuple(Rule(above=above, tangent_points=count) for above in (1.05, 1.1, 1.2, 1.3, 1.5) for count in (2, 3, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """The crossing of the flat region's line and the tangent, and the index of the measured point next to it."""

    crossing_gbps: float
    place: int
    flat: Line
    tangent: Line


def flat_points(load_gbps: Floats, seconds: Floats, capacity_gbps: float) -> int:
    """Return how many of the first points form a flat region; 0 where there is none.

    It begins at the lowest load, stays within FLAT_WITHIN of its time, holds FEWEST_FLAT points, and reaches FLAT_SHARE
    of the capacity: a model that fills the link by itself slows down from the first bit of cross traffic on.
    """
    flat = seconds <= (1 + FLAT_WITHIN) * seconds[0]
    count = int(np.argmin(flat)) if not flat.all() else len(flat)
    return count if count >= FEWEST_FLAT and load_gbps[count - 1] >= FLAT_SHARE * capacity_gbps else 0


def onset(load_gbps: Floats, seconds: Floats, capacity_gbps: float, rule: Rule = RULE) -> Onset | str:
    """Return where congestion begins by appendix A.2's construction, points ordered by load; or why nowhere."""
    if unclear := _unclear(load_gbps, seconds, capacity_gbps):
        return unclear
    flat = flat_points(load_gbps, seconds, capacity_gbps)
    if not flat:
        return NO_FLAT
    steep = steep_points(seconds, flat, rule)
    if len(steep) < rule.tangent_points:
        return f"none: fewer than {rule.tangent_points} points lie above {rule.above:g} times the lowest time"
    lines = fitted(load_gbps, seconds, flat, steep)
    (level, rise), (_, slope) = lines
    if slope <= rise:
        return "none: the tangent does not rise"
    crossing = crossing_of(*lines)
    if not 0 < crossing < capacity_gbps:
        return "none: the lines do not cross on the link"
    # The measured point next to the crossing, in the graph whose axes end with the points.
    width, height = float(np.ptp(load_gbps)) or 1.0, float(np.ptp(seconds)) or 1.0
    off = ((load_gbps - crossing) / width) ** 2 + ((seconds - level - rise * crossing) / height) ** 2
    return Onset(crossing_gbps=crossing, place=int(np.argmin(off)), flat=lines[0], tangent=lines[1])


def fitted(load_gbps: Floats, seconds: Floats, flat: int, steep: Places) -> tuple[Line, Line]:
    """Return the lines through the first `flat` points, and through those at the places `steep`."""
    return _line(load_gbps[:flat], seconds[:flat]), _line(load_gbps[steep], seconds[steep])


def crossing_of(flat: Line, tangent: Line) -> float:
    """Return the load at which both lines meet."""
    return (flat[0] - tangent[0]) / (tangent[1] - flat[1])


def steep_points(seconds: Floats, flat: int, rule: Rule = RULE) -> Places:
    """Return the places of the tangent's points, beyond the first `flat` ones."""
    steep = np.flatnonzero(seconds > rule.above * seconds[0])
    return steep[steep >= flat][: rule.tangent_points]


def _unclear(load_gbps: Floats, seconds: Floats, capacity_gbps: float) -> str:
    """Return why these points do not tell where a flat region ends; empty where they do."""
    if len(load_gbps) < FEWEST_FLAT:
        return "none: too few points"
    grown = np.flatnonzero(seconds > (1 + FLAT_WITHIN) * seconds[0])
    if not len(grown):
        return ""
    below, beyond = load_gbps[grown[0] - 1], load_gbps[grown[0]]
    wide = beyond - below > GAP_SHARE * capacity_gbps
    return f"none: no point between {below:.3g} and {beyond:.3g} Gbit/s" if wide else ""


def _line(x: Floats, y: Floats) -> Line:
    intercept, slope = np.polynomial.polynomial.polyfit(x, y, 1)
    return float(intercept), float(slope)
