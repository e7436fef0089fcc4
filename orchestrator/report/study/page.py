"""The page of a study: what was kept, missed and cannot be compared, then ours beside the printed, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.report import page, tables
from orchestrator.report.study import summary
from orchestrator.report.study.comparison import APART, OUTSIDE, WITHIN
from orchestrator.report.study.content import Section
from orchestrator.report.study.paper import Paper
from orchestrator.report.tables import Cell
from orchestrator.store.rundir import Entry

_BESIDE = ("what", "ours", "printed", "difference", "verdict", "held to, or why not", "where")
_LOOKS = {WITHIN: "good", OUTSIDE: "bad"}


def render(paper: Paper, entries: Sequence[Entry], output: Path) -> Path:
    """Write the page of these runs, its figures into `<output's stem>-figures` beside it; StoreError when it cannot."""

    def shown(folder: Path) -> page.Values:
        content = paper.content(entries, folder)
        sections = [section for section in content.sections if not section.empty]
        lines = {
            verdict: [f"{line.section}: {line.text}" for line in found]
            for verdict, found in summary.lines(sections).items()
        }
        drawn = next((section for section in sections if section.pictures), None)
        return {
            "title": paper.SHOWS,
            "source": paper.TITLE,
            "content": content,
            "lead": _part(drawn) if drawn else None,
            "rest": [_part(section) for section in sections if section is not drawn],
            "kept": lines[WITHIN],
            "missed": lines[OUTSIDE],
            "apart": lines[APART],
            "headline": summary.headline(sections),
        }

    return page.write("study.html", output, shown)


def _part(section: Section) -> Mapping[str, object]:
    """A section as the template shows it; `about` says what it holds."""
    counts = Counter(one.verdict for one in section.comparisons)
    found = [
        f"{counts[verdict]} {word}"
        for verdict, word in ((WITHIN, "kept"), (OUTSIDE, "missed"), (APART, APART))
        if counts[verdict]
    ]
    beside = [
        (
            one.what,
            one.ours,
            one.printed,
            one.difference,
            Cell(one.verdict, look=_LOOKS.get(one.verdict, "soft")),
            one.why,
            one.source,
        )
        for one in section.comparisons
    ]
    return {
        "title": section.title,
        "about": ", ".join([*(["a figure"] if section.pictures else []), *found]),
        "text": section.text,
        "pictures": section.pictures,
        "beside": tables.table("Ours beside the printed values", _BESIDE, beside),
        "tables": [tables.table(one.title, one.head, one.rows, caption=one.caption) for one in section.tables],
    }
