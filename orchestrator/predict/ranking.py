"""Choose the settings with the shortest iterations by simulation, and tell how well runs agree with the choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.predict.foreseentext import ForeseenSetting

FEWEST = 3  # settings of which an order means something


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of jobs in windows that runs measured in two settings or more: how many, and of how many both agree on the best.

    `spearman` is the mean correlation of ranks of predicted and measured means; NaN with less than FEWEST settings.
    """

    compared: int
    same_best: int
    spearman: float


def best(found: Sequence[ForeseenSetting], count: int) -> list[int]:
    """Return the places of the settings with the shortest mean iterations over windows and jobs, the shortest first."""
    mean_s = [sum(job.mean.value for window in one.windows for job in window.jobs) for one in found]
    return sorted(range(len(found)), key=lambda place: mean_s[place])[:count]


def agreement(found: Sequence[ForeseenSetting]) -> Agreement:
    """Hold the predicted order of settings to the measured one, window by window and job by job."""
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in found:
        for window, job, measured in one.rows():
            if measured is not None:
                pairs.setdefault((window.window, job.job), []).append((job.mean.value, measured.mean_s))
    compared = [values for values in pairs.values() if len(values) > 1]
    return Agreement(
        compared=len(compared),
        same_best=sum(min(values)[1] == min(measured_s for _, measured_s in values) for values in compared),
        spearman=_spearman([values for values in compared if len(values) >= FEWEST]),
    )


def _spearman(compared: Sequence[Sequence[tuple[float, float]]]) -> float:
    if not compared:
        return math.nan
    from scipy import stats

    found = [stats.spearmanr([one for one, _ in values], [other for _, other in values]) for values in compared]
    return float(sum(one.statistic for one in found) / len(found))


def text(found: Agreement) -> str:
    """Return the agreement in one line."""
    if not found.compared:
        return "order: no two of these settings were measured; --measure measures them"
    order = "" if math.isnan(found.spearman) else f"; correlation of ranks (Spearman) {found.spearman:.2f}"
    return f"order: the best predicted was the best measured in {found.same_best} of {found.compared} windows{order}"


def data(found: Agreement) -> dict[str, Any]:
    """Return the same as JSON data."""
    return asdict(found) | {"spearman": None if math.isnan(found.spearman) else found.spearman}
