"""Build the page of a paper: its figures in order, ours with the printed values over them, and a verdict a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from orchestrator.analysis.compare import repeated_draws
from orchestrator.core.errors import StoreError
from orchestrator.experiment.paperfile import Figure
from orchestrator.papers import answering, drawing, verdicts
from orchestrator.papers.answering import Paper
from orchestrator.papers.verdicts import HELD, MISSED, VERDICTS, Line, Verdict
from orchestrator.questions.rows import REPETITION, RUN, Measured, Rows, grouped
from orchestrator.report import page, tables
from orchestrator.report.style import Picture
from orchestrator.report.tables import Cell, Table
from orchestrator.store.rundir import Entry

_BESIDE = ("what", "ours", "printed", "apart", "verdict", "held to, or why not", "where")
_LOOKS: Mapping[Verdict, str] = {HELD: "good", MISSED: "bad"}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A figure as the page shows it."""

    figure: Figure
    lines: Sequence[Line]
    pictures: Sequence[Picture]
    table: Table | None

    @property
    def beside(self) -> Table:
        """Its judged lines; what is not compared stands apart."""
        rows = [
            (
                one.what,
                one.ours,
                one.printed,
                one.difference,
                Cell(one.verdict, look=_LOOKS[one.verdict]),
                one.why,
                one.place,
            )
            for one in self.lines
            if one.verdict in _LOOKS
        ]
        return tables.table("Ours beside the printed values", _BESIDE, rows)

    @property
    def counts(self) -> str:
        """How many lines have each verdict."""
        return counts(self.lines)

    @property
    def apart(self) -> list[tuple[str, list[str]]]:
        """What is not compared: each reason once, with what it is the reason for."""
        found: dict[str, list[str]] = {}
        for one in self.lines:
            if one.verdict not in _LOOKS:
                ours = f", ours {one.ours}" if one.ours else ""
                what = one.what if one.what == one.printed else f"{one.what}: {one.printed}"
                found.setdefault(one.why, []).append(f"{what}{ours} ({one.place})")
        return list(found.items())


def counts(lines: Sequence[Line]) -> str:
    """Return how many lines have each verdict, in words."""
    number = Counter(one.verdict for one in lines)
    return ", ".join(f"{number[verdict]} {verdict}" for verdict in VERDICTS)


class Rendered(NamedTuple):
    """A page that was written, the counts of its verdicts in words, and its lines, figure by figure."""

    path: Path
    headline: str
    lines: tuple[Line, ...]


def render(paper: Paper, entries: Sequence[Entry], output: Path) -> Rendered:
    """Write the page of these runs, its figures into `<output's stem>-figures` beside it; StoreError when it cannot."""
    every: list[Line] = []

    def shown(folder: Path) -> page.Values:
        measured = Measured(entries=tuple(entries))
        figures = [
            _shown(paper, figure, measured, folder, number) for number, figure in enumerate(paper.file.figures, 1)
        ]
        if not any(one.pictures or any(line.ours for line in one.lines) for one in figures):
            raise StoreError(
                f"nothing to show: no figure of {paper.paper.name} has an answer in these runs", hint="orch ls"
            )
        every.extend(line for one in figures for line in one.lines)
        return {
            "title": paper.paper.shows,
            "paper": paper.paper,
            "figures": figures,
            "headline": counts(every),
            "sentence": sentence(measured, every),
            "limits": [*of_runs(measured), *repeated_draws.lines(entries), *paper.paper.limits],
        }

    return Rendered(page.write("paper_page.html", output, shown), counts(every), tuple(every))


def sentence(measured: Measured, lines: Sequence[Line]) -> str:
    """Return what was measured and came of it, in a sentence."""
    runs = len({window.entry.run for point in measured.points for window in point.windows})
    missed = [line for line in lines if line.verdict == MISSED]
    first = f"; first of those that are missed: {missed[0].what}" if missed else ""
    return f"{len(measured.points)} points of {runs} runs{first}."


def _shown(paper: Paper, figure: Figure, measured: Measured, folder: Path, number: int) -> Shown:
    rows = answering.answer(paper, figure, measured)
    return Shown(
        figure=figure,
        lines=verdicts.lines(paper, figure, measured),
        pictures=tuple(drawing.pictures(paper, figure, rows, folder / f"figure-{number}")),
        table=_table(figure, rows),
    )


def _table(figure: Figure, rows: Rows) -> Table | None:
    """Return the table of an answer: means over repetitions of its numbers, a row for each of what tells rows apart."""
    if not figure.table or not rows:
        return None
    names = [name for name in figure.table if name in rows[0]]
    measured = [name for name in names if any(isinstance(row.get(name), float) for row in rows)]
    keys = [name for name in names if name not in measured and name not in (REPETITION, RUN)]
    shown = []
    for values, of in grouped(rows, keys).items():
        known = {name: [row[name] for row in of if row.get(name) is not None] for name in measured}
        means = {name: verdicts.number_text(float(np.mean(found))) if found else "-" for name, found in known.items()}
        texts = dict(zip(keys, map(_text, values), strict=True))
        shown.append([{**texts, **means}.get(name, "") for name in names])
    return tables.table("Measured", [figure.table[name] for name in names], shown, caption="Means over repetitions.")


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def of_runs(measured: Measured) -> Iterator[str]:
    """Yield what cannot be compared on the whole with any paper, by what these runs tell of themselves."""
    scales = sorted({point.scale for point in measured.points} - {1})
    if scales:
        yield (
            f"Sizes and rates were divided by {' and '.join(map(str, scales))} and are multiplied back here; "
            "durations, packets and their headers, round-trip times and time-outs are not divided."
        )
    dilations = sorted({point.manifest.dilation for point in measured.points} - {1})
    if dilations:
        yield f"Time was dilated by {' and '.join(f'{one:g}' for one in dilations)}; durations are divided back here."
    if any(point.job.compute != "real" for point in measured.points):
        yield "Compute was emulated: layers wait for their share of a given time, and what follows from it is an input."
    crowded = sum(
        any(
            gate.name == "own-processors" and gate.passed is False
            for window in point.windows
            for gate in window.record.gates
        )
        for point in measured.points
    )
    if crowded:
        yield (
            f"In {crowded} of {len(measured.points)} points the run itself kept the machine's processors busy, so that "
            "they set durations, and not the network alone."
        )
