"""Where the iterations of a split model went, rank by rank (Li, figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.experiment import loading
from orchestrator.parts.terms import NAMES, Terms
from orchestrator.predict import beside
from orchestrator.report.runs import Run
from orchestrator.report.style import SERIES, SOFT, figure, legend

Floats = npt.NDArray[np.float64]

WORKLOAD = "ptd"


def by_rank(run: Run) -> tuple[Any, str] | None:
    """A bar for each rank of the first job of `ptd` that recorded what it did; None where there is none."""
    if not any(job.workload == WORKLOAD for job in run.manifest.jobs):
        return None
    try:
        experiment = loading.sealed(run.path)
    except (ConfigError, StoreError):
        return None
    found = beside.recorded(run.path, experiment)
    if not any(terms.exposed_s for terms in found.values()):
        return None
    ranks = sorted(found)
    drawing, (panel,) = figure(height_in=2.6)
    stacked(panel, np.array(ranks, float), [found[rank] for rank in ranks], width=0.7)
    panel.set(xlabel="rank", ylabel="iteration (ms)")
    panel.set_xticks(ranks)
    legend(panel, columns=7)
    return drawing, (
        "Medians over iterations. A receive counts as pipeline traffic from when its sender had begun, and before as "
        "part of the bubble; `orch predict` on the experiment shows what a model says of rank 0."
    )


def stacked(panel: Any, places: Floats, terms: Sequence[Terms], *, width: float, labelled: bool = True) -> None:
    """Bars of terms, in ms, at these places; terms that none of them has are left out."""
    below = np.zeros(len(places))
    for number, name in enumerate(NAMES):
        values = np.array([getattr(one, name) for one in terms]) * 1e3
        if values.any():
            color = SERIES[number] if number < len(SERIES) else SOFT
            label = name.removesuffix("_s") if labelled else None
            panel.bar(places, values, width, bottom=below, color=color, label=label)
            below += values
