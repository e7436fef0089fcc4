"""Draw the figures of a file over runs, each with the rows behind it and what it is held to, as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.papers import answering, drawing, verdicts
from orchestrator.papers.answering import Paper, csv_text
from orchestrator.questions.rows import Measured
from orchestrator.report.style import beside
from orchestrator.store.rundir import Entry


def write(paper: Paper, entries: Sequence[Entry], stem: Path) -> Iterator[str]:
    """Write STEM-1.svg, .pdf, .csv (what is drawn) and -rows.csv (the answer) of each figure; yield what was written.

    Beside the files stand the lines of its checks. StoreError where no figure has an answer in these runs.
    """
    measured = Measured(entries=tuple(entries))
    answered = False
    stem.parent.mkdir(parents=True, exist_ok=True)
    for number, figure in enumerate(paper.file.figures, 1):
        rows = answering.answer(paper, figure, measured)
        if not rows:
            yield f"{figure.title}: nothing measured in these runs"
            continue
        answered = True
        yield figure.title
        for picture in drawing.pictures(paper, figure, rows, beside(stem, f"-{number}")):
            yield f"  {beside(stem.parent / picture.name, '.svg')}"
        path = beside(stem, f"-{number}-rows.csv")
        path.write_text(csv_text(rows), encoding="utf-8")
        yield f"  {path}"
        for line in verdicts.lines(paper, figure, measured):
            ours = f" {line.ours} against" if line.ours else ""
            yield f"  {line.what}:{ours} {line.printed}: {line.verdict} ({line.why})"
    if not answered:
        raise StoreError("nothing to show: no figure has an answer in these runs", hint="orch ls")
