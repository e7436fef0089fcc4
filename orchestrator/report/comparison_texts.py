"""Write a comparison as text, Markdown, JSON and JUnit XML."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, TypedDict
from xml.etree import ElementTree as ET

from orchestrator.analysis.causes import stored
from orchestrator.analysis.compare.comparing import Comparison, change_text, detectable, headline, percent, step_lines
from orchestrator.analysis.compare.regression import PointChange
from orchestrator.core.errors import StoreError
from orchestrator.core.opendata import JsonObject
from orchestrator.core.screen import layout

_HEAD = (
    "point", "verdict", "mean", "95 % interval", "detectable", "p50", "95 % interval", "p99", "p (all points)",
    "nights", "runs", "iterations", "runs differ by", "of that, within runs",
)  # fmt: skip
_SIDES = ("point", "nights", "runs", "iterations", "runs differ by", "of that,\nwithin runs")


def text(comparison: Comparison, *, width: int | None = None) -> str:
    """Return the comparison for a terminal of this width: verdict, a row a point, and what does not count."""
    changes = [line for change in comparison.changes for line in _lines(comparison, change)]
    sides = [(comparison.labels[change.point], *_sides(comparison, change)) for change in comparison.changes]
    names = ("point", "verdict", "", "change", _level(comparison), "detec-\ntable", "p (all\npoints)")
    lines = [headline(comparison), "", layout.table(names, changes, width=width)]
    lines += ["", f"What {comparison.a.name}, {comparison.b.name} hold:", layout.table(_SIDES, sides, width=width)]
    for title, found in lists(comparison):
        lines += ["", f"{title}:", *(f"  - {line}" for line in found)]
    return "\n".join(lines)


def markdown(comparison: Comparison) -> str:
    """Return the comparison as Markdown, for a chat or a pull request."""
    names = head(comparison)
    first, *changes = headline(comparison).splitlines()
    lines = [f"## {_mark(comparison)}", "", first, "", *(f"- {change}" for change in changes), ""]
    lines += ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(row(comparison, change)) + " |" for change in comparison.changes]
    for title, found in lists(comparison):
        lines += ["", f"**{title}**", "", *(f"- {line}" for line in found)]
    return "\n".join(lines) + "\n"


class SideData(TypedDict):
    """One side of a comparison: its runs, and why windows of it do not count."""

    name: str
    runs: list[str]
    left_out: list[str]


class ComparisonData(TypedDict):
    """A comparison as JSON data; rule, points and histories are records' fields (regression.py, comparing.py)."""

    a: SideData
    b: SideData
    rule: JsonObject
    unit: str
    status: int
    points: list[JsonObject]
    set_differently: list[str]
    differences: list[str]
    drawn_alike: list[str]
    age: JsonObject | None
    histories: list[JsonObject]


def data(comparison: Comparison) -> ComparisonData:
    """Return the comparison as JSON data; NaN becomes null."""
    found: ComparisonData = {
        "a": _side(comparison, "a"),
        "b": _side(comparison, "b"),
        "rule": {**dataclasses.asdict(comparison.rule), "margin": dict(comparison.rule.margin)},
        "unit": comparison.unit,
        "status": comparison.status,
        "points": [
            {
                "label": comparison.labels[change.point],
                **dataclasses.asdict(change),
                "levels": [dataclasses.asdict(level) for level in comparison.levels[change.point]],
            }
            for change in comparison.changes
        ],
        "set_differently": list(comparison.set_differently),
        "differences": list(comparison.differences),
        "drawn_alike": list(comparison.drawn_alike),
        "age": dataclasses.asdict(comparison.age) if comparison.age else None,
        "histories": [dataclasses.asdict(history) for history in comparison.histories],
    }
    document: ComparisonData = finite(found)
    return document


