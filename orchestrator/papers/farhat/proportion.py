"""Observation (i): bytes that workers exchange in an iteration, over the size of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.stats import linear
from orchestrator.analysis.stats.agreement import over_runs, repetitions
from orchestrator.analysis.stats.linear import Regression
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.papers.farhat.published import Farhat
from orchestrator.papers.farhat.trainings import LIBRARIES, Training
from orchestrator.report.study.content import (
    Comparison,
    Rows,
    Section,
    Table,
    cannot_tell,
    claimed,
    mb,
    number,
    percent,
)
from orchestrator.report.style import LINES, SERIES, SOFT, Picture, figure, from_zero, legend, look, save

TITLE = "Data an iteration against the model size"

Sizes = Mapping[str, tuple[float, float]]  # by model: its bytes, and the bytes of an iteration


def section(found: Sequence[Training], printed: Farhat, folder: Path) -> Section:
    """Compare a line through the models of each library, with its fit, with theory."""
    libraries = list(dict.fromkeys(one.controller for one in found))
    sizes = {library: by_model(found, library) for library in libraries}
    lines = {library: line(of) for library, of in sizes.items()}
    return Section(
        title=TITLE,
        text=(
            "TCP payload of all workers in an iteration, from captures, without what was sent again; a model's size is "
            "that of its parameters in 32 bits. A line is drawn through one value a model, the mean over its points; "
            "what is judged is worked out of each repetition of all points by itself."
        ),
        pictures=(_drawn(found, sizes, lines, folder),) if sizes else (),
        comparisons=tuple(one for library in libraries for one in compared(found, library, printed)),
        tables=(_table(found),),
    )


def compared(found: Sequence[Training], library: str, printed: Farhat) -> list[Comparison]:
    """Judge whether volumes are on a line through the origin, as proportional volumes are."""
    finding = printed.finding("proportional")
    mine = [one for one in found if one.controller == library]
    what = f"{len({one.model for one in mine})} models over {LIBRARIES[library]}"
    checks = {name: printed.check(name) for name in ("line", "origin")}
    if line(by_model(found, library)) is None:
        why = "fewer than three models were measured over one library"
        return [cannot_tell(checks["line"], what, finding.text, source=finding.source, why=why)]
    each = [_by_size(mine, payloads) for payloads in repetitions(one.payloads for one in mine)]
    lines = [(fitted, sizes) for sizes in each if (fitted := line(sizes)) is not None]
    bytes_a_byte = number(float(np.mean([slope(fitted).value for fitted, _ in lines]))) if lines else "-"
    return [
        claimed(
            checks["line"],
            f"{what}: R2 of a line",
            over_runs(fitted.r2 for fitted, _ in lines),
            told=f"{bytes_a_byte} bytes a byte of the model; R2",
            printed=finding.text,
            source=finding.source,
        ),
        claimed(
            checks["origin"],
            f"{what}: intercept of the line over the mean volume",
            over_runs(fitted.intercept.estimate.value / _mean(sizes) for fitted, sizes in lines),
            printed=finding.text,
            source=finding.source,
        ),
    ]


def _mean(sizes: Sizes) -> float:
    return float(np.mean([volume for _, volume in sizes.values()]))


def by_model(found: Sequence[Training], library: str) -> dict[str, tuple[float, float]]:
    """Return bytes of each model over a library and of its iterations, mean over points; smallest model first."""
    mine = [one for one in found if one.controller == library]
    return _by_size(mine, [one.payload for one in mine])


def _by_size(mine: Sequence[Training], payloads: Sequence[float]) -> dict[str, tuple[float, float]]:
    """Return bytes of each model and of its iterations, mean over points with these payloads; smallest model first."""
    of_models: dict[str, list[float]] = {}
    for one, payload in sorted(zip(mine, payloads, strict=True), key=lambda pair: pair[0].model_bytes):
        of_models.setdefault(one.model, []).append(payload)
    sizes = {one.model: one.model_bytes for one in mine}
    return {model: (sizes[model], float(np.mean(found))) for model, found in of_models.items()}


def line(sizes: Sizes) -> Regression | None:
    """Fit a least-squares line through a volume for each model; None with fewer than three models."""
    size, volume = _columns(sizes)
    return linear.fit(volume, {"size": size}, {})


def slope(fitted: Regression) -> Estimate:
    """Return the bytes an iteration for each byte of the model."""
    return fitted.of("size")[0].estimate


def _columns(sizes: Sizes) -> tuple[list[float], list[float]]:
    return [size for size, _ in sizes.values()], [volume for _, volume in sizes.values()]


def _table(found: Sequence[Training]) -> Table:
    rows: Rows = [
        (
            one.label + (", Timeline" if one.timeline else ""),
            str(one.workers),
            mb(one.model_bytes),
            mb(one.payload),
            mb(one.theory),
            percent(one.payload / one.theory - 1),
            f"{one.payload / one.model_bytes:.2f}",
            str(one.flows),
            str(one.big_flows),
            str(one.runs),
        )
        for one in sorted(found, key=lambda one: (one.controller, one.model_bytes, one.link_bps, one.batch or 0))
    ]
    caption = (
        "MB (1e6 bytes) an iteration at full size. Theory is that of a ring of N workers, 2 (N - 1) x the model; what "
        "goes beyond it are the messages by which Horovod's workers agree, which no scale divides. Flows count one a "
        "direction; big ones carry 99 % of the payload."
    )
    head = ("training", "workers", "model", "sent", "theory", "off", "sent / model", "flows", "big flows", "windows")
    return Table(TITLE, caption, head, rows)


def _drawn(
    found: Sequence[Training], sizes: Mapping[str, Sizes], lines: Mapping[str, Regression | None], folder: Path
) -> Picture:
    with look():
        drawing, (volumes, ratios) = figure(2, height_in=5.0)
        for number_of, (library, of) in enumerate(sizes.items()):
            color = SERIES[number_of % len(SERIES)]
            x, y = (np.array(column) / 1e6 for column in _columns(of))
            volumes.plot(x, y / 1e3, color=color, marker="o", linestyle="", markersize=5, label=LIBRARIES[library])
            ratios.plot(x, y / x, color=color, marker="o", linestyle="", markersize=5)
            if (fitted := lines[library]) is not None:
                ends = np.array([0.0, x.max() * 1.05])
                on_line = fitted.intercept.estimate.value / 1e9 + slope(fitted).value * ends / 1e3
                volumes.plot(ends, on_line, color=color, linewidth=1.1)
            _named(volumes, of)
        for workers in sorted({one.workers for one in found}):
            ratios.axhline(2 * (workers - 1), color=SOFT, linestyle=LINES[2], linewidth=1.0, zorder=0)
        volumes.set(ylabel="GB an iteration, all workers")
        ratios.set(xlabel="size of the model (MB)", ylabel="bytes sent a byte of the model")
        from_zero(volumes)
        from_zero(ratios)
        volumes.set_xlim(left=0)
        legend(volumes)
        caption = "Above: volumes and the line through them. Below: volume over size; dotted: 2 (N - 1)."
        return Picture(name="proportion", title=TITLE, caption=caption, saved=save(drawing, folder / "proportion"))


def _named(panel: Any, sizes: Sizes) -> None:
    for place, (model, (size, volume)) in enumerate(sizes.items()):
        above = place % 2 == 1  # models of about one size stand side by side
        panel.annotate(
            model,
            (size / 1e6, volume / 1e9),
            xytext=(-5, 8) if above else (6, -8),
            textcoords="offset points",
            fontsize=8,
            ha="right" if above else "left",
        )
