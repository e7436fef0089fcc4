"""Figs 4 and 5: traffic of a mixture of experts, iteration by iteration, as its gates learn to balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orchestrator.papers.li.published import Li
from orchestrator.report.runs import Run
from orchestrator.report.study.content import Comparison, Section, holds, not_measured
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
        judged = [not_measured("experts", claim.text, source=claim.source) for claim in claims]
        return Section(title="Figs 4 and 5: experts", comparisons=tuple(judged))
    return Section(
        title="Figs 4 and 5: experts",
        text=(
            "All-to-all traffic alone, without the all-reduce of what ranks have in common. The gates are real and "
            "learn by the balancing loss; what tokens mean is noise. Nonuniform factor: the highest less the lowest "
            "volume between two ranks in an iteration."
        ),
        pictures=(_heatmaps(found[0], folder), _course(found, folder)),
        comparisons=tuple(one for each in found for one in _judged(each, printed)),
    )


def _judged(one: Routed, printed: Li) -> list[Comparison]:
    between = ~np.eye(one.sent.shape[1], dtype=bool)
    volumes = one.sent[:, between].sum(axis=1)
    spread = one.sent[0][between]
    dynamic, grows, uniform = (printed.claim(name) for name in ("dynamic", "volume-grows", "more-uniform"))
    first, last = one.nonuniform[:PART].mean(), one.nonuniform[-PART:].mean()
    return [
        holds(
            f"{one.label}: pairs of the first iteration",
            true=spread.max() > spread.min() and np.ptp(volumes) > 0,
            ours=f"{spread.min() / 1e6:.2f} to {spread.max() / 1e6:.2f} MB; the total varies by "
            f"{np.ptp(volumes) / volumes.mean():.1%}",
            printed=dynamic.text,
            source=dynamic.source,
        ),
        holds(
            f"{one.label}: volume, last {PART} iterations against first",
            ours=f"{_share(volumes):+.1%}",
            true=_share(volumes) > 0,
            printed=grows.text,
            source=grows.source,
        ),
        holds(
            f"{one.label}: nonuniform factor, first {PART} against last",
            true=last < first,
            ours=f"{first / 1e6:.2f} against {last / 1e6:.2f} MB",
            printed=uniform.text,
            source=uniform.source,
        ),
    ]


def _share(values: Floats) -> float:
    return float(values[-PART:].mean() / values[:PART].mean() - 1)


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
