"""Hold an answer to what a paper prints: held, missed, or not compared, a line for each.

Agreement is an interval over repetitions inside a margin that was stated beforehand (analysis/stats/agreement.py). A
line that agrees is tried on every input with which it must not agree (`fails`): where one of them agrees as well, these
runs cannot tell the two apart, and nothing was shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from orchestrator.analysis.stats import agreement
from orchestrator.analysis.stats.agreement import AGREES, CANNOT_TELL, DIFFERS, Outcome
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.core.errors import ConfigError
from orchestrator.experiment.paperfile import Check, Figure, NotCompared, Printed, PrintedNumber, number
from orchestrator.papers import answering
from orchestrator.papers.answering import Paper
from orchestrator.questions.rows import REPETITION, Measured, Row, Rows, grouped, meets

Verdict = Literal["held", "missed", "not compared"]

HELD: Verdict = "held"
MISSED: Verdict = "missed"
NOT_COMPARED: Verdict = "not compared"
VERDICTS: tuple[Verdict, ...] = (HELD, MISSED, NOT_COMPARED)

NOTHING = "nothing measured in these runs"
ONE_RUN = "one run has no interval: measure repetitions"
WIDE = "the interval over runs reaches beyond the margin: measure more repetitions"
_ALIKE = 1e-9  # by which an input may differ from what was measured and still be the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One printed value or claim beside ours, as text."""

    what: str
    ours: str = ""
    printed: str
    difference: str = ""
    verdict: Verdict
    why: str
    place: str
    check: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A line to be judged: its rows, and the printed value that they are held to."""

    what: str
    rows: Rows
    keys: Row
    printed: PrintedNumber | None
    text: str  # of what is printed
    unit: str
    place: str


def lines(paper: Paper, figure: Figure, measured: Measured) -> list[Line]:
    """Return every line of a figure: those of its checks, and what is not compared."""
    first = answering.first(paper, figure, measured)
    rows = answering.changed(paper, first, figure.ask[1:])
    found = [line for check in figure.holds for line in held(paper, figure, check, first, rows)]
    return [*found, *(line for one in figure.not_compared for line in not_compared(paper, one))]


def held(paper: Paper, figure: Figure, check: Check, first: Rows, rows: Rows) -> list[Line]:
    """Return the lines of a check: one for each value of its `by` columns and each printed row that has no runs."""
    spoiled: dict[str, Rows] = {}
    found = []
    wanted = list(_wanted(paper, check, rows))
    for one in wanted:
        line, verdict = _judged(check, one)
        if verdict == AGREES:
            for name, steps in check.fails.items():
                if name not in spoiled:
                    spoiled[name] = answering.changed(paper, answering.changed(paper, first, steps), figure.ask[1:])
                if agrees_too(check, one, spoiled[name]):
                    line = replace(
                        line,
                        verdict=NOT_COMPARED,
                        why=f"cannot tell: with {name} in place of the measurements it agrees as well",
                    )
                    break
        found.append(line)
    return [*found, *_missing(paper, check, wanted)]


def agrees_too(check: Check, one: _Wanted, spoiled: Rows) -> bool:
    """Return whether another input agrees as well; one that leaves the values of the line as they are is no other."""
    rows = [
        row for row in spoiled if meets(row, check.where) and meets(row, one.keys) and row.get(check.value) is not None
    ]
    if not rows or _same(check, one.rows, rows):
        return False
    return _outcome(check, replace(one, rows=rows))[1] == AGREES


def _same(check: Check, some: Rows, others: Rows) -> bool:
    """Return whether both have the same values in each repetition, in whatever order SQL gave them."""
    one, other = (
        {key: sorted(_sorting(row.get(check.value)) for row in of) for key, of in grouped(rows, [REPETITION]).items()}
        for rows in (some, others)
    )
    return one.keys() == other.keys() and all(
        len(one[key]) == len(other[key]) and all(map(_alike, one[key], other[key])) for key in one
    )


def _sorting(value: Any) -> tuple[bool, Any]:
    return (True, value) if _number(value) else (False, str(value))


def _alike(one: tuple[bool, Any], other: tuple[bool, Any]) -> bool:
    return one == other or (one[0] and other[0] and math.isclose(one[1], other[1], rel_tol=_ALIKE))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wanted(paper: Paper, check: Check, rows: Rows) -> Iterator[_Wanted]:
    """Yield what a check is to judge, of rows that have a value."""
    mine = [row for row in rows if meets(row, check.where)]
    if mine and (unknown := [name for name in (*check.by, check.value) if name not in mine[0]]):
        raise ConfigError(
            f"{paper.folder}: {check.what}: {unknown[0]}: no such column of its answer; accepted: {', '.join(mine[0])}"
        )
    for values, of in grouped(mine, check.by).items():
        keys = dict(zip(check.by, values, strict=True))
        known = [row for row in of if row.get(check.value) is not None]
        if not known:
            continue
        if any(isinstance(row[check.value], str | list | dict) for row in known):
            raise ConfigError(f"{paper.folder}: {check.what}: {check.value}: accepted: a number, or true and false")
        what = _named(check, known[0])
        if check.table is None:
            single = number(check.printed) if check.printed else None
            text = check.says or with_unit(check.printed, check.unit)
            yield _Wanted(
                what=what, rows=known, keys=keys, printed=single, text=text, unit=check.unit, place=check.place
            )
            continue
        table, column = printed_table(paper, check.printed)
        there = answering.printed_rows(table, {**check_keys(check), **keys})
        if len(there) > 1:
            raise ConfigError(f"{paper.folder}: {check.what}: {len(there)} printed rows are of {keys}; accepted: one")
        for row in there:
            if row.get(column) is None:
                continue
            value, unit = table.number(row, column), table.values.get(column, "")
            shown = with_unit(value.text, unit) if value else str(row.get(column, ""))
            text = f"{check.says} ({shown})" if check.says else shown
            yield _Wanted(
                what=what, rows=known, keys=keys, printed=value, text=text, unit=unit, place=table.place_of(row)
            )


def check_keys(check: Check) -> Row:
    """Return the columns that a check fixes to one value."""
    return {name: value for name, value in check.where.items() if not isinstance(value, tuple)}


def printed_table(paper: Paper, named: str) -> tuple[Printed, str]:
    """Return the printed table that TABLE.COLUMN names, and the column (empty for TABLE alone)."""
    name, _, column = named.partition(".")
    table = paper.file.printed.get(name)
    if table is None:
        raise ConfigError(f"{paper.folder}: printed: {named}: accepted: {', '.join(paper.file.printed)}")
    if column and not any(column in row for row in table.rows):
        raise ConfigError(f"{paper.folder}: printed: {named}: accepted columns: {', '.join(table.rows[0])}")
    return table, column


def _missing(paper: Paper, check: Check, wanted: Sequence[_Wanted]) -> Iterator[Line]:
    """Yield a line for what is printed and has no rows: of a table each of its rows that the check is about."""
    if check.table is None:
        if not wanted:
            text = check.says or with_unit(check.printed, check.unit)
            yield _untold(check, text if "{" in check.what else check.what, text, check.place)
        return
    table, column = printed_table(paper, check.printed)
    for row in table.rows:
        if row.get(column) is None or not _is_about(check, row):
            continue
        if not any(all(one.keys.get(name) == row[name] for name in check.by if name in row) for one in wanted):
            value = table.number(row, column)
            text = with_unit(value.text if value else str(row[column]), table.values.get(column, ""))
            yield _untold(check, _named(check, row), text, table.place_of(row))


def _is_about(check: Check, row: Mapping[str, Any]) -> bool:
    """Return whether a printed row has the values that a check fixes, in the columns that it has."""
    return meets(row, {name: value for name, value in check.where.items() if name in row})


def _untold(check: Check, what: str, printed: str, place: str) -> Line:
    return Line(what=what, printed=printed, verdict=NOT_COMPARED, why=NOTHING, place=place, check=check.what)


def _named(check: Check, row: Mapping[str, Any]) -> str:
    """Fill in the columns that the name of a line mentions; one that a row lacks is left out."""
    text = check.what
    for name, value in row.items():
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        text = text.replace(f"{{{name}}}", shown)
    return text


def _judged(check: Check, one: _Wanted) -> tuple[Line, Outcome]:
    ours, outcome, why = _outcome(check, one)
    verdict = {AGREES: HELD, DIFFERS: MISSED, CANNOT_TELL: NOT_COMPARED}[outcome]
    return (
        Line(
            what=one.what,
            ours=ours if isinstance(ours, str) else with_unit(interval_text(ours), one.unit),
            printed=one.text,
            difference="" if isinstance(ours, str) else _apart(check, ours, one.printed),
            verdict=verdict,
            why=why or f"{margin_text(check)}: {check.because}",
            place=one.place,
            check=check.what,
        ),
        outcome,
    )


def _outcome(check: Check, one: _Wanted) -> tuple[Estimate | str, Outcome, str]:
    """Return ours (or, where something has to hold each time, its words), the outcome, and why nothing can be told."""
    each = list(grouped(one.rows, [REPETITION]).values())
    if check.within is check.by_most is check.least is check.most is None and not _is_exact(check, one):
        true = [all(bool(row[check.value]) for row in of) for of in each]
        outcome = agreement.each_time(true)
        return f"in {sum(true)} of {len(true)} repetitions", outcome, ONE_RUN if len(true) == 1 else ""
    values = [sum(float(row[check.value]) for row in of) / len(of) for of in each]
    ours = agreement.over_runs(values)
    if math.isnan(ours.value):
        return ours, CANNOT_TELL, NOTHING
    outcome = agreement.outcome(ours, *check.bounds(one.printed))
    if math.isnan(ours.low):
        return ours, CANNOT_TELL, ONE_RUN
    if outcome == DIFFERS and check.rival is not None and _between(ours, check.rival, below=check.least is not None):
        return ours, CANNOT_TELL, "another explanation does as well"
    return ours, outcome, WIDE if outcome == CANNOT_TELL else ""


def _between(ours: Estimate, rival: float, *, below: bool) -> bool:
    """Return whether an interval reaches to where another explanation is no better, `below` or above it."""
    return ours.high > rival if below else ours.low < rival


def _is_exact(check: Check, one: _Wanted) -> bool:
    """Return whether a number is printed that has to be met to its last digit."""
    return one.printed is not None and not all(isinstance(row[check.value], bool) for row in one.rows)


def not_compared(paper: Paper, one: NotCompared) -> Iterator[Line]:
    """Yield a line for each printed value of a table, or for the claim, with the reason."""
    if not one.printed:
        yield Line(what=one.says, printed=one.says, verdict=NOT_COMPARED, why=one.why, place=one.place)
        return
    table, column = printed_table(paper, one.printed)
    for row in table.rows:
        if not meets(row, one.where):
            continue
        for name in [column] if column else [name for name in table.values if row.get(name) is not None]:
            value = table.number(row, name)
            what = ", ".join(str(value) for value in table.keys(row).values()) or name
            text = value.text if value else str(row.get(name, ""))
            yield Line(
                what=what,
                printed=with_unit(text, table.values.get(name, "")),
                verdict=NOT_COMPARED,
                why=one.why,
                place=table.place_of(row),
            )


def margin_text(check: Check) -> str:
    """Return what a check holds a value to, for people."""
    if check.within is not None:
        return f"within {check.within * 100:.3g} %"
    if check.by_most is not None:
        return f"within {number_text(check.by_most)}"
    ends = [(check.least, "at least"), (check.most, "at most")]
    return " and ".join(f"{word} {number_text(end)}" for end, word in ends if end is not None) or "each time"


def _apart(check: Check, ours: Estimate, printed: PrintedNumber | None) -> str:
    """Return how far ours is from the printed number; nothing for claims."""
    if printed is None or math.isnan(ours.value):
        return ""
    if printed.value == 0 or check.by_most is not None:
        return f"{ours.value - printed.value:+.3g}"
    return percent_text(ours.value / printed.value - 1)


def percent_text(share: float) -> str:
    """Return a difference as a share: whole percents, or tenths where it is small."""
    return "" if math.isnan(share) else f"{share * 100:+.{1 if abs(share) < 0.0995 else 0}f} %"


def interval_text(of: Estimate) -> str:
    """Return a value with its interval, where it has one."""
    text = number_text(of.value)
    return text if math.isnan(of.low) else f"{text} ({number_text(of.low)} to {number_text(of.high)})"


def number_text(value: float) -> str:
    """Return a number to four digits, with commas for thousands; whole numbers in full."""
    if math.isnan(value):
        return "-"
    if value == round(value) and abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def with_unit(text: str, unit: str) -> str:
    """Return a text with its unit, if it has one."""
    return f"{text} {unit}" if unit and text != "-" else text
