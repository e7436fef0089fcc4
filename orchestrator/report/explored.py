"""Say what a page's `script/figures.js` needs to know of a figure to show its values, to zoom and to filter.

There is one drawing of a figure, Matplotlib's SVG. What moves when a reader zooms, and what belongs to an entry of the
legend, is numbered by `number_parts` before it is drawn; `packed` says which numbers these are, and where each value
stands. Coordinates are those of the SVG: points (1/72 inch), from the upper left corner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypedDict

import numpy as np
from matplotlib.artist import Artist
from matplotlib.container import BarContainer, Container
from matplotlib.figure import Figure

from orchestrator.report.page import pack
from orchestrator.report.values import Grid, Series, drawn_bars, label, words, x_label

PART = "part-"  # what ids of parts begin with in the SVG
_DIGITS = 2  # of a coordinate, after the point

Box: TypeAlias = "tuple[float, float, float, float]"  # left, top, right, bottom


class AxisDrawn(TypedDict):
    """An axis: its name with its unit, its limits from left to right or from the bottom up, and whether it has words.

    `part` is all of it, `title` the part of it that stays when it is zoomed, `group` is shared by axes that are zoomed
    together; `told` and `grid` say whether its ticks have texts and lines across the panel.
    """

    part: int
    title: int
    name: str
    group: int
    limits: tuple[float, float]
    log: bool
    words: bool
    told: bool
    grid: bool


class PanelDrawn(TypedDict):
    """A panel: the box in which data is drawn, its axes, and the parts that move when it is zoomed.

    `texts` move as they are; of others the coordinates do.
    """

    part: int
    box: Box
    x: AxisDrawn
    y: AxisDrawn
    moving: list[int]
    texts: list[int]


class SeriesDrawn(TypedDict):
    """A series: what it is called, and by value where it is drawn and what is said of it.

    `bars` are the parts of its bars, one a value; empty where it has none.
    """

    panel: int
    label: str
    at: list[tuple[float, float]]
    rows: Sequence[tuple[str, str, str, str]]
    bars: list[int]


class GridDrawn(TypedDict):
    """A heatmap: the box in which its cells are drawn, from the first row and column to the last ones."""

    panel: int
    box: Box
    title: str
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Sequence[Sequence[str]]


class FigureDrawn(TypedDict):
    """A figure. `labels` are the parts of each series by its name; `legend` the parts of each entry by the same."""

    panels: list[PanelDrawn]
    series: list[SeriesDrawn]
    grids: list[GridDrawn]
    labels: dict[str, list[int]]
    legend: dict[str, list[int]]


class Parts:
    """The numbers that the parts of a drawing were given."""

    def __init__(self) -> None:
        self._numbers: dict[Artist, int] = {}

    def add(self, artist: Artist) -> None:
        """Give a part its number, by which the SVG calls it."""
        self._numbers[artist] = len(self._numbers)
        artist.set_gid(f"{PART}{self._numbers[artist]}")

    def of(self, artists: Iterable[Artist]) -> list[int]:
        """Return the numbers of those of these that have one."""
        return [self._numbers[artist] for artist in artists if artist in self._numbers]


def number_parts(drawing: Figure) -> Parts:
    """Give numbers to panels, what moves in each, their axes, and the entries of legends."""
    parts = Parts()
    for panel in _panels(drawing):
        of_axes = (artist for axis in (panel.xaxis, panel.yaxis) for artist in (axis, axis.label))
        for artist in (panel, *of_axes, *_moving(panel), *panel.texts):
            parts.add(artist)
    for _, artists in _entries(drawing):
        for artist in artists:
            parts.add(artist)
    return parts


def packed(drawing: Figure, parts: Parts, series: Sequence[Series], grids: Sequence[Grid]) -> str:
    """Return a drawing that was laid out, its series and its heatmaps as gzipped JSON in base64."""
    height = float(drawing.get_size_inches()[1]) * 72.0

    def place(panel: Any, points: Any) -> Any:
        """Return points (N x 2) of a panel's data as coordinates of the SVG."""
        return _on_page(panel.transData.transform(np.asarray(points, np.float64)), drawing, height)

    panels = _panels(drawing)
    found: FigureDrawn = {
        "panels": [_panel(panel, panels, parts, _box(panel.bbox.corners(), drawing, height)) for panel in panels],
        "series": [_series(one, panels, parts, place) for one in series if _axes(one.artist) in panels],
        "grids": [_grid(one, panels, drawing, height) for one in grids],
        "labels": _labels(panels, parts),
        "legend": {name: parts.of(artists) for name, artists in _entries(drawing)},
    }
    return pack(found)


