"""Orders of transfers: mean and variation of step times, stragglers, and overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.compare.points import MeasuredPoint, PointWindow
from orchestrator.analysis.stats.agreement import ratio
from orchestrator.analysis.stats.levels import one_a_run
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.papers.hashemi.published import Hashemi
from orchestrator.parts.rows import Row
from orchestrator.report.study import content
from orchestrator.report.study.content import Comparison, Section, Table
from orchestrator.store.tabular import tables

_NONE = "none"
_UNORDERED = "random"
_CHOSEN = ("ready", "layer", "reverse")
_SHOWN = (_NONE, "ready", _UNORDERED, "reverse", "layer", "tic", "tac")
_WHY = (
    "the largest of many models, workers and clusters in TensorFlow; here one model, a scaled link, and an order "
    "that is drawn anew in each step in place of none"
)


@dataclass(frozen=True, slots=True)
class Order:
    """Measurements in one order of transfers, over all its windows; a mean of what is a number a window.

    `means_s` and `cvs` are the mean step and its coefficient of variation, by run.
    """

    name: str
    mean_s: Estimate
    means_s: list[float]
    cvs: list[float]
    variation: dict[str, float]

    @property
    def cv(self) -> float:
        return self.variation["cv"]


def measured(points: Sequence[MeasuredPoint]) -> dict[str, Order]:
    """Return the orders of the parameter-server setting in which most were measured, in the order of the page."""
    groups: dict[tuple[str, ...], dict[str, MeasuredPoint]] = {}
    for point in points:
        if point.value("workload.p2p.strategy") != "parameter-server":
            continue
        alike = tuple(
            str(point.value(path)) for path in ("testbed", "conditions", *(f"workload.p2p.{key}" for key in _ALIKE))
        )
        groups.setdefault(alike, {})[point.value("workload.p2p.order") or _NONE] = point
    most = max(groups.values(), key=len, default={})
    return {name: _order(name, most[name]) for name in _SHOWN if name in most} if len(most) > 1 else {}


_ALIKE = ("model", "servers", "hosts", "bucket", "compute_time", "batch")


def _order(name: str, point: MeasuredPoint) -> Order:
    by_window = [(window.entry.run, row) for window in point.windows for row in _variation(window, point.job.name)]
    rows = [row for _, row in by_window]
    keys = ("cv", "p50_s", "p99_s", "straggler_share", "efficiency", "overlapped", "orders")
    cvs = one_a_run((run, Estimate(row["cv"], math.nan, math.nan)) for run, row in by_window)
    return Order(
        name,
        mean_s=point.mean_s,
        means_s=point.run_means_s,
        cvs=[cv.value for cv in cvs],
        variation={key: float(np.mean([row[key] for row in rows])) if rows else math.nan for key in keys},
    )


def _variation(window: PointWindow, job: str) -> list[Row]:
    """Return the job's own row of the table `variation` of a window."""
    rows = tables.read(window.entry.path / "tables", "variation").to_pylist()
    return [row for row in rows if (row["job"], row["rank"], row["window_name"]) == (job, -1, window.record.name)]


def section(points: Sequence[MeasuredPoint], printed: Hashemi) -> Section:
    """Compare all orders in a table, and the claims about them."""
    found = measured(points)
    return Section(
        title="Accomplishment 4: order of transfers",
        text="A worker pushes gradients during its backward pass and pulls their sums during its next forward pass, in "
        "which each layer waits for its own. TIC and TAC are computed in the run, after six iterations in random "
        "orders; random is another order in each step, as transfers without scheduling have; none is a worker that "
        "goes on only when it has pulled everything.",
        comparisons=tuple(compared(found, printed)),
        tables=(_table(found),),
    )


