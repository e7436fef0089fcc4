"""Tables I and II, and the claims on Figs 7 and 9 on rates over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.levels import level, one_a_run
from orchestrator.analysis.stats.statistics import UNKNOWN, Estimate
from orchestrator.analysis.traffic import periodicity
from orchestrator.papers.zerwas import frameworks
from orchestrator.papers.zerwas.frameworks import CALLED, PAIRS, Measured
from orchestrator.papers.zerwas.published import Flow, Zerwas
from orchestrator.papers.zerwas.sights import STEP_NS, Sight
from orchestrator.report.study.content import (
    NOT_MEASURED,
    Comparison,
    Section,
    apart,
    holds,
    near,
    not_measured,
    number,
)

Floats = npt.NDArray[np.float64]

FLOWS_OF = "resnet50"  # whose flows Table II prints
ZOOMED = "mobilenet_v2"  # of Figs 7 and 9
BATCHES = (64, 128, 512)
EMULATED = "compute is emulated, and its time was taken from Table I itself; transports run on shared processors"
VOLUME_WITHIN = 0.03
RATE_WITHIN = 0.2  # of bursts of different batches
PEAK_WITHIN = 0.2  # times of peaks differ


def table_one(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare Table I: mean throughput of everything together."""
    grid = {(one.model, one.framework): one for one in frameworks.plain(found)}
    means = {key: _over_runs(one, lambda window: window.total) for key, one in grid.items()}
    return Section(
        title="Table I: total throughput",
        text=(
            "Layer 2, all links together, without NCCL. Ours are means of runs with 95 % intervals over runs, none "
            "of a single run; the paper's, as printed, are over 30 samples of ten runs. The order can be compared."
        ),
        comparisons=(
            *(
                apart(
                    f"{line.model}, {CALLED[line.framework]}",
                    means.get((line.model, line.framework), UNKNOWN),
                    line.estimate,
                    unit="Gbit/s",
                    source=line.source,
                    why=EMULATED,
                )
                for line in printed.total_throughput
            ),
            *_orders({key: mean.value for key, mean in means.items()}),
        ),
    )


def _over_runs(one: Measured, rates: Callable[[Sight], Floats]) -> Estimate:
    """Return the mean of rates of a point with its interval over runs."""
    means = ((window.run, Estimate(float(rates(window).mean()), math.nan, math.nan)) for window in one.sights)
    return level(one_a_run(means)).estimate


def _orders(means: Mapping[tuple[str, str], float]) -> Iterator[Comparison]:
    """Compare the text's claims on Table I: of frameworks with one model, and of models with one framework."""
    models, names = (list(dict.fromkeys(key[place] for key in means)) for place in (0, 1))
    for low, high in (("tensorflow", "horovod-mpi"), ("tensorflow", "horovod-gloo"), (PAIRS, "binary-tree-star")):
        pairs = [
            (model, means[model, low], means[model, high])
            for model in models
            if (model, low) in means and (model, high) in means
        ]
        what, printed = f"{CALLED[low]} below {CALLED[high]}", "with every model"
        if not pairs:
            yield not_measured(what, printed, source="section V.C")
            continue
        ours = "; ".join(f"{model} {number(one)} and {number(other)} Gbit/s" for model, one, other in pairs)
        yield holds(
            what, true=all(one < other for _, one, other in pairs), ours=ours, printed=printed, source="section V.C"
        )
    for name in names:
        mine = {model: means[model, name] for model in models if (model, name) in means}
        if ZOOMED in mine and len(mine) > 1:
            least = min(mine, key=lambda model: mine[model])
            yield holds(
                f"{CALLED[name]}: the smallest model has the lowest throughput",
                true=least == ZOOMED,
                ours=", ".join(f"{model} {number(value)}" for model, value in mine.items()),
                printed=f"{ZOOMED} lowest",
                source="Table I",
            )


