"""Tell what a testbed's scale costs: the same windows simulated at its scale and at full size, packet by packet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from orchestrator.core.errors import ConfigError
from orchestrator.core.screen import layout
from orchestrator.experiment import fitting
from orchestrator.experiment.experiment import Experiment
from orchestrator.predict import foreseeing
from orchestrator.predict.foreseeing import ForeseenJob, How
from orchestrator.predict.measured_windows import MeasuredWindow
from orchestrator.predict.network_costs import Costs

MOST_PACKETS = 4_000_000  # of a window at full size: a few seconds a draw
LEAST_ITERATIONS = 20  # of which a 99th percentile is more than the maximum of a few

_STATISTICS = ("mean", "p50", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class BothSizes:
    """A job's iterations in a window by simulation at the testbed's scale and at full size, as many of both.

    `planned` iterations are those of the window; `measured` is of the testbed, at its scale.
    """

    label: str
    window: str
    traffic: tuple[str, ...]
    scaled: ForeseenJob
    full: ForeseenJob
    iterations: int
    planned: int
    measured: MeasuredWindow | None

    def cost(self, statistic: str) -> float:
        """Return by how much the scale makes a statistic ("mean", "p50", "p99") longer, as a share of full size."""
        scaled, full = getattr(self.scaled, statistic), getattr(self.full, statistic)
        return float(scaled.value / full.value - 1.0)


def of_experiment(
    experiment: Experiment,
    costs: Costs,
    *,
    file: str,
    how: How,
    label: str = "",
    measured: Mapping[tuple[str, str], MeasuredWindow],
) -> list[BothSizes]:
    """Simulate every window at both sizes, with the same costs of messages; ConfigError where there is no scale.

    At full size bytes, rates and queues are those of a cluster, and time-outs are what they are. Of windows with more
    than MOST_PACKETS there the first iterations are simulated, at both sizes.
    """
    topology = fitting.topology_of(experiment)
    if topology.wire_scale == 1:
        raise ConfigError(f"--full-size: {file} is of full size already; accepted: a local testbed with a scale")
    how = replace(how, grain="packets")
    large = foreseeing.foresee(
        experiment, costs, file=file, how=replace(how, full_size=True, most_packets=MOST_PACKETS)
    )
    few = {window.window: window.iterations for window in large}
    scaled = foreseeing.foresee(experiment, costs, file=file, how=replace(how, iterations=few))
    planned = {
        window.name: (window.measure or experiment.measure).iterations or foreseeing.ITERATIONS
        for window in experiment.all_windows()
    }
    return [
        BothSizes(
            label=label,
            window=one.window,
            traffic=one.traffic,
            scaled=job,
            full=other,
            iterations=one.iterations,
            planned=planned[one.window],
            measured=measured.get((one.window, job.job)),
        )
        for one, full in zip(scaled, large, strict=True)
        for job, other in zip(one.jobs, full.jobs, strict=True)
    ]


def text(found: Sequence[BothSizes]) -> str:
    """Return both sizes beside each other as a table, with what the scale costs and what was measured."""
    head = [
        "mean, p50, p99 in ms",
        "at scale",
        "at full size",
        "the scale\ncosts %",
        "measured\nat scale",
        "iterations",
    ]
    parts = [
        layout.table(*layout.saying(head, [_row(one) for one in found])),
        "both simulated packet by packet with the same flows and the same costs of messages: the difference is that a "
        "packet, its headers and the queues in packets have no scale",
    ]
    short = [one for one in found if one.iterations < one.planned]
    if short:
        parts.append(
            f"windows of over {MOST_PACKETS / 1e6:g} million packets at full size are shortened; a 99th percentile "
            f"of fewer than {LEAST_ITERATIONS} iterations is the longest of a few"
        )
    return "\n\n".join(parts)


def _row(one: BothSizes) -> list[str]:
    where = [name for name in (one.label, one.window, one.scaled.job) if name]
    shortened = f"{one.iterations} of {one.planned}" if one.iterations < one.planned else str(one.iterations)
    measured = "-"
    if one.measured is not None:
        measured = _several([one.measured.mean_s, one.measured.p50_s, one.measured.p99_s])
    return [
        ", ".join([*where, " + ".join(one.traffic) or "no cross traffic"]),
        _several([getattr(one.scaled, name).value for name in _STATISTICS]),
        _several([getattr(one.full, name).value for name in _STATISTICS]),
        ", ".join(f"{one.cost(name) * 100:+.1f}" for name in _STATISTICS),
        measured,
        shortened,
    ]


def _several(seconds: Sequence[float]) -> str:
    return ", ".join(f"{value * 1e3:.1f}" for value in seconds)


def data(found: Sequence[BothSizes]) -> list[dict[str, Any]]:
    """Return the same as JSON data, times in seconds."""
    return [
        {
            "setting": one.label,
            "window": one.window,
            "job": one.scaled.job,
            "traffic": list(one.traffic),
            "iterations": one.iterations,
            "planned": one.planned,
            "scaled": {f"{name}_s": asdict(getattr(one.scaled, name)) for name in _STATISTICS},
            "full_size": {f"{name}_s": asdict(getattr(one.full, name)) for name in _STATISTICS},
            "scale_costs": {name: one.cost(name) for name in _STATISTICS},
        }
        for one in found
    ]
