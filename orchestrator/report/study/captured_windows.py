"""Read the captured windows of a point of a study: traffic of each, steps of a rank, bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.analysis.compare.points import MeasuredPoint, PointWindow
from orchestrator.analysis.stats.iterations import spent
from orchestrator.analysis.traffic import traffic
from orchestrator.analysis.traffic.traffic import Traffic, Volume
from orchestrator.report.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedWindow:
    """A captured window: its traffic, that of its whole run, and how many steps a rank carried out in it (mean)."""

    window: PointWindow
    run: Run
    traffic: Traffic
    whole: Traffic
    steps: float
    volume: Volume


def captured_windows(point: MeasuredPoint) -> Iterator[CapturedWindow]:
    """Yield the captured windows of a point in which its first training is alone."""
    for window in point.windows:
        run = Run(window.entry.path)
        job = point.job.name
        done = spent(run.table("iterations"), job, window.record.span_ns)
        if run.traffic is None or not done or len(window.manifest.jobs) != 1:
            continue
        part = traffic.within(run.traffic, *window.record.span_ns)
        steps = sum(done.values()) / len(done)
        if steps > 0:
            yield CapturedWindow(
                window=window,
                run=run,
                traffic=part,
                whole=run.traffic,
                steps=steps,
                volume=traffic.volume(part, steps=steps, scale=run.scale, job=job),
            )