def junit(comparison: Comparison) -> str:
    """Return a test case a point: worse fails, "cannot tell" is skipped, and so is every window that does not count."""
    left_out = [*comparison.a.left_out, *comparison.b.left_out]
    suite = ET.Element(
        "testsuite",
        name=f"orch compare {comparison.a.name} {comparison.b.name}",
        tests=str(len(comparison.changes)),
        failures=str(len(comparison.of("worse"))),
        errors="0",
        skipped=str(len(comparison.of("cannot tell"))),
    )
    for change in comparison.changes:
        label = comparison.labels[change.point]
        case = ET.SubElement(suite, "testcase", classname=comparison.b.name, name=label)
        if change.verdict == "worse":
            ET.SubElement(case, "failure", message=change_text(change)).text = change.why
        elif change.verdict == "cannot tell":
            ET.SubElement(case, "skipped", message=change.why)
        ET.SubElement(case, "system-out").text = f"{change.verdict}: {change_text(change)}"
    if left_out:
        ET.SubElement(suite, "system-out").text = "not counted:\n" + "\n".join(left_out)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def write(path: Path, made: str) -> Path:
    """Write text of a comparison to a file; StoreError when that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    return path


def _mark(comparison: Comparison) -> str:
    if worse := len(comparison.of("worse")):
        return f"WORSE: {worse} of {len(comparison.changes)} points"
    if better := len(comparison.of("better")):
        return f"better: {better} of {len(comparison.changes)} points"
    open_points = len(comparison.of("cannot tell"))
    if open_points == len(comparison.changes):
        return "cannot tell"
    return "no point is worse" + (f"; cannot tell of {open_points}" if open_points else "")


def head(comparison: Comparison) -> tuple[str, ...]:
    """Return the names of the columns of the table of points."""
    return tuple(name.replace("95 % interval", _level(comparison)) for name in _HEAD)


def _level(comparison: Comparison) -> str:
    return f"{1 - comparison.rule.alpha:.0%} interval".replace("%", " %")


def row(comparison: Comparison, point: PointChange) -> tuple[str, ...]:
    """Return a point in that table; the p is that of a difference, and says nothing of points that are the same."""
    mean, p50, p99 = (point.change(statistic) for statistic in ("mean", "p50", "p99"))
    adjusted = [change.p_adjusted for change in point.changes if not math.isnan(change.p_adjusted)]
    p = "-" if not adjusted or point.verdict == "same" else f"{min(adjusted):.2g}"
    return (
        comparison.labels[point.point],
        point.verdict,
        percent(mean.ratio),
        _interval(mean.ratio, mean.low, mean.high),
        detectable(point),
        percent(p50.ratio),
        _interval(p50.ratio, p50.low, p50.high),
        percent(p99.ratio),
        p,
        *_sides(comparison, point),
    )


def _lines(comparison: Comparison, point: PointChange) -> list[tuple[str, ...]]:
    """Return the rows of a point for a screen, a line a statistic, where all columns would not fit."""
    found = []
    for change in point.changes:
        p = "-" if point.verdict == "same" or math.isnan(change.p_adjusted) else f"{change.p_adjusted:.2g}"
        interval = _interval(change.ratio, change.low, change.high)
        found.append((change.statistic, percent(change.ratio), interval, percent(change.detectable), p))
    first, *others = found
    return [(comparison.labels[point.point], point.verdict, *first), *(("", "", *other) for other in others)]


def _sides(comparison: Comparison, point: PointChange) -> tuple[str, ...]:
    """Return what either side holds of a point, and by how much its runs differ; within runs, where that is known."""
    levels = comparison.levels[point.point]
    pairs = (
        *((f"{count:,}" for count in counts) for counts in (point.nights, point.runs, point.iterations)),
        (_share(level.between, 2) for level in levels),
        (_share(level.within, 0) for level in levels),
    )
    return tuple(", ".join(pair) for pair in pairs)


def _share(value: float, digits: int) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.{digits}f} %"


def _interval(ratio: float, low: float, high: float) -> str:
    if math.isnan(ratio):
        return "-"
    return "unknown" if math.isnan(low) else f"{percent(low).removesuffix(' %')} to {percent(high)}"


def lists(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Return the lists beside the table, as titles with sentences."""
    undecided = [f"{comparison.labels[c.point]}: {c.why}{_could(c)}" for c in comparison.of("cannot tell")]
    titled = [
        ("Inconclusive, and why", undecided),
        ("What makes iterations slow now, and did not before", _causes(comparison)),
        ("What a dash stands for", _dashes(comparison)),
        ("Steps in the history", step_lines(comparison.histories)),
        ("No independent repetitions", list(comparison.drawn_alike)),
        ("Not counted, since not valid", [*comparison.a.left_out, *comparison.b.left_out]),
        (f"What else differs ({comparison.a.name} against {comparison.b.name})", list(comparison.differences)),
    ]
    return [(title, found) for title, found in titled if found]


def _causes(comparison: Comparison) -> list[str]:
    """Return the causes that `orch why` names on the later side alone, where a point is worse."""
    if not comparison.of("worse"):
        return []
    return stored.newly(*([entry.path for entry in side.entries] for side in (comparison.a, comparison.b)))


def _dashes(comparison: Comparison) -> list[str]:
    """Return why figures are missing in the tables, a line for each reason."""
    points: dict[str, list[str]] = {}
    for point in comparison.changes:
        for change in point.changes:
            if math.isnan(change.ratio):
                points.setdefault(f"no {change.statistic}, since {change.why}", []).append(
                    comparison.labels[point.point]
                )
    found = [f"{why}: {', '.join(labels)}" for why, labels in points.items()]
    if any(math.isnan(level.between) for levels in comparison.levels.values() for level in levels):
        found.append("runs differ by -: one run does not say by how much runs differ")
    elif any(math.isnan(level.within) for levels in comparison.levels.values() for level in levels):
        found.append("within runs -: a run has too few independent iterations for an interval of its own")
    return found


def _could(point: PointChange) -> str:
    return "" if math.isnan(point.change("mean").detectable) else f"; one of {detectable(point)} would have been found"


def _side(comparison: Comparison, which: str) -> SideData:
    side = comparison.a if which == "a" else comparison.b
    return {"name": side.name, "runs": [entry.run for entry in side.entries], "left_out": list(side.left_out)}


def finite(value: Any) -> Any:
    """Return data with null in place of NaN, which JSON has not."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
