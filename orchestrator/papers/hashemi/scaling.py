"""Fig 2: step times and throughput over workers, by parameter servers and by all-reduce, and their crossing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.analysis.stats.agreement import ratio
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.papers.hashemi.published import Hashemi
from orchestrator.report.study import content
from orchestrator.report.study.content import Comparison, Section, Table
from orchestrator.report.style import LINES, SERIES, Picture, figure, from_zero, legend, look, save

SERVERS = "parameter-server"
ALL_REDUCES = ("ring", "halving-doubling")


@dataclass(frozen=True, slots=True)
class Curve:
    """Step times (s) of a model over workers, in their order: the mean over runs, and that of each run."""

    model: str
    strategy: str
    servers: int  # 0 for an all-reduce
    steps: dict[int, Estimate]
    runs: dict[int, list[float]]

    @property
    def name(self) -> str:
        return f"{self.servers} parameter servers" if self.servers else self.strategy


@dataclass(frozen=True, slots=True)
class Crossing:
    """The number of workers from which all-reduce is faster, between whole ones on a line through both neighbours.

    `value` is NaN where the means do not cross. `low` and `high` bound where they may, by the intervals of all step
    times: minus infinity where all-reduce may be faster with the fewest workers, infinity where it may never be.
    """

    value: float
    low: float
    high: float


def curves(points: Sequence[MeasuredPoint]) -> list[Curve]:
    """Return a curve for each model and strategy that was measured where an all-reduce was, too."""
    found: dict[tuple[Any, ...], dict[tuple[str, int], dict[int, MeasuredPoint]]] = {}
    for point in points:
        strategy = point.value("workload.p2p.strategy")
        if strategy not in (SERVERS, *ALL_REDUCES):
            continue
        servers = point.value("workload.p2p.servers", 1) if strategy == SERVERS else 0
        alike = tuple(
            str(point.value(path))
            for path in ("workload.p2p.model", "workload.p2p.compute_time", "workload.p2p.bucket", "testbed")
        )
        of_strategy = found.setdefault(alike, {}).setdefault((strategy, servers), {})
        of_strategy[len(point.job.ranks) - servers] = point
    return [
        Curve(
            alike[0],
            strategy,
            servers,
            {workers: point.mean_s for workers, point in sorted(measured.items())},
            {workers: point.run_means_s for workers, point in measured.items()},
        )
        for alike, strategies in found.items()
        if any(strategy in ALL_REDUCES for strategy, _ in strategies)
        for (strategy, servers), measured in strategies.items()
    ]


def crossing(servers: Curve, reduced: Curve) -> Crossing:
    """Return where parameter servers stop being faster, over the numbers of workers measured with both."""
    common = sorted(servers.steps.keys() & reduced.steps.keys())
    differences = [_difference(servers.steps[count], reduced.steps[count]) for count in common]
    value = _root(common, [one.value for one in differences])
    return Crossing(
        value=value if math.isfinite(value) else math.nan,
        low=_root(common, [one.high for one in differences]),
        high=_root(common, [one.low for one in differences]),
    )


def _difference(one: Estimate, other: Estimate) -> Estimate:
    """Return the difference of two independent means; half-widths of intervals add in squares."""
    middle = one.value - other.value
    return Estimate(
        middle,
        middle - math.hypot(one.value - one.low, other.high - other.value),
        middle + math.hypot(one.high - one.value, other.value - other.low),
    )


def _root(counts: Sequence[int], differences: Sequence[float]) -> float:
    """Return from where on the differences are above zero for good: -inf from the first on, inf nowhere."""
    if any(map(math.isnan, differences)):
        return math.nan
    if differences[-1] <= 0:
        return math.inf
    for (a, one), (b, other) in reversed(list(pairwise(zip(counts, differences, strict=True)))):
        if one <= 0 < other:
            return a + (b - a) * -one / (other - one)
    return -math.inf


def section(points: Sequence[MeasuredPoint], printed: Hashemi, folder: Path) -> Section:
    """Compare the figure, step times, and for each model where its curves cross."""
    found, few = curves(points), printed.claim("few")
    lines = [
        line for model in dict.fromkeys(curve.model for curve in found) for line in compared(found, model, printed)
    ]
    return Section(
        title="Fig 2: parameter servers and all-reduce over workers",
        text="Ring and halving-doubling are the report's bucket and halving-doubling all-reduce. A worker pulls each "
        "bucket of gradients from the servers as soon as its sum is there, while the next forward pass begins; after "
        "an all-reduce all workers go on together.",
        pictures=tuple(_drawn(found, folder)),
        comparisons=tuple(lines)
        or (content.cannot_tell(printed.check("few"), "who is faster", few.text, source=few.source),),
        tables=(_table(found),),
    )


def compared(found: Sequence[Curve], model: str, printed: Hashemi) -> list[Comparison]:
    """Compare who is faster with the fewest and with the most workers that both were measured with."""
    few, many = printed.claim("few"), printed.claim("many")
    of_model = [curve for curve in found if curve.model == model]
    lines = []
    for servers in (curve for curve in of_model if curve.servers):
        for reduced in (curve for curve in of_model if not curve.servers):
            common = sorted(servers.steps.keys() & reduced.steps.keys())
            if len(common) < 2:
                continue
            where = crossing(servers, reduced)
            what = f"{model}, {servers.name} and {reduced.name}"
            lines += [
                *(
                    content.claimed(
                        printed.check(claim.what),
                        f"{what}: step by servers over that by all-reduce, {count} workers",
                        ratio(servers.runs[count], reduced.runs[count]),
                        told=_both(servers, reduced, count),
                        printed=claim.text,
                        source=claim.source,
                    )
                    for claim, count in ((few, common[0]), (many, common[-1]))
                ),
                content.remark(
                    f"{what}: where they cross",
                    told(where, common),
                    "they cross",
                    source=few.source,
                    why="it follows from who is faster with few and with many workers",
                ),
            ]
    return lines


def _both(servers: Curve, reduced: Curve, count: int) -> str:
    return f"{servers.steps[count].value * 1e3:.0f} ms by servers, {reduced.steps[count].value * 1e3:.0f} ms"


def told(where: Crossing, counts: Sequence[int]) -> str:
    """Return where curves cross as text, or that they do not between the numbers of workers that were measured."""
    throughout = f"not from {counts[0]} to {counts[-1]} workers"
    if math.isnan(where.low) or math.isnan(where.high):
        by_means = throughout if math.isnan(where.value) else f"at {where.value:.1f} workers"
        return f"{by_means}, by their means; a step time has no interval"
    low = f"{where.low:.1f}" if math.isfinite(where.low) else f"below {counts[0]}"
    high = f"{where.high:.1f}" if math.isfinite(where.high) else f"above {counts[-1]}"
    if math.isfinite(where.value):
        return f"at {where.value:.1f} workers ({low} to {high})"
    if where.low == where.high:
        who = "servers are" if where.low > 0 else "all-reduce is"
        return f"{throughout}: {who} faster throughout"
    return f"{throughout} by their means; by their intervals {low} to {high}"


def _table(found: Sequence[Curve]) -> Table:
    counts = sorted({count for curve in found for count in curve.steps})
    return Table(
        title="Step times",
        caption="Means with 95 % intervals, in milliseconds, over workers.",
        head=("model", "by", *(f"{count} workers" for count in counts)),
        rows=[(curve.model, curve.name, *(_ms(curve.steps.get(count)) for count in counts)) for curve in found],
    )


def _ms(step: Estimate | None) -> str:
    if step is None:
        return "-"
    bounds = "" if math.isnan(step.low) else f" ({step.low * 1e3:.1f} to {step.high * 1e3:.1f})"
    return f"{step.value * 1e3:.1f}{bounds}"


def _drawn(found: Sequence[Curve], folder: Path) -> list[Picture]:
    if not found:
        return []
    models = list(dict.fromkeys(curve.model for curve in found))
    names = list(dict.fromkeys(curve.name for curve in found))
    with look():
        drawing, panels = figure(len(models), height_in=2.6 * len(models) + 0.4)
        for panel, model in zip(panels, models, strict=True):
            for curve in (one for one in found if one.model == model):
                number = names.index(curve.name)
                middle = [count / step.value for count, step in curve.steps.items()]
                bars = [
                    [at - count / step.high for at, (count, step) in zip(middle, curve.steps.items(), strict=True)],
                    [count / step.low - at for at, (count, step) in zip(middle, curve.steps.items(), strict=True)],
                ]
                panel.errorbar(
                    list(curve.steps),
                    middle,
                    yerr=bars,
                    label=curve.name,
                    color=SERIES[number % len(SERIES)],
                    linestyle=LINES[number % len(LINES)],
                    marker="o",
                    markersize=4,
                    capsize=2,
                )
            panel.set_ylabel(f"{model}, batches a second")
            panel.xaxis.get_major_locator().set_params(integer=True)
            from_zero(panel)
        panels[-1].set_xlabel("workers")
        legend(*panels)
        saved = save(drawing, folder / "scaling")
    caption = "Batches that all workers together train on in a second, with 95 % intervals."
    return [Picture(name="scaling", title="Throughput over workers (beside Fig 2)", caption=caption, saved=saved)]
