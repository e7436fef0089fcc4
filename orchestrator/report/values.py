"""Extract the numbers that a figure draws, for the page and the CSV file beside it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

MOST_SIDE = 16  # rows and columns of a heatmap that a page shows
MOST_SHOWN = 40  # points of a series; of a longer one a page says what it lies between, and the file has all
_NUMERIC = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?")
_HEAD = ("panel", "series", "x", "y", "low", "high")

Row = tuple[str, str, str, str]
Place = tuple[float, float]
Ticks = tuple[Mapping[float, str], Mapping[float, str]]  # texts at places of x and of y


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line, points or bars of a panel: rows of x, y, and the ends of y's interval (empty where none is drawn).

    `x` and `y` are what the axes are called, with their units. `places` is where each row is drawn, in data
    coordinates of `artist`'s axes; of bars `artist` is their container.
    """

    panel: str
    label: str
    x: str
    y: str
    rows: tuple[Row, ...]
    places: tuple[tuple[float, float], ...]
    artist: Any

    @property
    def short(self) -> bool:
        """Whether a page shows every row."""
        return len(self.rows) <= MOST_SHOWN

    @property
    def between(self) -> str:
        """The range of y, where it is numbers."""
        found = [float(y) for _, y, *_ in self.rows if _NUMERIC.fullmatch(y)]
        return f"{min(found):.4g} to {max(found):.4g}" if found else ""

    @property
    def intervals(self) -> bool:
        """Whether any row has an interval."""
        return any(low or high for *_, low, high in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A heatmap: a cell for each row and column by their names, empty where nothing is drawn.

    `x` and `y` are what columns and rows are called, `image` is what draws it.
    """

    panel: str
    x: str
    y: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]  # name and cells
    image: Any

    @property
    def short(self) -> bool:
        """Whether a page shows every cell."""
        return max(len(self.columns), len(self.rows)) <= MOST_SIDE

    @property
    def between(self) -> str:
        """The range of the values."""
        found = [float(cell) for _, cells in self.rows for cell in cells if cell]
        return f"{min(found):.4g} to {max(found):.4g}" if found else ""


def of_figure(drawing: Figure) -> tuple[Series, ...]:
    """Return every line, interval and bar of a figure, panel by panel."""
    return tuple(one for panel in drawing.axes for one in _of_panel(panel) if one.rows)


def grids(drawing: Figure) -> tuple[Grid, ...]:
    """Return every heatmap of a figure."""
    return tuple(_grid(panel, image) for panel in drawing.axes for image in _numbered(panel))


def _numbered(panel: Any) -> list[Any]:
    """Yield the images of a panel that are numbers; others are colours."""
    return [image for image in panel.images if image.get_array().ndim == 2]


def csv_text(found: Sequence[Series], maps: Sequence[Grid] = ()) -> str:
    """Return all rows, and all cells of heatmaps that are not empty, as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEAD)
    writer.writerows((f"{one.y} over {one.x}", one.label, *row) for one in found for row in one.rows)
    for one in maps:
        for name, cells in one.rows:
            points = zip(one.columns, cells, strict=True)
            writer.writerows((one.panel, f"{one.y} {name}".strip(), at, cell, "", "") for at, cell in points if cell)
    return out.getvalue()


def _grid(panel: Any, image: Any) -> Grid:
    cells = np.ma.filled(np.ma.asarray(image.get_array(), np.float64), np.nan)
    names = [
        [_text(float(at), texts) for at in range(count)]
        for texts, count in zip((words(panel.yaxis), words(panel.xaxis)), cells.shape, strict=True)
    ]
    return Grid(
        panel=" ".join(panel.get_title(loc="left").split()),
        x=panel.get_xlabel(),
        y=panel.get_ylabel(),
        columns=tuple(names[1]),
        rows=tuple(
            (name, tuple("" if np.isnan(cell) else _number(cell) for cell in row))
            for name, row in zip(names[0], cells.tolist(), strict=True)
        ),
        image=image,
    )


