"""Build the page of a study (`study_page.html`): agreements, differences and gaps against a paper, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.report import page, tables
from orchestrator.report.study.content import APART, OUTSIDE, WITHIN, Comparison, Section, Verdict
from orchestrator.report.study.paper import Paper
from orchestrator.report.tables import Cell
from orchestrator.store.rundir import Entry

_BESIDE = ("what", "ours", "printed", "difference", "verdict", "held to, or why not", "where")
_LOOKS = {WITHIN: "good", OUTSIDE: "bad"}

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
            "kept": lines[WITHIN],
            "missed": lines[OUTSIDE],
            "apart": lines[APART],
            "headline": headline(sections),
        }

    return page.write("study/study_page.html", output, shown)


def _part(section: Section) -> Mapping[str, object]:
    """Return a section as the template shows it; `about` says what it holds."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Comparisons of a section with the same verdict and the same reason, in a few words."""

    section: str
    text: str


def verdict_lines(sections: Sequence[Section]) -> dict[Verdict, list[Line]]:
    """Return every comparison of the page, in the order kept, missed, cannot be compared."""
    found: dict[Verdict, list[Line]] = {}
    for verdict in (WITHIN, OUTSIDE, APART):
        found[verdict] = [line for section in sections for line in _of(section, verdict)]
    return found


def headline(sections: Sequence[Section]) -> str:
    """Return how many comparisons were kept, missed and cannot be made."""
    counts = Counter(one.verdict for section in sections for one in section.comparisons)
    return f"{counts[WITHIN]} kept, {counts[OUTSIDE]} missed, {counts[APART]} cannot be compared"


def _of(section: Section, verdict: Verdict) -> Iterator[Line]:
    judged = [one for one in section.comparisons if one.verdict != APART]
    mine = [one for one in section.comparisons if one.verdict == verdict]
    for why in dict.fromkeys(one.why for one in mine):
        alike = [one for one in mine if one.why == why]
        held = sum(one.why == why for one in judged)
        yield Line(section=section.title, text=_text(verdict, why, alike, held))


def _text(verdict: Verdict, why: str, alike: Sequence[Comparison], held: int) -> str:
    if verdict == APART:
        return f"{_named(alike, differences=False)}: {why}"
    if verdict == WITHIN:
        return f"{len(alike)} of {held} {why}" if held > 1 else f"{alike[0].what}: {alike[0].ours} ({why})"
    return f"{len(alike)} of {held} not {why}: {_named(alike, differences=True)}"


def _named(alike: Sequence[Comparison], *, differences: bool) -> str:
    names = [
        f"{one.what} ({one.difference or f'{one.ours} against {one.printed}'})" if differences else one.what
        for one in alike
    ]
    if differences or len(names) <= _MOST_NAMED:
        return "; ".join(names)
    return f"{'; '.join(names[: _MOST_NAMED - 1])} and {len(names) - _MOST_NAMED + 1} more"
