"""Read a paper whole, and check what its figures say against each other before anything is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.experiment import paperfile
from orchestrator.experiment.documents import Document
from orchestrator.experiment.paperfile import PaperFile
from orchestrator.experiment.validation import validate
from orchestrator.papers.answering import OWN, Paper
from orchestrator.papers.verdicts import printed_table
from orchestrator.questions.rows import meets


def paper(path: Path) -> Paper:
    """Read the paper whose `paper.yaml` this is; ConfigError for steps and printed tables that do not exist."""
    return of_document(paperfile.opened(path))


def of_document(document: Document) -> Paper:
    """Return the paper of a file that was opened; ConfigError for what does not exist in it."""
    return checked(Paper(file=validate(document, PaperFile), folder=Path(document.name).parent))


def figures(path: Path) -> Paper:
    """Read a file of figures, which need not be a paper."""
    return checked(Paper(file=paperfile.read_figures(path), folder=path.parent))


def checked(found: Paper) -> Paper:
    """Return the paper; ConfigError for steps and printed tables that do not exist."""
    found.check_steps()
    for figure in found.file.figures:
        for check in figure.holds:
            if check.table is not None:
                printed_table(found, check.printed)
        for one in figure.not_compared:
            if one.printed:
                printed_table(found, one.printed)
        for draw in figure.draw:
            if draw.printed:
                printed_table(found, draw.printed)
            if draw.kind.startswith(f"{OWN}."):
                found.function(draw.kind)
    return found


def unused(found: Paper) -> Iterator[str]:
    """Yield the printed values, and rows of words, that no check holds and no figure says not to be compared."""
    for name, table in found.file.printed.items():
        for row in table.rows:
            if not table.values and not any(_used(found, name, column, row) for column in row):
                yield f"{name}: {dict(row)}"
            for column in table.values:
                if row.get(column) is not None and not _used(found, name, column, row):
                    yield f"{name}.{column}: {table.keys(row)} {row[column]}"


def _used(found: Paper, name: str, column: str, row: Mapping[str, object]) -> bool:
    for figure in found.file.figures:
        for check in figure.holds:
            where = {key: value for key, value in check.where.items() if key in row}
            if check.table == (name, column) and meets(row, where):
                return True
        for one in figure.not_compared:
            if one.printed in (name, f"{name}.{column}") and meets(row, one.where):
                return True
    return False
