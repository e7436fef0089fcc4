"""Draw flows of two iterations from captures (Figs 3-10 and 3-11), and compare bursts as they arrive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.compare.curves import LoadedWindow
from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.traffic import bottleneck, throughput, traffic
from orchestrator.analysis.traffic.bottleneck import Rates, Share
from orchestrator.analysis.traffic.throughput import burst_height
from orchestrator.analysis.traffic.traffic import Traffic
from orchestrator.papers.salamy.published import IterationScale, Salamy
from orchestrator.parts.rows import Row
from orchestrator.report.runs import Run
from orchestrator.report.study.content import NOTHING, Rows, Table
from orchestrator.report.style import SERIES, Picture, figure, legend, look, save

TRAFFIC = "websearch"  # the thesis looks at consistent web search alone
NEXT_TO_GBPS = 1.25
RATES_NS = 10_000_000
CROSS_NS = 1_000_000  # of the bins of `cross_packets`
STEPS = 120  # of a figure, over its two iterations
SMOOTH = 3
_FIGURES = {"resnet50": "Fig 3-10", "bert-large": "Fig 3-11"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A captured window near a load of the thesis: traffic of two iterations, its flows, and their rates."""

    printed: IterationScale
    load_gbps: float
    two: Traffic
    shares: tuple[Share, ...]
    rates: tuple[Rates, ...]  # over the whole window, scaled
    scale: int


def seen(places: Sequence[LoadedWindow], printed: Salamy) -> list[Seen]:
    """Return the windows that the thesis looks at, as far as they were measured and captured."""
    found = []
    for theirs in printed.iteration_scale:
        near = [place for place in places if (place.kind.model, place.kind.traffic) == (theirs.model, TRAFFIC)]
        best = min(near, key=lambda place: abs(place.load_bps - theirs.load_gbps * 1e9), default=None)
        if best is not None and abs(best.load_bps / 1e9 - theirs.load_gbps) <= NEXT_TO_GBPS:
            found += _look(best, theirs)
    return found


def _look(place: LoadedWindow, theirs: IterationScale) -> list[Seen]:
    run = Run(place.path)
    if run.traffic is None:
        return []
    (job,) = run.jobs
    span = place.record.iterations[job.job]
    whole = traffic.within(run.traffic, *place.record.span_ns)
    found = of_window(whole, job.within(span.first, span.last), theirs, load_gbps=place.load_bps / 1e9, scale=run.scale)
    return [found] if found is not None else []


def of_window(found: Traffic, log: JobSeries, theirs: IterationScale, *, load_gbps: float, scale: int) -> Seen | None:
    """Return the three flows of a window's traffic with logged iterations; None where they cannot be told apart."""
    shares = bottleneck.three(found)
    if len(shares) < 3 or len(log.iteration) < 3:
        return None
    middle = len(log.iteration) // 2
    two = traffic.within(found, int(log.start_ns[middle - 1]), int(log.end_ns[middle]))
    width = max(1, round(RATES_NS / found.width_ns)) * found.width_ns
    cycle_s = float(log.seconds.mean())
    rates = tuple(bottleneck.rates(found, share.flows, width_ns=width, cycle_s=cycle_s) for share in shares)
    return Seen(printed=theirs, load_gbps=load_gbps, two=two, shares=tuple(shares), rates=rates, scale=scale)


def table(found: Sequence[Seen]) -> Table:
    """Return Table 3.11: mean and highest rates of the three flows."""
    rows: Rows = []
    for one in found:
        alone, shared, cross = (
            (rates.mean.value * one.scale / 1e9, rates.sending * one.scale / 1e9) for rates in one.rates
        )
        rows.append(
            (
                one.printed.model,
                f"{one.load_gbps:.2f}",
                f"{alone[0]:.2f}",
                f"{alone[1]:.2f}",
                f"{shared[0]:.2f}",
                f"{shared[1]:.2f}",
                f"{cross[0]:.2f}",
                f"{one.printed.load_gbps:g}",
                f"{one.printed.alone_gbps:g}",
                f"{one.printed.shared_gbps:g}",
            )
        )
    head = (
        "model",
        "our load",
        "flow 1, mean",
        "while it sends",
        "flow 2, mean",
        "while it sends",
        "flow 3, mean",
        "printed load",
        "flow 1",
        "flow 2",
    )
    caption = (
        "Gbit/s (Table 3.11): training on a link of its own (flow 1), on the shared link (flow 2), cross traffic (flow "
        "3). In a ring both trainings move the same bytes in an iteration, so that their means must agree; the thesis "
        "averages estimates from gaps between packets, which weigh times of fast sending more. That is why ours while "
        "sending (10 ms steps with traffic) stand beside them."
    )
    return Table("While a few iterations last", caption, head, rows)


