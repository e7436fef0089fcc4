"""Where congestion begins on a shared link, what training leaves unused of it, and its most congested point.

Salamy (2022), sections 3.1 to 3.4 and appendix A.2. What a load leaves of a link is its capacity less the load.
"""

from __future__ import annotations

import numpy as np

from orchestrator.analysis.stats.onset import NO_FLAT, RULES, Floats, Onset, onset
from orchestrator.questions.curves import same
from orchestrator.questions.registry import step
from orchestrator.questions.rows import REPETITION, Row, Rows, grouped


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