def table_two(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare Table II: a flow that carries gradients."""
    grid = {one.framework: one for one in frameworks.plain(found) if one.model == FLOWS_OF}
    return Section(
        title="Table II: throughput of a flow that carries gradients",
        text=(
            f"{FLOWS_OF}, the flow with most payload of each window, layer 2; peaks are of {STEP_NS / 1e6:g} ms (the "
            "paper does not say of which time). A local link lets a burst pass above its rate."
        ),
        comparisons=(
            *(_flow(grid.get(line.framework), line) for line in printed.flow_throughput),
            *(_peak(grid[line.framework], line) for line in printed.flow_throughput if line.framework in grid),
        ),
    )


def _flow(one: Measured | None, line: Flow) -> Comparison:
    what = f"{CALLED[line.framework]}: mean"
    if one is None:
        nccl = line.framework.endswith("nccl")
        why = "NCCL needs GPUs: bring an inventory that has some" if nccl else NOT_MEASURED
        return not_measured(what, f"{line.gbps:g} Gbit/s", source=line.source, why=why)
    ours = _over_runs(one, lambda window: window.big[0])
    return apart(what, ours, line.estimate, unit="Gbit/s", source=line.source, why=EMULATED)


def _peak(one: Measured, line: Flow) -> Comparison:
    peak = max(float(window.big[0].max()) for window in one.sights)
    return near(
        f"{CALLED[one.framework]}: peak", peak, line.peak_gbps, within=PEAK_WITHIN, unit="Gbit/s", source=line.source
    )


def together(one: Sight) -> float:
    """Return how alike the big flows' rates are over time: mean correlation of all pairs, -1 to 1."""
    count = len(one.big)
    if count < 2:
        return math.nan
    matrix = np.atleast_2d(np.corrcoef(one.big))
    return float(np.mean([matrix[a, b] for a, b in itertools.combinations(range(count), 2)]))


def rhythm(found: Sequence[Measured]) -> Section:
    """Compare Fig 7: synchronous training sends in bursts together, pair averaging does not."""
    mine = {one.framework: one for one in frameworks.plain(found) if one.model == ZOOMED}
    rings = [one for name, one in mine.items() if name in frameworks.RINGS]
    what = "big flows send at the same time: the ring's more than those of pair averaging"
    printed = "bursts together (a), without structure (b)"
    if not rings or PAIRS not in mine:
        comparison = not_measured(what, printed, source="section V.C, Fig 7")
    else:
        ring, pairs = (float(np.mean([together(window) for window in one.sights])) for one in (rings[0], mine[PAIRS]))
        comparison = holds(
            what,
            true=ring > pairs,
            printed=printed,
            source="section V.C, Fig 7",
            ours=f"mean correlation {ring:.2f} ({CALLED[rings[0].framework]}), {pairs:.2f}",
        )
    return Section(
        title="Fig 7: pairs of hosts within a quarter of a second",
        text=f"{ZOOMED}. Rates of the flows that carry 99 % of the payload, in steps of {STEP_NS / 1e6:g} ms.",
        comparisons=(comparison,),
    )


def batches(found: Sequence[Measured]) -> Section:
    """Compare Fig 9: with a larger batch a step is longer, sends as much, and as fast."""
    mine = of_batches(found)
    comparisons: list[Comparison] = []
    first = mine.get(BATCHES[0])
    for batch in BATCHES[1:]:
        one, source = mine.get(batch), "section V.E, Fig 9"
        if one is None or first is None:
            comparisons.append(not_measured(f"batch {batch} against {BATCHES[0]}", "the same volume", source=source))
            continue
        comparisons += [
            near(
                f"volume of a step, batch {batch}",
                one.step_payload / 1e6,
                first.step_payload / 1e6,
                unit="MB",
                within=VOLUME_WITHIN,
                source=source,
                shown=f"that of batch {BATCHES[0]}",
            ),
            near(
                f"rate while sending, batch {batch}",
                _sending(one),
                _sending(first),
                unit="Gbit/s",
                within=RATE_WITHIN,
                source=source,
                shown=f"that of batch {BATCHES[0]}",
            ),
            holds(
                f"share of time in which a pair sends, batch {batch}",
                true=duty(one) < duty(first),
                ours=f"{duty(one):.0%} against {duty(first):.0%}",
                printed="less",
                source=source,
            ),
            holds(
                f"period, batch {batch}",
                true=one.point.mean_s.value > first.point.mean_s.value,
                ours=f"{one.point.mean_s.value:.3f} s against {first.point.mean_s.value:.3f} s",
                printed="longer",
                source=source,
            ),
        ]
    return Section(
        title="Fig 9: three batches",
        text=f"{ZOOMED}, Horovod on Gloo, one pair of the ring. Compute takes as long as its batch is large.",
        comparisons=tuple(comparisons),
    )


def of_batches(found: Sequence[Measured]) -> dict[int, Measured]:
    """Return the points of Fig 9 by their batch."""
    return {
        one.batch: one
        for one in found
        if one.framework == "horovod-gloo"
        and one.model == ZOOMED
        and one.classes == frameworks.CLASSES
        and one.losses is None
        and one.sights
    }


def _sending(one: Measured) -> float:
    """Return the mean rate of the biggest flow in the bins in which it sends."""
    values = one.sights[0].big[0]
    return float(values[periodicity.busy(values)].mean())


def duty(one: Measured) -> float:
    """Return the share of bins in which the biggest flow sends."""
    return float(periodicity.busy(one.sights[0].big[0]).mean())