def draw(found: Sequence[Seen], folder: Path) -> list[Picture]:
    """Draw a figure a model: two iterations at each load."""
    pictures = []
    with look():
        for model in dict.fromkeys(one.printed.model for one in found):
            mine = [one for one in found if one.printed.model == model]
            drawing, panels = figure(len(mine), height_in=0.9 + 1.6 * len(mine), sharex=False)
            for panel, one in zip(panels, mine, strict=True):
                _panel(panel, one)
            panels[-1].set_xlabel("time (ms)")
            drawing.supylabel("Gbit/s", fontsize=9)
            legend(panels[0], columns=3)
            caption = (
                f"Two iterations from the middle of the window, layer 2; moving averages over {SMOOTH} of {STEPS} "
                "steps. Flow 1: training on a link of its own; flow 2: on the shared link; flow 3: cross traffic on it."
            )
            name = f"flows-{model}"
            title = f"{model}: flows of two iterations (as in {_FIGURES.get(model, NOTHING)})"
            pictures.append(Picture(name=name, title=title, caption=caption, saved=save(drawing, folder / name)))
    return pictures


def _panel(panel: Any, one: Seen) -> None:
    span_ns = one.two.end_ns - one.two.begin_ns
    step = max(1, span_ns // STEPS // one.two.width_ns) * one.two.width_ns
    for number, (share, style) in enumerate(zip(one.shares, ("-", "-", ":"), strict=True)):
        rate = traffic.series(one.two, share.flows, width_ns=step) * 8 * one.scale / step
        at = (np.arange(len(rate)) + 0.5) * step / 1e6
        panel.plot(
            at,
            traffic.moving_average(rate, SMOOTH),
            color=SERIES[number],
            linestyle=style,
            linewidth=1.1,
            label=share.label,
        )
    panel.set(xlim=(0, span_ns / 1e6))
    panel.set_ylim(bottom=0)
    panel.set_title(f"{one.load_gbps:.1f} Gbit/s of cross traffic", pad=3, loc="right")


def bursts(places: Sequence[LoadedWindow], printed: Salamy) -> Table:
    """Compare how much of the bursts arrives where the thesis prints iteration times beside bursts."""
    rows: Rows = []
    for theirs in printed.points:
        near = [p for p in places if (p.kind.model, p.kind.traffic) == (theirs.model, f"{TRAFFIC}-burst")]
        best = min(near, key=lambda place: abs(place.load_bps - theirs.load_gbps * 1e9), default=None)
        if theirs.traffic != f"{TRAFFIC}-burst" or best is None:
            continue
        run = Run(best.path)
        if abs(best.load_bps / 1e9 - theirs.load_gbps) <= NEXT_TO_GBPS:
            rows += [
                (
                    theirs.model,
                    f"{theirs.load_gbps:g}",
                    f"{best.load_bps / 1e9:.2f}",
                    f"{plan['burst_height']:g}",
                    f"{printed.capacity_gbps * 1e9 / best.load_bps:.2f}",
                    *_heights(run, best, plan),
                )
                for plan in run.rows("schedules")
                if plan["window_name"] == best.record.name
            ]
    head = ("model", "printed load", "our load", "requested", "the link's rate", "sent", "received")
    caption = (
        "Rates in the bursts over the mean rate. A burst cannot be higher than the link; and a millisecond holds as "
        "many round trips and packets fewer here as the scale says, so that TCP spreads a burst over the time after it."
    )
    return Table("Bursts as requested, and as they were on the wire", caption, head, rows)


def _heights(run: Run, place: LoadedWindow, plan: Row) -> tuple[str, str]:
    loads = [load for load in place.record.loads if load.source == plan["source"]]
    heights = []
    for end, direction in (("src", "out"), ("dst", "in")):
        found = throughput.bins(
            run.table("cross_packets"), {"node": getattr(loads[0], end), "direction": direction, "name": plan["source"]}
        )
        value = burst_height(
            replace(found, width_ns=CROSS_NS),
            zero_ns=plan["zero_ns"],
            width_ns=round(plan["burst_width_s"] * 1e9),
            period_ns=round(plan["burst_period_s"] * 1e9),
            span_ns=place.record.span_ns,
        )
        heights.append(NOTHING if math.isnan(value) else f"{value:.2f}")
    return heights[0], heights[1]
