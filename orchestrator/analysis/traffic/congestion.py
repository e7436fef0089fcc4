"""Find congestion points of training beside cross traffic: needed bandwidth, onset, and unused capacity.

Salamy (2022), sections 3.1 to 3.4 and appendix A.2. Loads are layer-2 cross traffic as captured, at full size; "left"
is capacity minus load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BYTES_PER_PARAMETER = 4  # float32
FLAT_WITHIN = 0.05  # what is flat stays so close to the time at the lowest load
FLAT_SHARE = 0.2  # of the capacity that a flat region must reach, to be called one
FEWEST_FLAT = 3
DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Mean iteration times over loads, one job on one link; arrays of shape (points,), ordered by load.

    `error_s` is the standard error of each mean (NaN where it is not known) with its degrees of `freedom`,
    `theory_bytes` what a rank must send an iteration (eq. 3.1), and `runs` the mean of each run at each point (seconds,
    by the run's name; nothing where points are runs of their own).
    """

    load_bps: Floats
    seconds: Floats
    error_s: Floats
    freedom: Floats
    capacity_bps: float
    theory_bytes: float
    runs: tuple[Mapping[str, float], ...] = ()

    @property
    def left_bps(self) -> Floats:
        return self.capacity_bps - self.load_bps

    def without(self, keep: npt.NDArray[np.bool_]) -> Curve:
        """Return the curve without the points where the mask is False."""
        return curve(
            self.load_bps[keep],
            self.seconds[keep],
            self.error_s[keep],
            self.freedom[keep],
            capacity_bps=self.capacity_bps,
            theory_bytes=self.theory_bytes,
            runs=tuple(one for one, kept in zip(self.runs, keep, strict=True) if kept) if self.runs else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The parameters of appendix A.2's construction, which the thesis did by eye.

    The tangent is a line through the first `tangent_points` points whose time is above `above` times that at the lowest
    load.
    """

    above: float
    tangent_points: int


# Fixed before anything was measured, in the middle of RULES; the interval over all of them says what it is worth.
RULE = Rule(above=1.1, tangent_points=3)
RULES = tuple(Rule(above=above, tangent_points=count) for above in (1.05, 1.1, 1.2, 1.3, 1.5) for count in (2, 3, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """The crossing of the flat region's line and the tangent, and the measured point next to it (appendix A.2).

    `flat` and `tangent` are the lines: seconds without load, and by which they grow for each bit/s of it.
    """

    crossing_bps: float
    load_bps: float
    seconds: float
    volume_bytes: float  # left x time at the measured point: as if all that is left were used
    flat: tuple[float, float]
    tangent: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CongestionPoint:
    """The onset under RULE, or why there is none; intervals of the crossing, in bit/s.

    `over_rules` is the lowest and the highest one over RULES, `over_draws` the 95 % interval when the means vary by
    their standard errors (None as well where one of them is not known), and `found` the shares of rules and of draws
    that gave any.
    """

    onset: Onset | None
    why: str
    over_rules: tuple[float, float] | None
    over_draws: tuple[float, float] | None
    found: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MostCongested:
    """The point of the highest load: the bandwidth that theory needs for its iteration time, and what was left."""

    load_bps: float
    seconds: float
    needed_bps: float
    used_bps: float


def curve(
    load_bps: npt.ArrayLike,
    seconds: npt.ArrayLike,
    error_s: npt.ArrayLike = math.nan,
    freedom: npt.ArrayLike = math.inf,
    *,
    capacity_bps: float,
    theory_bytes: float,
    runs: Sequence[Mapping[str, float]] = (),
) -> Curve:
    """Return a curve of points in any order; those without a time, or at the capacity and above, are left out."""
    loads, times = np.asarray(load_bps, np.float64), np.asarray(seconds, np.float64)
    errors, freedoms = (np.broadcast_to(np.asarray(one, np.float64), loads.shape) for one in (error_s, freedom))
    usable = np.isfinite(times) & (times > 0) & (loads < capacity_bps)
    order = np.argsort(loads[usable], kind="stable")
    return Curve(
        load_bps=loads[usable][order],
        seconds=times[usable][order],
        error_s=errors[usable][order],
        freedom=freedoms[usable][order],
        capacity_bps=capacity_bps,
        theory_bytes=theory_bytes,
        runs=tuple(runs[place] for place in np.flatnonzero(usable)[order].tolist()) if runs else (),
    )


def theory_bytes(parameters: int, hosts: int) -> float:
    """Return the bytes that a rank sends in an iteration of a ring all-reduce of float32 gradients (eq. 3.1)."""
    return 2 * (hosts - 1) / hosts * parameters * BYTES_PER_PARAMETER


def theory_bps(volume_bytes: float, iteration_s: float) -> float:
    """Return the mean bandwidth (bit/s) that a volume an iteration takes (Table 3.1)."""
    return volume_bytes * 8 / iteration_s


def rescaled(load_bps: npt.ArrayLike, capacity_bps: float) -> Floats:
    """Return loads on the axis on which the capacity lies at infinity: C / (C - load), 1 without load (eq. 3.2)."""
    found: Floats = capacity_bps / (capacity_bps - np.asarray(load_bps, np.float64))
    return found


def flat_points(of: Curve) -> int:
    """Return how many of the first points form a flat region; 0 where there is none.

    It begins at the lowest load, stays within FLAT_WITHIN of its time, holds FEWEST_FLAT points, and reaches FLAT_SHARE
    of the capacity: a model that fills the link by itself slows down from the first bit of cross traffic on.
    """
    if not len(of.seconds):
        return 0
    flat = of.seconds <= (1 + FLAT_WITHIN) * of.seconds[0]
    count = int(np.argmin(flat)) if not flat.all() else len(flat)
    reaches = of.load_bps[count - 1] >= FLAT_SHARE * of.capacity_bps
    return count if count >= FEWEST_FLAT and reaches else 0


def congestion_point(of: Curve, *, seed: int = 1) -> CongestionPoint:
    """Return the congestion point by RULE, and how much it depends on the rule and on the data."""
    onset, why = _onset(of, RULE)
    by_rule = [found.crossing_bps for rule in RULES if (found := _onset(of, rule)[0])]
    varied = _drawn(of, np.random.default_rng(seed))
    by_draw = [found.crossing_bps for times in varied if (found := _onset(_with(of, times), RULE)[0])]
    return CongestionPoint(
        onset=onset,
        why=why,
        over_rules=(min(by_rule), max(by_rule)) if by_rule else None,
        over_draws=(float(np.quantile(by_draw, 0.025)), float(np.quantile(by_draw, 0.975))) if by_draw else None,
        found=(len(by_rule) / len(RULES), len(by_draw) / len(varied) if len(varied) else math.nan),
    )


def congested_part(of: Curve, point: CongestionPoint) -> Curve:
    """Return the points at and beyond the congestion point; all of them for a model without a flat region."""
    if point.onset is None:
        return of
    return of.without(of.load_bps >= point.onset.load_bps)


def most_congested(of: Curve) -> MostCongested | None:
    """Return needed and left bandwidth at the highest load (Tables 3.3, 3.5, 3.7); None for a curve without points."""
    if not len(of.seconds):
        return None
    load, seconds = float(of.load_bps[-1]), float(of.seconds[-1])
    needed = theory_bps(of.theory_bytes, seconds)
    return MostCongested(load_bps=load, seconds=seconds, needed_bps=needed, used_bps=of.capacity_bps - load)


def spare_bps(of: Curve, point: CongestionPoint, *, up_to_bps: float = math.inf) -> float:
    """Return bandwidth that is left and not needed, mean over the saturated points (Table 3.8); NaN without any.

    Saturated is what lies beyond the congestion point, and under load at all. The thesis leaves out "very heavy" loads
    without saying which: that is what `up_to_bps` is for.
    """
    part = congested_part(of, point)
    saturated = (part.load_bps > 0) & (part.load_bps <= up_to_bps)
    if not saturated.any():
        return math.nan
    needed = theory_bps(part.theory_bytes, 1.0) / part.seconds[saturated]
    return float(np.mean(part.left_bps[saturated] - needed))


def nearest(of: Curve, share: float) -> int | None:
    """Return the index of the point whose load is closest to this share of the capacity.

    None farther off than a twentieth.

    Fig 3-5 takes 30 and 80 %.
    """
    if not len(of.load_bps):
        return None
    off = np.abs(of.load_bps - share * of.capacity_bps)
    place = int(np.argmin(off))
    return place if off[place] <= of.capacity_bps / 20 else None


def cdf(seconds: Sequence[npt.ArrayLike]) -> tuple[Floats, Floats]:
    """Return the times of all iterations in order, and the share of iterations that took at most so long (Fig 3-5)."""
    values = np.sort(np.concatenate([np.asarray(one, np.float64) for one in seconds])) if len(seconds) else np.zeros(0)
    return values, np.arange(1, len(values) + 1) / max(1, len(values))


def _drawn(of: Curve, draw: np.random.Generator) -> Floats:
    """Draw DRAWS times the means from their errors, shape (draws, points); none where an error is not known."""
    if np.isnan(of.error_s).any():
        return np.zeros((0, len(of.seconds)))
    # An error of few runs is itself uncertain: Student's t, about normal at very many degrees of freedom.
    shape = (DRAWS, len(of.seconds))
    varied: Floats = of.seconds + draw.standard_t(np.minimum(of.freedom, 1e6), shape) * of.error_s
    return varied


def _with(of: Curve, seconds: Floats) -> Curve:
    return Curve(
        load_bps=of.load_bps,
        seconds=seconds,
        error_s=of.error_s,
        freedom=of.freedom,
        capacity_bps=of.capacity_bps,
        theory_bytes=of.theory_bytes,
    )


def _onset(of: Curve, rule: Rule) -> tuple[Onset | None, str]:
    flat = flat_points(of)
    if not flat:
        return None, (
            "none: it has no flat region, its time grows from the lowest loads on"
            if len(of.seconds) >= FEWEST_FLAT
            else "none: too few points"
        )
    steep = np.flatnonzero(of.seconds > rule.above * of.seconds[0])
    steep = steep[steep >= flat][: rule.tangent_points]
    if len(steep) < rule.tangent_points:
        return None, f"none: fewer than {rule.tangent_points} points lie above {rule.above:g} times the lowest time"
    level, rise = _line(of.load_bps[:flat], of.seconds[:flat])
    start, slope = _line(of.load_bps[steep], of.seconds[steep])
    if slope <= rise:
        return None, "none: the tangent does not rise"
    crossing = (level - start) / (slope - rise)
    if not 0 < crossing < of.capacity_bps:
        return None, "none: the lines do not cross on the link"
    place = _closest(of, crossing, level + rise * crossing)
    load, seconds = float(of.load_bps[place]), float(of.seconds[place])
    volume = (of.capacity_bps - load) * seconds / 8
    return Onset(
        crossing_bps=crossing,
        load_bps=load,
        seconds=seconds,
        volume_bytes=volume,
        flat=(level, rise),
        tangent=(start, slope),
    ), ""


def _closest(of: Curve, load_bps: float, seconds: float) -> int:
    """Return the measured point next to a place in the graph, whose axes end with the points."""
    width, height = float(np.ptp(of.load_bps)) or 1.0, float(np.ptp(of.seconds)) or 1.0
    off = ((of.load_bps - load_bps) / width) ** 2 + ((of.seconds - seconds) / height) ** 2
    return int(np.argmin(off))


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    intercept, slope = np.polynomial.polynomial.polyfit(x, y, 1)
    return float(intercept), float(slope)
