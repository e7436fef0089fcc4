"""Parts of a study's page: sections of figures, tables, and our values beside the printed ones with verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from orchestrator.analysis.stats import agreement
from orchestrator.analysis.stats.agreement import AGREES, CANNOT_TELL, DIFFERS
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.report.study.printed import Check
from orchestrator.report.style import Picture

Verdict = Literal["agrees", "differs", "cannot tell", "not judged"]
Value = float | Estimate

NOT_JUDGED: Verdict = "not judged"
VERDICTS: tuple[Verdict, ...] = (DIFFERS, AGREES, CANNOT_TELL, NOT_JUDGED)
NOT_MEASURED = "nothing measured in these runs"
ONE_RUN = "one run has no interval: measure repetitions"

NOTHING = "-"
Rows = list[tuple[str, ...]]


class Table(NamedTuple):
    """A table of texts."""

    title: str
    caption: str
    head: tuple[str, ...]
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A figure, table, equation or claim of the paper, with our figures, tables and comparisons."""

    title: str
    text: str = ""
    pictures: tuple[Picture, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    tables: tuple[Table, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.pictures or self.comparisons or any(table.rows for table in self.tables))


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A whole page.

    `made_of` says how much was measured ("52 points of 120 runs"), `limits` what cannot be compared on the whole and
    why, `contradictions` where the paper contradicts itself.
    """

    made_of: str
    sections: tuple[Section, ...]
    limits: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One line of a page, as text.

    `why` is what ours is held to ("margin 10 %: ..."), why nothing can be told, or why the two are not judged; `source`
    is the paper's. `check` is the name of the check that judged, empty where none did.
    """

    what: str
    ours: str
    printed: str
    difference: str
    verdict: Verdict
    why: str
    source: str
    check: str = ""


def judged(
    check: Check,
    what: str,
    ours: Estimate,
    printed: float,
    *,
    unit: str = "",
    source: str,
    shown: str = "",
    also: Sequence[float] = (),
) -> Comparison:
    """Judge whether an interval over runs is within the check's margin of the printed value.

    `shown` is shown in the place of the value, where that is not printed but follows from the paper. `also` has other
    values that the paper gives of the same: then the margin is about the range of all.
    """
    bounds = [check.bounds(value) for value in (printed, *also)]
    return _judged(
        check,
        what,
        ours,
        (min(low for low, _ in bounds), max(high for _, high in bounds)),
        text=_text(ours, unit),
        printed=shown or _text(printed, unit),
        difference=_apart(check, ours, printed, unit),
        source=source,
    )


def claimed(
    check: Check, what: str, ours: Estimate, *, printed: str, source: str, told: str = "", unit: str = ""
) -> Comparison:
    """Judge whether an interval over runs is within the bounds of a claim in words; `told` is shown beside it."""
    text = _text(ours, unit)
    return _judged(
        check,
        what,
        ours,
        check.bounds(math.nan),
        text=f"{told}: {text}" if told else text,
        printed=printed,
        difference="",
        source=source,
    )


def counted(
    check: Check, what: str, found: Iterable[Sequence[bool]], *, ours: str, printed: str, source: str
) -> Comparison:
    """Judge whether something holds of all points each time: `found` has whether it did, of each point once a run."""
    true = [all(of_all) for of_all in agreement.repetitions(found)]
    if not true:
        return cannot_tell(check, what, printed, source=source)
    verdict = agreement.each_time(true)
    few = "" if len(true) > 1 else "one repetition tells nothing of others: measure more; "
    return Comparison(
        what=what,
        ours=f"{ours}; in {sum(true)} of {len(true)} repetitions",
        printed=printed,
        difference="",
        verdict=verdict,
        why=f"{few}{held_to(check)}: {check.because}",
        source=source,
        check=check.name,
    )


def cannot_tell(check: Check, what: str, printed: str, *, source: str, why: str = NOT_MEASURED) -> Comparison:
    """Return the line of a check that has no measurements, with the reason."""
    return Comparison(
        what=what,
        ours=NOTHING,
        printed=printed,
        difference="",
        verdict=CANNOT_TELL,
        why=why,
        source=source,
        check=check.name,
    )


def remark(what: str, ours: str, printed: str, *, source: str, why: str) -> Comparison:
    """Show ours beside what is printed, in words, and say why it is not judged."""
    return Comparison(what=what, ours=ours, printed=printed, difference="", verdict=NOT_JUDGED, why=why, source=source)


def held_to(check: Check) -> str:
    """Return the margin of a check for people, without its reason."""
    if check.share is not None:
        return f"margin {check.share * 100:.3g} %"
    if check.by is not None:
        return f"margin {number(check.by)}"
    ends = [(check.least, "at least"), (check.most, "at most")]
    return " and ".join(f"{word} {number(end)}" for end, word in ends if end is not None) or "each time"


def _judged(
    check: Check,
    what: str,
    ours: Estimate,
    bounds: tuple[float, float],
    *,
    text: str,
    printed: str,
    difference: str,
    source: str,
) -> Comparison:
    if math.isnan(ours.value):
        return cannot_tell(check, what, printed, source=source)
    few = f"{ONE_RUN}; " if math.isnan(ours.low) else ""
    verdict = agreement.outcome(ours, *bounds)
    as_good = verdict == DIFFERS and check.rival is not None and ours.high > check.rival
    return Comparison(
        what=what,
        ours=text,
        printed=printed,
        difference=difference,
        verdict=CANNOT_TELL if as_good else verdict,
        why=f"{few}{'another explanation does as well; ' if as_good else ''}{held_to(check)}: {check.because}",
        source=source,
        check=check.name,
    )


def _apart(check: Check, ours: Estimate, printed: float, unit: str) -> str:
    """Return how far ours is from the printed value, with its interval, in the unit of the margin."""
    ends = (ours.low, ours.high)
    if check.share is not None:
        middle = percent(_off(ours, printed))
        shown = [percent(_off(end, printed)).removesuffix(" %") for end in ends]
    else:
        middle = _unit(_signed(ours.value - printed), unit)
        shown = [_signed(end - printed) for end in ends]
    return middle if math.isnan(ours.low) else f"{middle} ({shown[0]} to {shown[1]})"


def _signed(value: float) -> str:
    return f"{value:+.3g}"


def apart(what: str, ours: Value, printed: Value, *, unit: str = "", source: str, why: str) -> Comparison:
    """Show both values without a verdict, for a reason."""
    if math.isnan(value(ours)):
        return not_measured(what, _text(printed, unit), source=source)
    return Comparison(
        what=what,
        ours=_text(ours, unit),
        printed=_text(printed, unit),
        difference=percent(_off(ours, printed)),
        verdict=NOT_JUDGED,
        why=why,
        source=source,
    )


def not_measured(what: str, printed: str, *, source: str, why: str = NOT_MEASURED) -> Comparison:
    """Return a comparison of a printed value that was not measured, with the reason."""
    return Comparison(
        what=what, ours=NOTHING, printed=printed, difference="", verdict=NOT_JUDGED, why=why, source=source
    )


def value(of: Value) -> float:
    """Return the number, of an estimate its value."""
    return of.value if isinstance(of, Estimate) else float(of)


def _off(ours: Value, printed: Value) -> float:
    """Return the difference as a share of the printed value; NaN where that is 0."""
    return value(ours) / value(printed) - 1 if value(printed) else math.nan


def percent(share: float) -> str:
    """Return a difference for people: whole percents, or tenths where it is small; empty for NaN."""
    return "" if math.isnan(share) else f"{share * 100:+.{1 if abs(share) < 0.0995 else 0}f} %"


def _text(of: Value, unit: str) -> str:
    text = number(value(of))
    if isinstance(of, Estimate) and not math.isnan(of.low):
        text = f"{text} ({number(of.low)} to {number(of.high)})"
    return _unit(text, unit)


def _unit(text: str, unit: str) -> str:
    return f"{text} {unit}" if unit else text


def number(value: float) -> str:
    """Return a number as text to four digits, with commas for thousands; whole numbers in full, NaN as empty."""
    if math.isnan(value):
        return NOTHING
    if value == round(value) and abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def seconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def gbps(value: float) -> str:
    return f"{value / 1e9:.2f}"


def mb(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value / 1e6:.1f}"


def span(bounds: tuple[float, float] | None) -> str:
    return NOTHING if bounds is None else f"{gbps(bounds[0])} to {gbps(bounds[1])}"


def off(ours: float, theirs: float | None) -> str:
    return NOTHING if not theirs or math.isnan(ours) else f"{(ours / theirs - 1) * 100:+.0f} %"
