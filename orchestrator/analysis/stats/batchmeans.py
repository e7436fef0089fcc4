"""Means of whole runs by batch means: each run cut into windows whose means are taken for independent.

Law, Simulation Modeling and Analysis (5th edition), section 9.5.3; Zerwas et al. take 30 samples of ten runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.statistics import TAIL, Estimate, student_t

Floats = npt.NDArray[np.float64]
SAMPLES = 30  # of all runs together


def samples(series: Sequence[Floats], *, wanted: int = SAMPLES) -> Floats:
    """Means of about `wanted` windows of equal length, each within one series, as many of each series.

    What is left over at a series' end belongs to no window. A series with fewer values than windows gives one a value.
    """
    if not series:
        return np.zeros(0)
    of_each = max(1, round(wanted / len(series)))
    found = []
    for values in series:
        count = min(of_each, len(values))
        if count:
            size = len(values) // count
            found.append(np.asarray(values[: size * count], np.float64).reshape(count, size).mean(axis=1))
    return np.concatenate(found) if found else np.zeros(0)


def mean(series: Sequence[Floats], *, wanted: int = SAMPLES) -> Estimate:
    """The mean of several runs' series with Student's 95 % interval over their batch means; no bounds of one sample.

    The interval is about these runs' level as far as windows of a run are independent.
    """
    means = samples(series, wanted=wanted)
    if not len(means):
        return Estimate(math.nan, math.nan, math.nan)
    middle = float(means.mean())
    if len(means) < 2:
        return Estimate(middle, math.nan, math.nan)
    half = student_t(1 - TAIL, len(means) - 1) * float(means.std(ddof=1)) / math.sqrt(len(means))
    return Estimate(middle, middle - half, middle + half)
