"""Summarise a captured window: bytes of a step and rates over time, small enough to hold hundreds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.traffic import traffic
from orchestrator.analysis.traffic.traffic import Volume
from orchestrator.report.study.captured_windows import CapturedWindow

Floats = npt.NDArray[np.float64]

STEP_NS = 10_000_000  # bins of rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Bytes of a step, and layer-2 Gbit/s at full size in bins of `width_s`.

    `run` is the run's name. `total` is of the whole training; `big` (flows, bins) are those that carry 99 % of the
    payload, the biggest first; `flows` counts all 5-tuples of the training in the whole run.
    """

    run: str
    volume: Volume
    flows: int
    total: Floats
    big: Floats
    width_s: float


def sight(of: CapturedWindow) -> Sight:
    """Summarise a window whose first training is alone."""
    found, job = of.traffic, of.window.manifest.jobs[0].name
    mine = traffic.of_job(found, job)
    width = max(1, round(STEP_NS / found.width_ns)) * found.width_ns
    rows = np.argsort(-np.where(mine, found.payload_bytes, -1), kind="stable")[: len(of.volume.big)]

    def rate(flows: traffic.Mask) -> Floats:
        return traffic.series(found, flows, width_ns=width) * 8 * of.run.scale / width

    return Sight(
        run=of.window.entry.run,
        volume=of.volume,
        flows=int((traffic.of_job(of.whole, job) & (of.whole.packets > 0)).sum()),
        total=rate(mine),
        big=np.array([rate(np.arange(len(found)) == row) for row in rows]),
        width_s=width / 1e9,
    )
