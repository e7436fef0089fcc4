"""The top of a study's page: what was kept, what was missed, and what cannot be compared, section by section."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.report.study.comparison import APART, OUTSIDE, WITHIN, Comparison, Verdict
from orchestrator.report.study.content import Section

_MOST_NAMED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Comparisons of a section with the same verdict and the same reason, in a few words."""

    section: str
    text: str


def lines(sections: Sequence[Section]) -> dict[Verdict, list[Line]]:
    """Every comparison of the page, in the order kept, missed, cannot be compared."""
    found: dict[Verdict, list[Line]] = {}
    for verdict in (WITHIN, OUTSIDE, APART):
        found[verdict] = [line for section in sections for line in _of(section, verdict)]
    return found


def headline(sections: Sequence[Section]) -> str:
    """How many comparisons were kept, missed and cannot be made."""
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
