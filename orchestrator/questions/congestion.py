"""Where congestion begins on a shared link, what training leaves unused of it, and its most congested point.

Salamy (2022), sections 3.1 to 3.4 and appendix A.2. What a load leaves of a link is its capacity less the load.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.questions.curves import same
from orchestrator.questions.registry import step
from orchestrator.questions.rows import REPETITION, Row, Rows, grouped

Floats = npt.NDArray[np.float64]

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
    """The crossing of the flat region's line and the tangent, and the index of the measured point next to it.

    `flat` and `tangent` are the lines: seconds without load, and by which they grow for each Gbit/s of it.
    """

    crossing_gbps: float
    place: int
    flat: tuple[float, float]
    tangent: tuple[float, float]


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
    steep = np.flatnonzero(seconds > rule.above * seconds[0])
    steep = steep[steep >= flat][: rule.tangent_points]
    if len(steep) < rule.tangent_points:
        return f"none: fewer than {rule.tangent_points} points lie above {rule.above:g} times the lowest time"
    level, rise = _line(load_gbps[:flat], seconds[:flat])
    start, slope = _line(load_gbps[steep], seconds[steep])
    if slope <= rise:
        return "none: the tangent does not rise"
    crossing = (level - start) / (slope - rise)
    if not 0 < crossing < capacity_gbps:
        return "none: the lines do not cross on the link"
    # The measured point next to the crossing, in the graph whose axes end with the points.
    width, height = float(np.ptp(load_gbps)) or 1.0, float(np.ptp(seconds)) or 1.0
    off = ((load_gbps - crossing) / width) ** 2 + ((seconds - level - rise * crossing) / height) ** 2
    return Onset(crossing_gbps=crossing, place=int(np.argmin(off)), flat=(level, rise), tangent=(start, slope))


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


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    intercept, slope = np.polynomial.polynomial.polyfit(x, y, 1)
    return float(intercept), float(slope)


def by_load(rows: Rows) -> Rows:
    """Return the rows of a curve below its capacity, ordered by their load."""
    return sorted((row for row in rows if row["load_gbps"] < row["capacity_gbps"]), key=lambda row: row["load_gbps"])


def _arrays(rows: Rows) -> tuple[Floats, Floats, float]:
    loads, times = (np.array([row[name] for row in rows], np.float64) for name in ("load_gbps", "seconds"))
    return loads, times, float(rows[0]["capacity_gbps"])


@step
def congestion_point(rows: Rows, *, by: list[str]) -> Rows:
    """Return where congestion begins on each curve (the rows of `curves` with the same `by`), by repetition.

    A line through the flat region meets the tangent, a line through the first three points above 1.1 times the lowest
    time (appendix A.2 of Salamy, 2022; fixed beforehand, since the thesis draws by eye): `crossing_gbps`. At the
    measured point next to it, `load_gbps` and `seconds`; `volume_mb` is what all that the load leaves carries in that
    time, `over_theory_pct` how much that is above `theory_mb`. `lowest_gbps` and `highest_gbps` are the crossings over
    fifteen rules, and `rules_pct` the share of them that find one. `why` says why there is no point.
    """
    found: Rows = []
    for of_all in grouped(rows, [*by, REPETITION]).values():
        points = by_load(of_all)
        if not points:
            continue
        loads, times, capacity = _arrays(points)
        by_rule = [one.crossing_gbps for rule in RULES if isinstance(one := onset(loads, times, capacity, rule), Onset)]
        row: Row = {
            **same(of_all),
            "lowest_gbps": min(by_rule) if by_rule else None,
            "highest_gbps": max(by_rule) if by_rule else None,
            "rules_pct": 100 * len(by_rule) / len(RULES),
        }
        one = onset(loads, times, capacity)
        if isinstance(one, str):
            empty = dict.fromkeys(("crossing_gbps", "load_gbps", "seconds", "volume_mb", "over_theory_pct"))
            found.append({**row, **empty, "why": one})
            continue
        volume_mb = (capacity - loads[one.place]) * times[one.place] / 8 * 1e3
        found.append(
            {
                **row,
                "crossing_gbps": one.crossing_gbps,
                "load_gbps": float(loads[one.place]),
                "seconds": float(times[one.place]),
                "volume_mb": float(volume_mb),
                "over_theory_pct": 100 * (float(volume_mb) / points[0]["theory_mb"] - 1),
                "why": "",
            }
        )
    return found


@step
def congestion_lines(rows: Rows, *, by: list[str]) -> Rows:
    """Return the construction of the congestion point to draw it: points, the flat line, the tangent, and the reading.

    `line` says what a row is of: measured, flat region, tangent, or congestion point (from the point to both axes).
    Curves without a congestion point have no rows; lines are of the first repetition.
    """
    found: Rows = []
    for of_all in grouped(rows, [*by, REPETITION]).values():
        points = by_load(of_all)
        if not points or points[0][REPETITION] != 1:
            continue
        loads, times, capacity = _arrays(points)
        one = onset(loads, times, capacity)
        if isinstance(one, str):
            continue
        drawn = {"measured": list(zip(loads, times, strict=True))}
        span = np.linspace(0, float(loads[-1]), 30)
        for name, (start, slope) in (("flat region", one.flat), ("tangent", one.tangent)):
            line = start + slope * span
            shown = (line > 0) & (line <= 1.05 * times.max())
            drawn[name] = list(zip(span[shown], line[shown], strict=True))
        at, height = float(loads[one.place]), float(times[one.place])
        drawn["congestion point"] = [(at, 0.0), (at, height), (0.0, height)]
        found += [
            {**same(of_all), "line": name, "load_gbps": float(x), "seconds": float(y)}
            for name, places in drawn.items()
            for x, y in places
        ]
    return found


@step
def saturated(rows: Rows, *, by: list[str], up_to: float = 1.0) -> Rows:
    """Return the points of each curve at which the link is saturated: from its congestion point on, by repetition.

    Where its time grows from the lowest loads on, all points under load; none where its points do not tell where
    congestion begins. `up_to` is the share of the capacity up to which loads count.
    """
    found: Rows = []
    for of_all in grouped(rows, [*by, REPETITION]).values():
        points = by_load(of_all)
        if not points:
            continue
        loads, times, capacity = _arrays(points)
        one = onset(loads, times, capacity)
        if isinstance(one, str) and one != NO_FLAT:
            continue
        begin = 0.0 if isinstance(one, str) else float(loads[one.place])
        found += [row for row in points if row["load_gbps"] > 0 and begin <= row["load_gbps"] <= up_to * capacity]
    return found
