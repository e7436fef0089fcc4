"""Draw the rows of an answer, with what is printed over them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from orchestrator.analysis.stats import agreement
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.core.errors import ConfigError
from orchestrator.experiment.paperfile import Draw, Figure
from orchestrator.papers import answering
from orchestrator.papers.answering import OWN, Paper
from orchestrator.papers.verdicts import printed_table
from orchestrator.questions.rows import REPETITION, Row, Rows, grouped, meets
from orchestrator.report.style import INK, LINES, SERIES, WIDTH_IN, Picture, from_zero, legend, look, save

HEIGHT_IN = 2.7  # of a panel
IN_A_ROW = 4  # heatmaps
ACROSS = 84  # letters below a drawing
MOST_NAMED = 10  # rows or columns of a heatmap that all have their names


def pictures(paper: Paper, figure: Figure, rows: Rows, stem: Path) -> Iterator[Picture]:
    """Draw a figure, a picture for each entry of `draw` that has rows, into files whose names begin with `stem`."""
    for place, one in enumerate(figure.draw):
        mine = answering.changed(paper, [row for row in rows if meets(row, one.where)], one.ask)
        if not mine:
            continue
        name = stem.name + (f"-{place + 1}" if len(figure.draw) > 1 else "")
        with look():
            drawing = drawn(paper, one, mine)
            saved = save(drawing, stem.with_name(name))
        yield Picture(name=name, title=figure.title, caption=caption(one), saved=saved)


def drawn(paper: Paper, one: Draw, rows: Rows) -> Drawing:
    """Return one drawing of rows; within `look()`."""
    if one.kind.startswith(f"{OWN}."):
        drawing = Drawing(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        try:
            paper.function(one.kind)(rows, drawing, **one.arguments)
        except Exception as error:  # noqa: BLE001 - whatever a paper's author wrote
            raise ConfigError(f"{paper.folder}: {one.kind}: {type(error).__name__}: {error}") from None
        return drawing
    _check(paper, one, rows)
    panels = grouped(rows, [one.panels] if one.panels else [])
    wide = IN_A_ROW if one.kind == "heatmap" else 1 if len(panels) == 1 else 2
    high = math.ceil(len(panels) / min(wide, len(panels)))
    height = (2.3 if one.kind == "heatmap" else HEIGHT_IN) * high + (0.3 if one.series else 0)
    drawing = Drawing(figsize=(WIDTH_IN, height), layout="constrained")
    spots = drawing.subplots(high, min(wide, len(panels)), squeeze=False, sharey=one.kind != "heatmap").ravel()
    for spot in spots[len(panels) :]:
        spot.axis("off")
    series = list(grouped(rows, [one.series])) if one.series else [()]
    for spot, (names, mine) in zip(spots, panels.items(), strict=False):
        _panel(paper, one, spot, mine, series, of={one.panels: names[0]} if one.panels else {})
        if one.panels:
            spot.set_title(_word(one, names[0]), fontsize=8 if one.kind == "heatmap" else None)
    if one.kind != "heatmap" and "y" not in one.log:
        from_zero(spots[0])  # panels share the axis
    legend(*spots[: len(panels)], columns=4, above=drawing if one.panels else None)
    return drawing


def caption(one: Draw) -> str:
    """Return what a reader has to know of a drawing."""
    known = {
        "lines": "Means over repetitions, with 95 % intervals.",
        "points": "Means over repetitions, with 95 % intervals.",
        "bars": "Means over repetitions, with 95 % intervals.",
    }
    texts = [known.get(one.kind, ""), "Hollow: printed." if one.printed else "", one.caption]
    return " ".join(text for text in texts if text)


def _check(paper: Paper, one: Draw, rows: Rows) -> None:
    needed = [one.x, *([] if one.kind == "cdf" else [one.y]), *([one.z] if one.kind == "heatmap" else [])]
    for name in [*needed, *filter(None, (one.series, one.panels))]:
        if name not in rows[0]:
            raise ConfigError(f"{paper.folder}: drawing: {name or 'x, y'}: accepted columns: {', '.join(rows[0])}")


def _panel(paper: Paper, one: Draw, spot: Any, rows: Rows, series: Sequence[tuple[Any, ...]], *, of: Row) -> None:
    if one.kind == "heatmap":
        _heatmap(one, spot, rows)
        return
    for number, name in enumerate(series):
        mine = [row for row in rows if not one.series or row[one.series] == name[0]]
        label = _word(one, name[0]) if name else ""
        if mine:
            {"lines": _lines, "points": _lines, "bars": _bars, "cdf": _cdf, "area": _area}[one.kind](
                one, spot, mine, number=number, label=label, of=len(series), among=rows
            )
        if one.printed:
            _printed(paper, one, spot, {**of, **({one.series: name[0]} if name else {})}, number=number, among=rows)
    for which in one.log:
        getattr(spot, f"set_{which}scale")("log")
        axis = getattr(spot, f"{which}axis")
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_formatter(NullFormatter())
    spot.set(xlabel=_word(one, one.x), ylabel="share" if one.kind == "cdf" else _word(one, one.y))


def _estimates(rows: Rows, x: str, y: str) -> tuple[list[Any], list[Estimate]]:
    """Return the values of x in order, and at each the mean of y over repetitions with its interval."""
    places, found = [], []
    for (place,), at in grouped(sorted(rows, key=lambda row: _sorting(row[x])), [x]).items():
        each = [
            float(np.mean([row[y] for row in of]))
            for of in grouped([row for row in at if row[y] is not None], [REPETITION]).values()
        ]
        if each:
            places.append(place)
            found.append(agreement.over_runs(each))
    return places, found


def _sorting(value: Any) -> tuple[int, Any]:
    return (1, str(value)) if isinstance(value, str) or value is None else (0, value)


def _positions(rows: Rows, x: str) -> dict[Any, float]:
    """Return where each value of x stands: a number at itself, texts side by side in the order of the rows."""
    values = list(dict.fromkeys(row[x] for row in rows))
    if not all(isinstance(value, int | float) for value in values):
        return {value: float(place) for place, value in enumerate(values)}
    return {value: float(value) for value in values}


def _errors(found: Sequence[Estimate]) -> Any:
    values = np.array([one.value for one in found])
    return np.nan_to_num(np.abs(np.array([[one.low for one in found], [one.high for one in found]]) - values))


def _lines(one: Draw, spot: Any, rows: Rows, *, number: int, label: str, among: Rows, of: int) -> None:
    del of
    places, found = _estimates(rows, one.x, one.y)
    at = _positions(among, one.x)
    spot.errorbar(
        [at[place] for place in places],
        [one.value for one in found],
        yerr=_errors(found),
        color=SERIES[number % len(SERIES)],
        linestyle=LINES[number // len(SERIES) % len(LINES)] if one.kind == "lines" else "none",
        marker="o",
        markersize=4,
        linewidth=1.1,
        elinewidth=0.9,
        capsize=3,
        label=label,
    )
    _named(one, spot, at)


def _named(one: Draw, spot: Any, at: Mapping[Any, float]) -> None:
    if not all(isinstance(value, int | float) for value in at):
        spot.set_xticks(list(at.values()), _words(one, spot, at))
        spot.grid(visible=False, axis="x")


def _bars(one: Draw, spot: Any, rows: Rows, *, number: int, label: str, among: Rows, of: int) -> None:
    places, found = _estimates(rows, one.x, one.y)
    at = {value: place for place, value in enumerate(dict.fromkeys(row[one.x] for row in among))}
    wide = 0.8 / of
    spot.bar(
        [at[place] + ((number + 0.5) * wide - 0.4) for place in places],
        [one.value for one in found],
        wide,
        yerr=_errors(found),
        color=SERIES[number % len(SERIES)],
        alpha=1.0 if number < len(SERIES) else 0.5,
        ecolor=INK,
        error_kw={"elinewidth": 0.8, "capsize": 2},
        label=label,
    )
    spot.set_xticks(list(at.values()), _words(one, spot, at))
    spot.grid(visible=False, axis="x")


def _cdf(one: Draw, spot: Any, rows: Rows, *, number: int, label: str, among: Rows, of: int) -> None:
    """Draw the cumulative distribution of x; y, where it is given, is the weight of a row."""
    del among, of
    values = np.array([row[one.x] for row in rows], float)
    weights = np.array([row[one.y] for row in rows], float) if one.y else np.ones(len(values))
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    look = {"color": SERIES[number % len(SERIES)], "linestyle": LINES[number // len(SERIES) % len(LINES)]}
    spot.step(values[order], share, where="post", label=label, **look)


def _area(one: Draw, spot: Any, rows: Rows, *, number: int, label: str, among: Rows, of: int) -> None:
    del among, of
    ordered = sorted(rows, key=lambda row: row[one.x])
    spot.fill_between(
        [row[one.x] for row in ordered],
        [row[one.y] for row in ordered],
        color=SERIES[number % len(SERIES)],
        step="mid",
        linewidth=0,
        alpha=0.8,
        label=label,
    )


def _printed(paper: Paper, one: Draw, spot: Any, of: Row, *, number: int, among: Rows) -> None:
    """Draw printed values as hollow marks: those with the values of this panel and series, where they have these."""
    table, _ = printed_table(paper, one.printed)
    there = [
        row
        for row in answering.as_rows(table)
        if row.get(one.x) is not None
        and row.get(one.y) is not None
        and all(name not in row or row[name] == value for name, value in of.items())
    ]
    at = _positions(among, one.x)
    wide = 0.8 / max(1, len(grouped(among, [one.series]))) if one.series else 0.8
    shift = (number + 0.5) * wide - 0.4 if one.kind == "bars" else 0.0
    known = [
        ((list(at).index(row[one.x]) + shift if one.kind == "bars" else at.get(row[one.x], row[one.x])), row[one.y])
        for row in there
        if row[one.x] in at or (not isinstance(row[one.x], str) and one.kind != "bars")
    ]
    if known:
        color = INK if one.kind == "bars" else SERIES[number % len(SERIES)]
        x, y = zip(*known, strict=True)
        spot.plot(x, y, color=color, marker="D", markersize=5, markerfacecolor="none", linestyle="none")


def _heatmap(one: Draw, spot: Any, rows: Rows) -> None:
    """Draw the mean of z in each cell, y down and x to the right."""
    across, down = ([value for (value,) in grouped(rows, [name])] for name in (one.x, one.y))
    cells = np.full((len(down), len(across)), np.nan)
    for (x, y), of in grouped(rows, [one.x, one.y]).items():
        known = [row[one.z] for row in of if row[one.z] is not None]
        if known:
            cells[down.index(y), across.index(x)] = float(np.mean(known))
    most = float(np.nanmax(cells)) if np.isfinite(cells).any() else 1.0
    square = max(cells.shape) <= MOST_NAMED
    shades = {"cmap": "Blues", "vmin": -0.15 * most, "vmax": most, "aspect": "equal" if square else "auto"}
    spot.imshow(np.where(cells > 0, cells, np.nan), **shades)
    for put, values in ((spot.set_xticks, across), (spot.set_yticks, down)):
        every = math.ceil(len(values) / MOST_NAMED)
        put(range(0, len(values), every), [_word(one, value) for value in values[::every]], fontsize=7)
    spot.grid(visible=False)
    if cells.size <= 100:
        for row, column in np.argwhere(cells >= 0.001 * most):
            dark = cells[row, column] > 0.5 * most
            text = f"{cells[row, column]:.3g}"
            spot.text(column, row, text, ha="center", va="center", fontsize=6.5, color="#fefefe" if dark else INK)


def _word(one: Draw, value: Any) -> str:
    """Return what a column or a value is called."""
    return one.labels.get(str(value), f"{value:g}" if isinstance(value, float) else str(value))


def _words(one: Draw, spot: Any, values: Collection[Any]) -> list[str]:
    """Return what values beside each other are called, in lines that leave each its room."""
    width = max(8, ACROSS // (spot.get_gridspec().ncols * max(1, len(values))))
    return ["\n".join(textwrap.wrap(_word(one, value), width)) for value in values]
