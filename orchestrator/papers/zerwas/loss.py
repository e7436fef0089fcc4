"""Fig 10: how much longer training takes when packets are lost."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.papers.zerwas.frameworks import Measured
from orchestrator.papers.zerwas.published import Loss, Zerwas
from orchestrator.report.study.content import Comparison, Rows, Section, Table, apart, not_measured, number

WHY = (
    "links of 1 Gbit/s here and of 10 Gbit/s there, other round trips: on a faster and longer path each loss costs a "
    "larger share of the window, while a time-out lasts 200 ms on both"
)


def losses(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare durations over that without loss."""
    lossy = ratios(found)
    rows: Rows = [(_percent(share), number(ratio.value), _interval(ratio)) for share, ratio in sorted(lossy.items())]
    return Section(
        title="Fig 10: packet loss",
        text=(
            "MobileNetV2 by TensorFlow's ring, unscaled, on links of 1 Gbit/s; packets are lost at random at the "
            "switch on their way to every host. A step's mean time over that at 0 %, where offloads are off as well."
        ),
        comparisons=tuple(_beside(line, lossy) for line in printed.losses),
        tables=(Table("Losses", "Printed are two of the paper's eight ratios.", ("lost", "ratio", "95 %"), rows),),
    )


def ratios(found: Sequence[Measured]) -> dict[float, Estimate]:
    """Return, by share of packets lost, the mean step over that of the point set alike but without loss."""
    lossy = {one.losses: one.point.mean_s for one in found if one.losses is not None and one.framework == "tensorflow"}
    without = lossy.get(0.0)
    if without is None:
        return {}
    return {share: _over(mean, without) for share, mean in lossy.items()}


def _over(one: Estimate, other: Estimate) -> Estimate:
    """Return a ratio of independent means; its interval from theirs by logarithms, whose halves add in squares."""
    ratio = one.value / other.value
    if one is other:
        return Estimate(ratio, ratio, ratio)
    halves = [math.log(mean.high / mean.low) / 2 for mean in (one, other)]
    half = math.hypot(*halves)
    return Estimate(ratio, ratio * math.exp(-half), ratio * math.exp(half))


def _beside(line: Loss, lossy: dict[float, Estimate]) -> Comparison:
    what = f"duration with {_percent(line.share)} lost over that without loss"
    near = next((ratio for share, ratio in lossy.items() if math.isclose(share, line.share)), None)
    if near is None:
        return not_measured(what, f"{line.ratio:g}", source=line.source)
    return apart(what, near, line.ratio, source=line.source, why=WHY)


def _percent(share: float) -> str:
    return f"{share * 100:.4g} %"


def _interval(of: Estimate) -> str:
    return "unknown" if math.isnan(of.low) else f"{number(of.low)} to {number(of.high)}"
