"""Draw the figures of the page: volumes, heatmaps, flows over time, rates of pairs, batches, losses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.papers.zerwas import frameworks, rates, volumes
from orchestrator.papers.zerwas.frameworks import BATCH, CALLED, PAIRS, RINGS, Measured
from orchestrator.papers.zerwas.published import Zerwas
from orchestrator.report import traffic_section
from orchestrator.report.style import INK, SERIES, SOFT, WIDTH_IN, Picture, figure, legend, save

_GRID = 4  # heatmaps in a row
_SHOWN_S = 1.0  # of Fig 9
_TIMED = ("horovod-gloo", "binary-tree-star", PAIRS)


def bars(found: Sequence[Measured], printed: Zerwas, folder: Path) -> Iterator[Picture]:
    """Draw Fig 3."""
    grid = [one for one in frameworks.plain(found) if one.framework != frameworks.SERVERS]
    if not grid:
        return
    models = list(dict.fromkeys(one.model for one in grid))
    names = [name for name in CALLED if name in {one.framework for one in grid}]
    drawing, (panel,) = figure(height_in=3.2)
    wide = 0.8 / len(names)
    for number, name in enumerate(names):
        mine = {one.model: volumes.total_gb(one, printed) for one in grid if one.framework == name}
        at = [models.index(model) + (number + 0.5) * wide - 0.4 for model in mine]
        panel.bar(
            at,
            list(mine.values()),
            wide,
            color=SERIES[number % len(SERIES)],
            alpha=1.0 if number < len(SERIES) else 0.5,
            label=CALLED[name],
        )
    for line in printed.volumes:
        panel.axhline(line.gb, color=SOFT, linewidth=0.9, linestyle=":")
        panel.annotate(
            f"printed: {line.what}",
            (1.0, line.gb),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=7.5,
            color=SOFT,
        )
    panel.set_xticks(range(len(models)), models)
    panel.set(ylabel="GB", yscale="log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.grid(visible=False, axis="x")
    legend(panel, columns=3)
    yield _picture("volumes", "Volume of 20 epochs", drawing, "TCP payload of all hosts; logarithmic.", folder)


def heatmaps(found: Sequence[Measured], printed: Zerwas, folder: Path) -> Iterator[Picture]:
    """Draw Fig 4: one a framework and strategy, mean over its measured models; rings turn either way."""
    grid = frameworks.plain(found)
    kinds: dict[str, list[Measured]] = {}
    for one in grid:
        kinds.setdefault(one.framework, []).append(one)
    if not kinds:
        return
    rows = -(-len(kinds) // _GRID)
    drawing = Figure(figsize=(WIDTH_IN, 2.2 * rows), layout="constrained")
    panels = drawing.subplots(rows, _GRID, squeeze=False).ravel()
    for panel in panels[len(kinds) :]:
        panel.axis("off")
    for panel, (kind, mine) in zip(panels, kinds.items(), strict=False):
        _heatmap(panel, kind, mine, printed.steps(BATCH) / 1e9)
    caption = "GB of 20 epochs from row to column, payload, mean over the models measured of each."
    yield _picture("patterns", "Patterns", drawing, caption, folder)


def _heatmap(panel: Any, kind: str, mine: Sequence[Measured], factor: float) -> None:
    """Draw one matrix: hosts that send or receive, workers in their order and servers first."""
    by_model: dict[str, list[Any]] = {}
    for one in mine:
        by_model.setdefault(one.model, []).append(one.sights[0].volume.payload)
    hosts = mine[0].sights[0].volume.hosts
    whole = np.mean([np.mean(found, axis=0) for found in by_model.values()], axis=0) * factor
    used = np.flatnonzero(whole.sum(axis=0) + whole.sum(axis=1) > 0)
    shown = whole[np.ix_(used, used)]
    panel.imshow(np.where(shown > 0, shown, np.nan), cmap="Blues", vmin=-0.15 * shown.max(), vmax=shown.max())
    workers = set(mine[0].point.job.nodes)
    names = [f"W{sorted(workers).index(hosts[host]) + 1}" if hosts[host] in workers else "PS" for host in used]
    panel.set_xticks(range(len(used)), names, fontsize=7)
    panel.set_yticks(range(len(used)), names, fontsize=7)
    panel.grid(visible=False)
    several = "s" if len(by_model) > 1 else ""
    panel.set_title(f"{CALLED[kind]}\n({len(by_model)} model{several})", fontsize=7)
    for row, column in np.argwhere(shown >= 0.001 * shown.max()):
        value = shown[row, column]
        panel.text(
            column,
            row,
            f"{value:.3g}",
            ha="center",
            va="center",
            fontsize=6.5,
            color="#fefefe" if value > 0.5 * shown.max() else INK,
        )


def timed(found: Sequence[Measured], folder: Path) -> Iterator[Picture]:
    """Draw Fig 6: flows over time of one framework of each kind."""
    for one in frameworks.plain(found):
        if one.model == rates.FLOWS_OF and one.framework in _TIMED:
            drawn = traffic_section.flow_chart(one.first.whole, one.point.mean_s.value)
            if drawn is not None:
                title = f"{one.called}: flows over time"
                yield _picture(f"flows-{one.framework}", title, drawn[0], f"{title}. {drawn[1]}", folder)


def zoomed(found: Sequence[Measured], folder: Path) -> Iterator[Picture]:
    """Draw Fig 7: a ring and pair averaging."""
    mine = {one.framework: one for one in frameworks.plain(found) if one.model == rates.ZOOMED}
    ring = next((name for name in RINGS if name in mine), None)
    for name in (ring, PAIRS):
        if name in mine:
            window = mine[name].first
            drawn = traffic_section.zoom(window.run.views[window.window.record.name], window.run.scale)
            if drawn is not None:
                title = f"{mine[name].called}: pairs of hosts"
                yield _picture(f"pairs-{name}", title, drawn[0], f"{title}. {drawn[1]}", folder)


def batches(found: Sequence[Measured], folder: Path) -> Iterator[Picture]:
    """Draw Fig 9: one pair of the ring, three batches."""
    mine = sorted(rates.of_batches(found).items())
    if not mine:
        return
    drawing, panels = figure(len(mine), height_in=0.8 + 0.9 * len(mine))
    for panel, (batch, one) in zip(panels, mine, strict=True):
        values, step_s = one.sights[0].big[0], one.sights[0].width_s
        shown = values[len(values) // 3 :][: round(_SHOWN_S / step_s)]
        panel.fill_between(np.arange(len(shown)) * step_s * 1e3, shown, color=SERIES[0], step="mid", linewidth=0)
        panel.set_title(f"batch {batch}", loc="right", pad=2)
        panel.set_ylim(bottom=0)
    panels[-1].set_xlabel("time (ms)")
    drawing.supylabel("Gbit/s", fontsize=9)
    yield _picture("batches", "One pair of the ring", drawing, "Layer 2, the flow with most payload.", folder)


def losses(ratios: Mapping[float, Estimate], printed: Zerwas, folder: Path) -> Iterator[Picture]:
    """Draw Fig 10."""
    if len(ratios) < 2:
        return
    drawing, (panel,) = figure(height_in=2.6)
    shares = sorted(ratios)
    values = np.array([ratios[share].value for share in shares])
    low, high = (np.array([getattr(ratios[share], end) for share in shares]) for end in ("low", "high"))
    errors = np.nan_to_num(np.clip(np.array([values - low, high - values]), 0, None))
    panel.errorbar([share * 100 for share in shares], values, yerr=errors, color=SERIES[0], marker="o", label="ours")
    panel.plot(
        [line.share * 100 for line in printed.losses],
        [line.ratio for line in printed.losses],
        color=SERIES[1],
        marker="D",
        linestyle="",
        markerfacecolor="none",
        label="printed",
    )
    panel.set(xlabel="packets lost (%)", ylabel="duration over that without loss")
    panel.set_ylim(bottom=0)
    legend(panel)
    yield _picture("losses", "Loss", drawing, "Ratios of mean step times with 95 % intervals.", folder)


def _picture(name: str, title: str, drawing: Any, caption: str, folder: Path) -> Picture:
    return Picture(name=name, title=title, caption=caption, saved=save(drawing, folder / name))
