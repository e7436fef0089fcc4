"""Captured windows of points, summarised: bytes of a step, flows, and rates over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.compare.points import MeasuredPoint, PointWindow
from orchestrator.analysis.stats.iterations import spent
from orchestrator.analysis.traffic import traffic
from orchestrator.analysis.traffic.traffic import Traffic, Volume
from orchestrator.questions.rows import Measured
from orchestrator.report.runs import Run

Floats = npt.NDArray[np.float64]

WIDTH_NS = 10_000_000  # bins of rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A captured window: its traffic, that of its whole run, and how many steps a rank carried out in it (mean)."""

    window: PointWindow
    run: Run
    traffic: Traffic
    whole: Traffic
    steps: float

    def summary(self, job: str) -> Summary:
        """Return what most questions need of it, without its traffic."""
        mine = traffic.of_job(self.traffic, job)
        rows = np.flatnonzero(mine & (self.traffic.payload_bytes > 0))
        rows = rows[np.argsort(-self.traffic.payload_bytes[rows], kind="stable")]
        width_ns = max(1, round(WIDTH_NS / self.traffic.width_ns)) * self.traffic.width_ns

        def rate(flows: traffic.Mask) -> Floats:
            return traffic.series(self.traffic, flows, width_ns=width_ns) * 8 * self.run.scale / width_ns

        hosts = self.traffic.hosts
        return Summary(
            run=self.window.entry.run,
            volume=traffic.volume(self.traffic, steps=self.steps, scale=self.run.scale, job=job),
            flows=int((traffic.of_job(self.whole, job) & (self.whole.packets > 0)).sum()),
            total=rate(mine),
            each=np.array([rate(np.arange(len(self.traffic)) == row) for row in rows]),
            pairs=tuple((hosts[self.traffic.src[row]], hosts[self.traffic.dst[row]]) for row in rows),
            width_s=width_ns / 1e9,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Bytes of a step at full size, and layer-2 rates (Gbit/s at full size) in bins of `width_s`.

    `total` is of the whole training; `each` (flows, bins) of its flows with payload in the window, the one with most
    first, whose ends `pairs` has. `flows` counts all 5-tuples of the training in the whole run, one a direction.
    """

    run: str
    volume: Volume
    flows: int
    total: Floats
    each: Floats
    pairs: tuple[tuple[str, str], ...]
    width_s: float

    @property
    def big(self) -> Floats:
        """Rates of the flows that carry 99 % of the payload together."""
        return self.each[: len(self.volume.big)]


def windows(point: MeasuredPoint) -> Iterator[Captured]:
    """Yield the captured windows of a point in which its first training is alone."""
    for window in point.windows:
        run = Run(window.entry.path)
        done = spent(run.table("iterations"), point.job.name, window.record.span_ns)
        if run.traffic is None or not done or len(window.manifest.jobs) != 1:
            continue
        steps = sum(done.values()) / len(done)
        if steps > 0:
            part = traffic.within(run.traffic, *window.record.span_ns)
            yield Captured(window=window, run=run, traffic=part, whole=run.traffic, steps=steps)


def summaries(measured: Measured, point: MeasuredPoint) -> tuple[Summary, ...]:
    """Return the summaries of a point's captured windows that carried something; each run is read once."""

    def read() -> tuple[Summary, ...]:
        found = (one.summary(point.job.name) for one in windows(point))
        return tuple(one for one in found if one.volume.step_payload > 0)

    return measured.once(("captured", id(point)), read)
