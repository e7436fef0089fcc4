"""Tables I and II, and the claims on Figs 7 and 9 on rates over time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats import agreement
from orchestrator.analysis.stats.agreement import over_runs
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
    cannot_tell,
    claimed,
    judged,
    not_measured,
    number,
    remark,
)

Floats = npt.NDArray[np.float64]

FLOWS_OF = "resnet50"  # whose flows Table II prints
ZOOMED = "mobilenet_v2"  # of Figs 7 and 9
BATCHES = (64, 128, 512)
EMULATED = "compute is emulated, and its time was taken from Table I itself; transports run on shared processors"
COMPUTED = "it follows from the compute times, which are inputs"


def table_one(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare Table I: mean throughput of everything together."""
    grid = {(one.model, one.framework): one for one in frameworks.plain(found)}
    means = {key: _rates(one, lambda window: window.total) for key, one in grid.items()}
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
                    over_runs(means.get((line.model, line.framework), [])),
                    line.estimate,
                    unit="Gbit/s",
                    source=line.source,
                    why=EMULATED,
                )
                for line in printed.total_throughput
            ),
            *_orders(means, printed),
        ),
    )


def _rates(one: Measured, rates: Callable[[Sight], Floats]) -> list[float]:
    """Return the mean of rates of each run of a point."""
    return one.over(lambda window: float(rates(window).mean()))


def _orders(means: Mapping[tuple[str, str], Sequence[float]], printed: Zerwas) -> Iterator[Comparison]:
    """Compare the text's claims on Table I: of frameworks with one model, and of models with one framework."""
    models, names = (list(dict.fromkeys(key[place] for key in means)) for place in (0, 1))
    check, source = printed.check("order"), "section V.C"
    for low, high in (("tensorflow", "horovod-mpi"), ("tensorflow", "horovod-gloo"), (PAIRS, "binary-tree-star")):
        what, claim = f"{CALLED[low]} over {CALLED[high]}", "below 1 with every model"
        both = [model for model in models if (model, low) in means and (model, high) in means]
        if not both:
            yield cannot_tell(check, what, claim, source=source)
        for model in both:
            ratio = agreement.ratio(means[model, low], means[model, high])
            yield claimed(check, f"{model}: {what}", ratio, printed=claim, source=source)
    for name in names:
        mine = {model: float(np.mean(means[model, name])) for model in models if (model, name) in means}
        if ZOOMED in mine and len(mine) > 1:
            yield remark(
                f"{CALLED[name]}: the smallest model has the lowest throughput",
                ", ".join(f"{model} {number(value)}" for model, value in mine.items()),
                f"{ZOOMED} lowest",
                source="Table I",
                why=COMPUTED,
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
            *(_peak(grid.get(line.framework), line, printed) for line in printed.flow_throughput),
        ),
    )


def _flow(one: Measured | None, line: Flow) -> Comparison:
    what = f"{CALLED[line.framework]}: mean"
    if one is None:
        nccl = line.framework.endswith("nccl")
        why = "NCCL needs GPUs: bring an inventory that has some" if nccl else NOT_MEASURED
        return not_measured(what, f"{line.gbps:g} Gbit/s", source=line.source, why=why)
    ours = over_runs(_rates(one, lambda window: window.big[0]))
    return apart(what, ours, line.estimate, unit="Gbit/s", source=line.source, why=EMULATED)


def _peak(one: Measured | None, line: Flow, printed: Zerwas) -> Comparison:
    peaks = [] if one is None else one.over(lambda window: float(window.big[0].max()))
    return judged(
        printed.check("peak"),
        f"{CALLED[line.framework]}: peak",
        over_runs(peaks),
        line.peak_gbps,
        unit="Gbit/s",
        source=line.source,
    )


def together(one: Sight) -> float:
    """Return how alike the big flows' rates are over time: mean correlation of all pairs, -1 to 1."""
    count = len(one.big)
    if count < 2:
        return math.nan
    matrix = np.atleast_2d(np.corrcoef(one.big))
    return float(np.mean([matrix[a, b] for a, b in itertools.combinations(range(count), 2)]))


def rhythm(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare Fig 7: synchronous training sends in bursts together, pair averaging does not."""
    mine = {one.framework: one for one in frameworks.plain(found) if one.model == ZOOMED}
    rings = [one for name, one in mine.items() if name in frameworks.RINGS]
    of_pairs = [mine[PAIRS]] if PAIRS in mine else []
    ring, pairs = (found[0].over(together) if found else [] for found in (rings, of_pairs))
    comparison = claimed(
        printed.check("rhythm"),
        "correlation of the big flows' rates, a ring's less that of pair averaging",
        agreement.difference(ring, pairs),
        printed="bursts together (a), without structure (b)",
        source="section V.C, Fig 7",
    )
    return Section(
        title="Fig 7: pairs of hosts within a quarter of a second",
        text=f"{ZOOMED}. Rates of the flows that carry 99 % of the payload, in steps of {STEP_NS / 1e6:g} ms.",
        comparisons=(comparison,),
    )


def batches(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare Fig 9: with a larger batch a step is longer, sends as much, and as fast."""
    mine, source = of_batches(found), "section V.E, Fig 9"
    comparisons: list[Comparison] = []
    first = mine.get(BATCHES[0])
    of_first = f"that of batch {BATCHES[0]}"
    for batch in BATCHES[1:]:
        one = mine.get(batch)
        if one is None or first is None:
            volume = printed.check("batch-volume")
            comparisons.append(
                cannot_tell(volume, f"batch {batch} against {BATCHES[0]}", "the same volume", source=source)
            )
            continue
        comparisons += [
            *(
                judged(
                    printed.check(check),
                    f"{what}, batch {batch} over batch {BATCHES[0]}",
                    agreement.ratio(one.over(of), first.over(of)),
                    1.0,
                    shown=of_first,
                    source=source,
                )
                for check, what, of in (
                    ("batch-volume", "volume of a step", lambda window: window.volume.step_payload),
                    ("batch-rate", "rate while sending", _sending),
                )
            ),
            claimed(
                printed.check("batch-duty"),
                f"share of time in which a pair sends, batch {batch} over batch {BATCHES[0]}",
                agreement.ratio(one.over(duty), first.over(duty)),
                printed="less",
                source=source,
            ),
            remark(
                f"period, batch {batch}",
                f"{one.point.mean_s.value:.3f} s against {first.point.mean_s.value:.3f} s",
                "longer",
                source=source,
                why=COMPUTED,
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


def _sending(window: Sight) -> float:
    """Return the mean rate of the biggest flow in the bins in which it sends."""
    values = window.big[0]
    return float(values[periodicity.busy(values)].mean())


def duty(window: Sight) -> float:
    """Return the share of bins in which the biggest flow sends."""
    return float(periodicity.busy(window.big[0]).mean())