def compared(found: dict[str, Order], printed: Hashemi) -> list[Comparison]:
    """Compare TAC's order with random ones, and with the best that was chosen by hand."""
    variation, step = printed.largest("variation"), printed.largest("step")
    training, straggling = printed.largest("training"), printed.largest("straggling")
    unordered, tac = found.get(_UNORDERED), found.get("tac")
    fixed = [found[name] for name in _CHOSEN if name in found]
    if unordered is None or tac is None or not fixed:
        return [
            content.cannot_tell(
                printed.check("varies-less"),
                "variation, without an order over TAC",
                f"up to {variation.value:g}",
                source=variation.source,
            ),
            content.cannot_tell(
                printed.check("order-matters"),
                "step time that TAC saves",
                f"up to {step.value:.0%}",
                source=step.source,
            ),
        ]
    best = min(fixed, key=lambda one: one.mean_s.value)
    straggles = _ratio(unordered.variation["straggler_share"], tac.variation["straggler_share"])
    return [
        content.apart(
            "variation (cv), random over TAC",
            _ratio(unordered.cv, tac.cv),
            variation.value,
            unit="times",
            source=variation.source,
            why=_WHY,
        ),
        content.apart(
            "step time that TAC saves of random",
            (1 - tac.mean_s.value / unordered.mean_s.value) * 100,
            step.value * 100,
            unit="%",
            source=step.source,
            why=_WHY,
        ),
        content.apart(
            "throughput that TAC gains over random",
            (unordered.mean_s.value / tac.mean_s.value - 1) * 100,
            training.value * 100,
            unit="%",
            source=training.source,
            why=_WHY,
        ),
        content.apart(
            "straggling, random over TAC",
            straggles,
            straggling.value,
            unit="times",
            source=straggling.source,
            why="TicTac takes it from waiting, we from what ranks compute; emulated passes hardly differ",
        ),
        content.claimed(
            printed.check("near-optimum"),
            f"TAC's mean step over that of the best chosen order ({best.name})",
            ratio(tac.means_s, best.means_s),
            told=_both(tac, best),
            printed="scheduling is near the optimum",
            source=training.source,
        ),
        content.claimed(
            printed.check("varies-less"),
            "variation (cv) of TAC's step over that in random orders",
            ratio(tac.cvs, unordered.cvs),
            told=f"{tac.cv:.1%}, {unordered.cv:.1%}",
            printed="scheduling varies less",
            source=variation.source,
        ),
        content.claimed(
            printed.check("order-matters"),
            "mean step in random orders over TAC's",
            ratio(unordered.means_s, tac.means_s),
            told=_both(unordered, tac),
            printed="the order has a significant impact",
            source=step.source,
        ),
    ]


def _both(one: Order, other: Order) -> str:
    return f"{_ms(one.mean_s)}, {_ms(other.mean_s)}"


def _ratio(one: float, other: float) -> float:
    return one / other if other > 0 else math.nan


def _table(found: dict[str, Order]) -> Table:
    return Table(
        title="Orders",
        caption="Variation is the standard deviation over the mean. Straggling: how much longer the slowest worker "
        "computes than the one that waits longest for it, over the step. Efficiency is TicTac's: 1 where the shorter "
        "of computing and communicating is hidden, 0 where nothing is. Orders: how many different ones a rank's "
        "transfers began in.",
        head=("order", "mean", "median", "p99", "variation", "straggling", "efficiency", "overlapped", "orders"),
        rows=[
            (
                one.name,
                _ms(one.mean_s),
                *(f"{one.variation[key] * 1e3:.0f} ms" for key in ("p50_s", "p99_s")),
                f"{one.cv:.1%}",
                f"{one.variation['straggler_share']:.1%}",
                f"{one.variation['efficiency']:.2f}",
                f"{one.variation['overlapped']:.0%}",
                f"{one.variation['orders']:.0f}",
            )
            for one in found.values()
        ],
    )


def _ms(mean: Estimate) -> str:
    bounds = "" if math.isnan(mean.low) else f" ({mean.low * 1e3:.0f} to {mean.high * 1e3:.0f})"
    return f"{mean.value * 1e3:.0f}{bounds} ms"
