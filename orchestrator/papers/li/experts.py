"""Figs 4 and 5: traffic of a mixture of experts, iteration by iteration, as its gates learn to balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats import agreement
from orchestrator.analysis.stats.agreement import over_runs
from orchestrator.papers.li.published import Li
from orchestrator.report.runs import Run
from orchestrator.report.study.content import Comparison, Section, cannot_tell, claimed
from orchestrator.report.style import SERIES, Picture, figure, legend, look, save

Floats = npt.NDArray[np.float64]

LATER = 100  # iterations after which the paper looks again
PART = 10  # iterations at either end whose mean is compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """All-to-all traffic of a training: (iterations, ranks, ranks) in bytes at full size, and its nonuniform factor."""

    label: str
    iterations: Floats
    sent: Floats
    nonuniform: Floats


def routed(run: Run) -> Routed | None:
    """Return the all-to-all traffic that a run's gates caused; None where fewer than two parts were recorded."""
    rows = run.rows("routing")
    numbers = sorted({row["iteration"] for row in rows})[:LATER]
    ranks = 1 + max((row["rank"] for row in rows), default=0)
    if len(numbers) < 2 * PART:
        return None
    at = {number: place for place, number in enumerate(numbers)}
    sent, factor = np.zeros((len(numbers), ranks, ranks)), np.zeros(len(numbers))
    for row in rows:
        if row["iteration"] in at:
            place = at[row["iteration"]]
            sent[place, row["rank"], row["peer"]] = row["bytes"] * run.scale
            factor[place] = row["nonuniform_bytes"] * run.scale
    model = run.manifest.jobs[0].model or run.name
    return Routed(label=model, iterations=np.array(numbers, float), sent=sent, nonuniform=factor)


def section(runs: Sequence[Run], printed: Li, folder: Path) -> Section:
    """Compare heatmaps of the first and the last iteration, and the nonuniform factor over iterations."""
    found = [one for run in runs if (one := routed(run)) is not None]
    claims = [printed.claim(name) for name in ("dynamic", "volume-grows", "more-uniform")]
    if not found:
        judged = [
            cannot_tell(printed.check(claim.name), "experts", claim.text, source=claim.source) for claim in claims
        ]
        return Section(title="Figs 4 and 5: experts", comparisons=tuple(judged))
    return Section(
        title="Figs 4 and 5: experts",
        text=(
            "All-to-all traffic alone, without the all-reduce of what ranks have in common. The gates are real and "
            "learn by the balancing loss; what tokens mean is noise. Nonuniform factor: the highest less the lowest "
            "volume between two ranks in an iteration."
        ),
        pictures=(_heatmaps(found[0], folder), _course(found, folder)),
        comparisons=tuple(
            one
            for label in dict.fromkeys(each.label for each in found)
            for one in compared(label, [each for each in found if each.label == label], printed)
        ),
    )


def compared(label: str, runs: Sequence[Routed], printed: Li) -> list[Comparison]:
    """Judge the runs of a training."""
    dynamic, grows, uniform = (printed.claim(name) for name in ("dynamic", "volume-grows", "more-uniform"))
    ends = [_ends(one.nonuniform) for one in runs]
    volumes = [_ends(one.sent[:, _between(one)].sum(axis=1)) for one in runs]
    return [
        claimed(
            printed.check(dynamic.name),
            f"{label}: highest less lowest volume of a pair over the mean one, first iteration",
            over_runs(unevenness(one) for one in runs),
            printed=dynamic.text,
            source=dynamic.source,
        ),
        claimed(
            printed.check(grows.name),
            f"{label}: volume, last {PART} iterations over first",
            over_runs(last / first for first, last in volumes),
            printed=grows.text,
            source=grows.source,
        ),
        claimed(
            printed.check(uniform.name),
            f"{label}: nonuniform factor, last {PART} iterations over first",
            agreement.ratio([last for _, last in ends], [first for first, _ in ends]),
            printed=uniform.text,
            source=uniform.source,
        ),
    ]


def _between(one: Routed) -> npt.NDArray[np.bool_]:
    """Return which pairs are of two ranks."""
    return ~np.eye(one.sent.shape[1], dtype=bool)


def unevenness(one: Routed) -> float:
    """Return the first iteration's highest less its lowest volume of a pair of ranks, over their mean."""
    first = one.sent[0][_between(one)]
    return float(np.ptp(first) / first.mean())


def _ends(values: Floats) -> tuple[float, float]:
    """Return the means of the first and of the last iterations."""
    return float(values[:PART].mean()), float(values[-PART:].mean())


def _heatmaps(one: Routed, folder: Path) -> Picture:
    with look():
        drawing, _ = figure(height_in=2.8)
        drawing.clear()
        panels = drawing.subplots(1, 2, squeeze=False)[0]
        most = one.sent.max() / 1e6
        for panel, place in zip(panels, (0, len(one.iterations) - 1), strict=True):
            shown = one.sent[place].copy() / 1e6
            np.fill_diagonal(shown, np.nan)
            image = panel.imshow(shown, cmap="viridis", vmin=0, vmax=most, interpolation="nearest")
            panel.set_title(f"iteration {one.iterations[place]:.0f}", fontsize=8)
            panel.grid(visible=False)
            panel.set(xlabel="to rank", ylabel="from rank")
        drawing.colorbar(image, ax=list(panels), shrink=0.7, label="MB")
        saved = save(drawing, folder / "experts")
    caption = f"MB between ranks in two iterations of {one.label} (Li, figure 4)."
    return Picture(name="experts", title="All-to-all traffic of two iterations", caption=caption, saved=saved)


def _course(found: Sequence[Routed], folder: Path) -> Picture:
    with look():
        drawing, (panel,) = figure(height_in=2.4)
        for number, one in enumerate(found):
            panel.plot(one.iterations, one.nonuniform / 1e6, label=one.label, color=SERIES[number % len(SERIES)])
        panel.set(xlabel="iteration", ylabel="nonuniform factor (MB)", ylim=(0, None))
        legend(panel)
        saved = save(drawing, folder / "nonuniform")
    return Picture(
        name="nonuniform",
        title="Nonuniform factor",
        caption="Highest less lowest volume of a pair (Li, figure 5).",
        saved=saved,
    )
