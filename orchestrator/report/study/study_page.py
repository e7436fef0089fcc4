"""Build the page of a study (`study_page.html`): agreements, differences and gaps against a paper, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.analysis.compare import repeated_draws
from orchestrator.analysis.stats.agreement import AGREES, DIFFERS
from orchestrator.report import page, tables
from orchestrator.report.study.content import VERDICTS, Comparison, Section, Verdict
from orchestrator.report.study.paper import Paper
from orchestrator.report.tables import Cell
from orchestrator.store.rundir import Entry

_BESIDE = ("what", "ours", "printed", "difference", "verdict", "held to, or why not", "where")
_LOOKS: Mapping[Verdict, str] = {AGREES: "good", DIFFERS: "bad"}

_MOST_NAMED = 6


def render(paper: Paper, entries: Sequence[Entry], output: Path) -> Path:
    """Write the page of these runs, its figures into `<output's stem>-figures` beside it; StoreError when it cannot."""

    def shown(folder: Path) -> page.Values:
        content = paper.content(entries, folder)
        sections = [section for section in content.sections if not section.empty]
        lines = {
            verdict: [f"{line.section}: {line.text}" for line in found]
            for verdict, found in verdict_lines(sections).items()
        }
        drawn = next((section for section in sections if section.pictures), None)
        return {
            "title": paper.SHOWS,
            "source": paper.TITLE,
            "content": content,
            "lead": _part(drawn) if drawn else None,
            "rest": [_part(section) for section in sections if section is not drawn],
            "lines_of": lines,
            "drawn_alike": repeated_draws.lines(entries),
            "headline": headline(sections),
        }

    return page.write("study/study_page.html", output, shown)


def _part(section: Section) -> Mapping[str, object]:
    """Return a section as the template shows it; `about` says what it holds."""
    counts = Counter(one.verdict for one in section.comparisons)
    found = [f"{counts[verdict]} {_counted(verdict, counts[verdict])}" for verdict in VERDICTS if counts[verdict]]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Comparisons of a section with the same verdict and the same reason, in a few words."""

    section: str
    text: str


def verdict_lines(sections: Sequence[Section]) -> dict[Verdict, list[Line]]:
    """Return every comparison of the page by its verdict."""
    return {verdict: [line for section in sections for line in _of(section, verdict)] for verdict in VERDICTS}


def headline(sections: Sequence[Section]) -> str:
    """Return how many comparisons have each verdict."""
    counts = Counter(one.verdict for section in sections for one in section.comparisons)
    return ", ".join(f"{counts[verdict]} {_counted(verdict, counts[verdict])}" for verdict in VERDICTS)


def _counted(verdict: Verdict, count: int) -> str:
    """Return the verdict as the predicate of so many comparisons."""
    plural: Mapping[Verdict, str] = {AGREES: "agree", DIFFERS: "differ"}
    return verdict if count == 1 else plural.get(verdict, verdict)


def _of(section: Section, verdict: Verdict) -> Iterator[Line]:
    mine = [one for one in section.comparisons if one.verdict == verdict]
    for why in dict.fromkeys(one.why for one in mine):
        yield Line(section=section.title, text=f"{_named([one for one in mine if one.why == why])} ({why})")


def _named(alike: Sequence[Comparison]) -> str:
    """Name comparisons: judged ones by what was measured, all that differ; others by what they are, not too many."""
    if alike[0].verdict == DIFFERS:
        return "; ".join(_told(one) for one in alike)
    names = [_told(one) if one.verdict == AGREES else one.what for one in alike]
    if len(names) <= _MOST_NAMED:
        return "; ".join(names)
    return f"{'; '.join(names[: _MOST_NAMED - 1])} and {len(names) - _MOST_NAMED + 1} more"


def _told(one: Comparison) -> str:
    return f"{one.what}: {one.difference or f'{one.ours} against {one.printed}'}"
