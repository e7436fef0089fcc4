"""Render the results of benches in docs/measurements as tables and curves; each file is one bench on one machine.

A file is JSON: `bench`, `command`, `version` (a commit), `date`, `machine`, `load` (what ran beside it), `quick`, where
it was taken over from a page `taken_over`, and `tables`. A table has a `title`, `columns`, `rows` of numbers or text,
and perhaps a `curve`: the column `x` and the columns `y`, drawn as lines with `unit`; both axes are logarithmic.
`tests/bench/recording.py` writes these files.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "measurements"
OWN_PAGES = ("validity", "predict", "faults", "dilation", "choose", "fabric")  # benches that have a page of their own

SINGLE = ("what", "measured", "goal")

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_COLOURS = ("#3b6fd4", "#d1682a", "#2e9360", "#9a4fb8")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 300, 62, 18, 16, 46


def records(benches: Iterable[str] = ()) -> list[Mapping[str, Any]]:
    """Read the result files of these benches; without names those of all benches that have no page of their own."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
    wanted = set(benches)
    return [one for one in found if (one["bench"] in wanted if wanted else one["bench"] not in OWN_PAGES)]


def page() -> str:
    """Return the results of all benches without a page of their own as Markdown.

    A table of single figures comes first, then a section for each file.
    """
    every = records()
    single = [record for record in every if _is_single(record)]
    sections = ["\n\n".join([f"## {record['title'] or record['bench']}", *_section(record)]) for record in every]
    kept = [text for record, text in zip(every, sections, strict=True) if not _is_single(record)]
    return "\n\n".join([_overview(single), *kept])


def page_of(bench: str) -> str:
    """Return the results of one bench as Markdown, below a heading of the page's own."""
    return "\n\n".join("\n\n".join(_section(record)) for record in records([bench]))


def _is_single(record: Mapping[str, Any]) -> bool:
    return [table["columns"] for table in record["tables"]] == [list(SINGLE)]


def _overview(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the single figures as a table, and below it where each bench was measured."""
    rows = [[*row, record["bench"]] for record in found for row in record["tables"][0]["rows"]]
    origins = "\n".join(f"- {_origin(record)}" for record in found)
    return f"## Single figures\n\n{tabulated({'columns': [*SINGLE, 'bench'], 'rows': rows})}\n\n{origins}"


def _section(record: Mapping[str, Any]) -> Iterator[str]:
    yield _origin(record)
    for table in record["tables"]:
        if table["title"]:
            yield f"**{table['title']}**"
        if "curve" in table:
            yield drawn(table)
        yield tabulated(table)


def _origin(record: Mapping[str, Any]) -> str:
    """Say by which command, at which version, when, on which machine and under which load a file was measured."""
    has = record["machine"]
    machine = (
        f"{has['cores']} cores of {has['cpu']}, memory {has['memory']}, kernel {has['kernel']}, Python {has['Python']}"
    )
    load = record["load"] if record["load"].startswith("load") else f"load: {record['load']}"
    told = [f"Version {record['version']}", record["date"], machine, load]
    if record.get("quick"):
        told.append("few repetitions (`--quick`)")
    if "taken_over" in record:
        told.append(record["taken_over"])
    return f"`{record['command']}`. {'; '.join(told)}."


def tabulated(table: Mapping[str, Any]) -> str:
    """Return a table as Markdown."""
    lines = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    return "\n".join(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return str(value).replace("|", "\\|")


def drawn(table: Mapping[str, Any]) -> str:
    """Return the curve of a table as a figure of SVG, whose colours follow the page's."""
    curve = table["curve"]
    place = {name: number for number, name in enumerate(table["columns"])}
    lines = {
        name: [
            (x, y)
            for row in table["rows"]
            if (x := number_of(row[place[curve["x"]]])) is not None and (y := number_of(row[place[name]])) is not None
        ]
        for name in curve["y"]
    }
    points = [point for line in lines.values() for point in line]
    scale_x, ticks_x = _scale([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    scale_y, ticks_y = _scale([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    parts = [*_grid(ticks_x, ticks_y)]
    for (name, line), colour in zip(lines.items(), _COLOURS, strict=False):
        path = " ".join(f"{scale_x(x):.1f},{scale_y(y):.1f}" for x, y in sorted(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{scale_x(x):.1f}" cy="{scale_y(y):.1f}" r="3.5" fill="{colour}">'
            f"<title>{html.escape(_plain(name))}: {y:g} {html.escape(curve['unit'])} at {x:g}</title></circle>"
            for x, y in line
        ]
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">{html.escape(_plain(curve["x"]))}</text>')
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(_plain(name))}</span>'
        for name, colour in zip(lines, _COLOURS, strict=False)
    )
    told = html.escape(f"{', '.join(map(_plain, lines))} over {_plain(curve['x'])}")
    drawing = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{told}">{"".join(parts)}</svg>'
    return f'<figure class="curve">{drawing}<figcaption>{legend} ({html.escape(curve["unit"])})</figcaption></figure>'


def number_of(value: object) -> float | None:
    """Return the number that a cell begins with, or None: "0.52 s (0.48 to 0.73)" is 0.52."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.match(str(value))
    return float(found[0].replace(",", "")) if found else None


def _plain(text: str) -> str:
    return text.replace("`", "")


def _scale(values: Sequence[float], begin: float, end: float) -> tuple[Any, list[tuple[float, float]]]:
    """Return a scale from values to pixels, and the ticks of its axis with their places.

    It is logarithmic, or linear where a value is zero or less.
    """
    low, high = min(values), max(values)
    if low <= 0:
        return _linear_scale(low, high, begin, end)
    low, high = (low / 1.5, high * 1.5) if low == high else (low / 1.15, high * 1.15)
    span = math.log(high / low)

    def place(value: float) -> float:
        return begin + (end - begin) * math.log(value / low) / span

    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1.0, 2.0, 5.0) if len(decades) <= 4 else (1.0,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return place, [(tick, place(tick)) for tick in ticks if low <= tick <= high]


def _linear_scale(low: float, high: float, begin: float, end: float) -> tuple[Any, list[tuple[float, float]]]:
    margin = 0.05 * (high - low) or 1.0
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return begin + (end - begin) * (value - low) / (high - low)

    decade = 10.0 ** math.floor(math.log10(high - low))
    step = next(step for step in (0.2 * decade, 0.5 * decade, decade, 2 * decade) if (high - low) / step <= 8)
    ticks = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return place, [(tick, place(tick)) for tick in ticks]


def _grid(ticks_x: Iterable[tuple[float, float]], ticks_y: Iterable[tuple[float, float]]) -> Iterator[str]:
    for value, x in ticks_x:
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}" class="grid"/>'
        yield f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{_short(value)}</text>'
    for value, y in ticks_y:
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" class="grid"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