def _of_panel(panel: Any) -> Iterator[Series]:
    names = {"panel": panel.get_title(loc="left"), "x": x_label(panel), "y": panel.get_ylabel()}
    ticks = words(panel.xaxis), words(panel.yaxis)
    within: set[Any] = set()
    for container in panel.containers:
        if isinstance(container, ErrorbarContainer) and container.lines[0] is not None:
            within |= {container.lines[0], *container.lines[1]}  # and the caps of its bars
            yield _of_line(container.lines[0], label(container), ticks, names, _ends(container))
        elif isinstance(container, BarContainer):
            yield _of_bars(container, ticks, names)
    for line in panel.get_lines():
        if line not in within and line.get_transform() == panel.transData:  # others mark a place on one axis
            yield _of_line(line, label(line), ticks, names, {})


def x_label(panel: Any) -> str:
    """Return the label of a panel's x axis, which may stand below the last panel."""
    labels = [panel.get_xlabel(), *(other.get_xlabel() for other in reversed(panel.figure.axes))]
    return next(filter(None, labels), "")


def label(artist: Any) -> str:
    """Return what a legend calls an artist or container; empty for what has no name."""
    found = str(artist.get_label() or "")
    return "" if found.startswith("_") else found


def words(axis: Any) -> Mapping[float, str]:
    """Return the texts of ticks that replace numbers."""
    places = axis.get_major_locator()
    if not isinstance(places, FixedLocator):
        return {}
    at = np.asarray(places(), np.float64).tolist()  # those that it was given
    return dict(zip(at, axis.get_major_formatter().format_ticks(at), strict=True))


def _of_line(
    line: Any, called: str, ticks: Ticks, names: Mapping[str, str], ends: Mapping[Place, tuple[str, str]]
) -> Series:
    x, y = (np.asarray(values, np.float64) for values in line.get_data())
    known = np.isfinite(x) & np.isfinite(y)
    places: tuple[Place, ...] = tuple(zip(x[known].tolist(), y[known].tolist(), strict=True))
    rows = tuple((_text(at[0], ticks[0]), _text(at[1], ticks[1]), *ends.get(at, ("", ""))) for at in places)
    return Series(label=called, rows=rows, places=places, artist=line, **names)


def _ends(container: ErrorbarContainer) -> dict[Place, tuple[str, str]]:
    """Return by point the low and high end of an errorbar, along x or y; nothing where both are the point."""
    x, y = (np.asarray(values, np.float64) for values in container.lines[0].get_data())
    found = {}
    for bars in container.lines[2]:
        for at, segment in zip(zip(x.tolist(), y.tolist(), strict=True), bars.get_segments(), strict=False):
            if len(segment):
                axis = int(np.ptp(segment[:, 1]) > 0)
                low, high = segment[:, axis].min(), segment[:, axis].max()
                if high > low:
                    found[at] = (_number(float(low)), _number(float(high)))
    return found


def drawn_bars(container: BarContainer) -> list[Any]:
    """Return the bars that have a length; others stand for values that are not known."""
    return [bar for bar in container.patches if np.isfinite((bar.get_width(), bar.get_height())).all()]


def _of_bars(container: BarContainer, ticks: Ticks, names: Mapping[str, str]) -> Series:
    lying = container.orientation == "horizontal"
    rows, places = [], []
    for bar in drawn_bars(container):
        width, height = bar.get_width(), bar.get_height()
        middle = bar.get_x() + width / 2, bar.get_y() + height / 2
        x = _number(width) if lying else _nearest(middle[0], ticks[0])
        y = _nearest(middle[1], ticks[1]) if lying else _number(height)
        rows.append((x, y, "", ""))
        places.append((bar.get_x() + width, middle[1]) if lying else (middle[0], bar.get_y() + height))
    return Series(label=label(container), rows=tuple(rows), places=tuple(places), artist=container, **names)


def _text(value: float, texts: Mapping[float, str]) -> str:
    return texts.get(value) or _number(value)


def _nearest(value: float, texts: Mapping[float, str]) -> str:
    """Return the text nearest to a bar, which may stand beside it in a group."""
    return texts[min(texts, key=lambda place: abs(place - value))] if texts else _number(value)


def _number(value: float) -> str:
    return f"{value:.5g}"
