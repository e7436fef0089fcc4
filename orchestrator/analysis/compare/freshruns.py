"""Windows of many while the ranks stayed up, held against the same in runs of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.compare.curves import Kind, windows_of
from orchestrator.analysis.stats.levels import level
from orchestrator.analysis.stats.statistics import UNKNOWN, Estimate, summarise
from orchestrator.store.rundir import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Medians of a window of many and of the same in a fresh run, in seconds; intervals are of each run alone.

    `runs` are the two runs.
    """

    kind: Kind
    load_bps: float
    among: Estimate
    alone: Estimate
    runs: tuple[str, str]


def checks(entries: Iterable[Entry]) -> tuple[Check, ...]:
    """Every point of a sweep in windows mode that was measured again in a run of its own."""
    windows = [window for entry in entries for window in windows_of(entry) if window.place.point]
    found = []
    for alone in windows:
        others = [one for one in windows if not one.place.recheck and one.place.point == alone.place.point]
        if alone.place.recheck and others:
            among = others[-1]
            found.append(
                Check(
                    kind=alone.kind,
                    load_bps=alone.place.load_bps,
                    among=summarise(among.seconds).p50,
                    alone=summarise(alone.seconds).p50,
                    runs=(among.place.path.name, alone.place.path.name),
                )
            )
    return tuple(found)


def agreement(found: Sequence[Check]) -> Estimate:
    """A fresh run's median over that of a window among others, over all checks; the interval needs two of them."""
    ratios = [Estimate(one.alone.value / one.among.value, math.nan, math.nan) for one in found]
    return level(ratios).estimate if ratios else UNKNOWN
