"""Style and save every figure: legible, told apart without colour vision, themed by the page that holds it."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.report import explored, values
from orchestrator.report.values import Grid, Series

# Okabe and Ito's colours, which stay apart for people with any colour vision; without the yellow, too pale on paper.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
INK, SOFT, GRID, BACK = "#1c1d1f", "#6b6f76", "#dcdee2", "#ffffff"
LINES = ("-", "--", ":", "-.")
WIDTH_IN = 7.6
MOST_POINTS = 1500  # of a line: more are not seen apart
LEAST_TEXT_PX = 9  # of a figure's letters as a page shows them; where that is wider than the page, the figure scrolls
_LEGEND_LETTERS = 96  # in a line as wide as the page
_SVG_WIDTH = re.compile(r'<svg [^>]*?viewBox="0 0 ([\d.]+) ')
_TEXT_SIZE = re.compile(r'<text style="font-size: ([\d.]+)px')

LOOK: dict[str, object] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlesize": 9.0,
    "axes.titlelocation": "left",
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.8,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "path.simplify_threshold": 0.5,
}


def look() -> Any:
    """Return a context with the style in which figures are drawn and saved."""
    return mpl.rc_context(LOOK)  # type: ignore[arg-type]


def figure(rows: int = 1, *, height_in: float, sharex: bool = True) -> tuple[Figure, list[Any]]:
    """Return a figure as wide as the page with `rows` panels over one another; within `look()`, as is `save`."""
    drawing = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    panels = drawing.subplots(rows, 1, sharex=sharex, squeeze=False)
    return drawing, [row[0] for row in panels]


def from_zero(panel: Any) -> None:
    """Begin the y axis at zero, with room above the highest point."""
    panel.set_ylim(0, 1.05 * panel.get_ylim()[1])


def errorbars(panel: Any, x: Sequence[float], estimates: Sequence[Estimate], *, number: int, label: str) -> None:
    """Draw a line through estimates with their intervals, where known; `number` chooses colour and line style."""
    middle = np.array([one.value for one in estimates])
    ends = ([one.low for one in estimates], [one.high for one in estimates])
    panel.errorbar(
        x,
        middle,
        yerr=[np.nan_to_num(np.abs(np.array(end) - middle)) for end in ends],
        color=SERIES[number % len(SERIES)],
        linestyle=LINES[number // len(SERIES) % len(LINES)],
        marker="o",
        markersize=4,
        linewidth=1.1,
        elinewidth=0.9,
        capsize=3,
        label=label,
    )


def legend(*panels: Any, columns: int = 4, above: Any = None) -> None:
    """Draw a legend above the first panel for all panels, or above a whole drawing; none when there is a single label.

    What was given values none of which is known is drawn nowhere, and has no place in it.
    """
    known: dict[str, object] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            if not _unknown(handle):
                known.setdefault(label, handle)
    if len(known) > 1:
        fit = _LEGEND_LETTERS // (max(map(len, known)) + 6)
        place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)} if above is None else {"loc": "outside upper left"}
        (panels[0] if above is None else above).legend(
            list(known.values()),
            list(known),
            **place,
            ncols=max(1, min(columns, fit)),
            borderaxespad=0.2,
            handlelength=1.8,
            columnspacing=1.4,
            markerscale=0.5,
        )


def _unknown(handle: Any) -> bool:
    """Return whether a line, interval or group of bars has values, and none that is known."""
    found: Any
    if isinstance(handle, BarContainer):
        found = [(bar.get_width(), bar.get_height()) for bar in handle]
    else:
        line = handle.lines[0] if isinstance(handle, ErrorbarContainer) else handle
        found = line.get_xydata() if isinstance(line, Line2D) else ()
    return len(found) > 0 and bool(np.isnan(np.asarray(found, np.float64)).any(axis=1).all())


def thinned(x: Any, y: Any) -> tuple[Any, Any]:
    """Return at most MOST_POINTS points: the lowest and the highest one of each stretch, so that no spike is lost."""
    if len(x) <= MOST_POINTS:
        return x, y
    edges = np.linspace(0, len(x), MOST_POINTS // 2 + 1).astype(int)
    stretches = list(itertools.pairwise(edges.tolist()))
    keep = {begin + int(pick(y[begin:end])) for begin, end in stretches for pick in (np.argmin, np.argmax)}
    return x[sorted(keep)], y[sorted(keep)]


@dataclass(frozen=True, slots=True)
class Saved:
    """A figure for a page: its SVG, with colours that the page's theme sets, and the numbers that it draws.

    `explored` is what the page's script has to know to show values, to zoom and to filter.
    """

    svg: str
    values: tuple[Series, ...]
    grids: tuple[Grid, ...]
    explored: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure in a page: title, caption, and what `save` made of it."""

    name: str
    title: str
    caption: str
    saved: Saved

    @property
    def svg(self) -> str:
        """The drawing as an element of the page."""
        return self.saved.svg


def save(drawing: Figure, stem: Path) -> Saved:
    """Write STEM.svg, STEM.pdf, and the numbers, where it draws any, as STEM.csv; return what a page shows."""
    parts = explored.number_parts(drawing)
    with mpl.rc_context({"svg.hashsalt": stem.name}):
        FigureCanvasPdf(drawing).print_pdf(beside(stem, ".pdf"), metadata={"CreationDate": None})  # type: ignore[no-untyped-call]
        # What the first canvas laid out holds for the second one, and laying out again is half of the time.
        drawing.set_layout_engine("none")
        out = io.StringIO()
        FigureCanvasSVG(drawing).print_svg(out, metadata={"Date": None})  # type: ignore[no-untyped-call]
    text = out.getvalue()
    numbers, maps = values.of_figure(drawing), values.grids(drawing)
    beside(stem, ".svg").write_text(text, encoding="utf-8")
    if numbers or maps:
        beside(stem, ".csv").write_text(values.csv_text(numbers, maps), encoding="utf-8")
    return Saved(themed(text), numbers, maps, explored.packed(drawing, parts, numbers, maps))


def beside(stem: Path, suffix: str) -> Path:
    """Return a file of a figure; names of figures may have dots in them."""
    return stem.with_name(stem.name + suffix)


def themed(svg: str) -> str:
    """Return an SVG document as an element of a page: no prologue, and the palette as variables of the page's style.

    It is never so narrow that its smallest letters would be below LEAST_TEXT_PX. Its parts are numbered by `data-part`,
    since ids are those of the page.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'(<svg [^>]*?)\bheight="[^"]*pt" ?', r"\1", body, count=1)
    body = re.sub(r'(<svg [^>]*?)\bwidth="[^"]*pt" ?', r"\1", body, count=1)
    body = body.replace(f'id="{explored.PART}', 'data-part="')
    width, letters = _SVG_WIDTH.match(body), _TEXT_SIZE.findall(body)
    if width and letters:
        least_px = float(width[1]) * LEAST_TEXT_PX / min(map(float, letters))
        body = body.replace("<svg ", f'<svg style="min-width: {least_px:.0f}px" ', 1)
    names = {INK: "--ink", SOFT: "--soft", GRID: "--grid", BACK: "--page"}
    names |= {color: f"--s{number}" for number, color in enumerate(SERIES)}
    for color, name in names.items():
        body = body.replace(color, f"var({name})")
    return body