def _panels(drawing: Figure) -> list[Any]:
    return [panel for panel in drawing.axes if panel.get_label() != "<colorbar>"]


def _moving(panel: Any) -> list[Artist]:
    """Return what is drawn in the coordinates of a panel's data."""
    return [*panel.lines, *panel.patches, *panel.collections]


def _entries(drawing: Figure) -> Iterator[tuple[str, list[Artist]]]:
    """Yield the entries of all legends: the text, and what is drawn of them."""
    of_panels = (panel.get_legend() for panel in drawing.axes)
    for one in (*drawing.legends, *(legend for legend in of_panels if legend is not None)):
        for text, handle in zip(one.get_texts(), one.legend_handles, strict=True):
            yield text.get_text(), [text, *_drawn(handle)]


def _drawn(artist: Any) -> list[Artist]:
    """Return what is drawn of an artist or a container of several."""
    return artist.get_children() if isinstance(artist, Container) else [artist]


def _labels(panels: Sequence[Any], parts: Parts) -> dict[str, list[int]]:
    """Return the parts of everything that has a name, by it."""
    found: dict[str, list[int]] = defaultdict(list)
    for panel in panels:
        for artist in (*_moving(panel), *panel.containers):
            if name := label(artist):
                found[name] += parts.of(_drawn(artist))
    return dict(found)


def _panel(panel: Any, panels: Sequence[Any], parts: Parts, box: Box) -> PanelDrawn:
    beside = {way: getattr(panel, f"get_shared_{way}_axes")().get_siblings(panel) for way in "xy"}
    return {
        "part": parts.of([panel])[0],
        "box": box,
        "x": _axis(panel, panel.xaxis, x_label(panel), parts, min(map(panels.index, beside["x"]))),
        "y": _axis(panel, panel.yaxis, panel.get_ylabel(), parts, min(map(panels.index, beside["y"]))),
        "moving": parts.of(_moving(panel)),
        "texts": parts.of(panel.texts),
    }


def _axis(panel: Any, axis: Any, name: str, parts: Parts, group: int) -> AxisDrawn:
    lines = axis.get_gridlines()
    first, last = axis.get_view_interval().tolist()
    return {
        "part": parts.of([axis])[0],
        "title": parts.of([axis.label])[0],
        "name": name,
        "group": group,
        "limits": (last, first) if axis.get_inverted() else (first, last),
        "log": axis.get_scale() == "log",
        "words": bool(words(axis)),
        "told": panel.axison and any(text.get_text() and text.get_visible() for text in axis.get_ticklabels()),
        "grid": panel.axison and any(line.get_visible() and line.get_alpha() != 0 for line in lines),
    }


def _series(one: Series, panels: Sequence[Any], parts: Parts, place: Callable[[Any, Any], Any]) -> SeriesDrawn:
    panel = _axes(one.artist)
    return {
        "panel": panels.index(panel),
        "label": one.label,
        "at": [(x, y) for x, y in place(panel, one.places).tolist()],
        "rows": one.rows,
        "bars": parts.of(drawn_bars(one.artist)) if isinstance(one.artist, BarContainer) else [],
    }


def _grid(one: Grid, panels: Sequence[Any], drawing: Figure, height: float) -> GridDrawn:
    left, right, bottom, top = one.image.get_extent()
    corners = one.image.axes.transData.transform([(left, top), (right, bottom)])
    return {
        "panel": panels.index(one.image.axes),
        "box": _box(corners, drawing, height),
        "title": one.panel,
        "columns": one.columns,
        "rows": [name for name, _ in one.rows],
        "cells": [cells for _, cells in one.rows],
    }


def _axes(artist: Any) -> Any:
    return _drawn(artist)[0].axes


def _box(corners: Any, drawing: Figure, height: float) -> Box:
    on_page = _on_page(np.asarray(corners), drawing, height)
    (left, top), (right, bottom) = on_page.min(axis=0).tolist(), on_page.max(axis=0).tolist()
    return left, top, right, bottom


def _on_page(points: Any, drawing: Figure, height: float) -> Any:
    """Return pixels of a drawing (N x 2), from the lower left corner, as coordinates of the SVG."""
    inches = points / drawing.dpi
    return np.round(np.column_stack((inches[:, 0] * 72.0, height - inches[:, 1] * 72.0)), _DIGITS)
