"""Text, JSON and the file on an effect that was shrunk: what was tried, what held, and what shows it now."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TypedDict

import yaml

from orchestrator.core.errors import StoreError
from orchestrator.store import atomic
from orchestrator.sweep import choicetext, pairs, shrinking, sweeptext
from orchestrator.sweep.choicetext import StandingData
from orchestrator.sweep.pairs import Effect
from orchestrator.sweep.shrinking import Shrinking, Shrunk

_COLUMNS = 100


def effect_text(effect: Effect) -> str:
    """Return what is shrunk: the settings that differ, and the effect in the runs that it comes from."""
    return "\n".join([*_apart(effect), f"effect in the runs that it comes from: {effect.text}"])


def _apart(effect: Effect) -> list[str]:
    return [
        f"{path}: {pairs.value_text(first)} against {pairs.value_text(second)}"
        for path, (first, second) in pairs.difference(effect.pair).items()
    ]


def outlook_text(effect: Effect, search: Shrinking) -> str:
    """Return what would be tried first, and how long a pair takes then."""
    lines = [effect_text(effect), "", "a pair takes about, without anything measured so far:"]
    for step, seconds in search.outlook():
        lines.append(f"  {step}: " + ("cannot be planned" if seconds is None else sweeptext.time_text(seconds)))
    return "\n".join(lines)


def result_text(found: Shrunk) -> str:
    """Return what was tried and what is left, in lines."""
    lines = effect_text(found.effect).splitlines()
    lines += [f"{one.verdict}: {one.step}: {one.text}" for one in found.tried]
    lines.append(f"{found.ended}; the runs took {sweeptext.time_text(found.spent_s)}")
    lines.append(_again_text(found))
    return "\n".join(lines)


def _again_text(found: Shrunk) -> str:
    if found.again is None:
        return "not measured once more: the budget did not hold it; a larger --budget goes on from here"
    text = shrinking.shown_text(found.again, found.definition)
    return f"measured once more, {'it shows the effect' if found.seen else 'it does not show the effect'}: {text}"


def file_text(found: Shrunk) -> str:
    """Return the sweep file of the smallest pair, with what was tried above it."""
    told = [
        f"The smallest that `orch shrink` found to show an effect of {found.effect.name}:",
        *result_text(found).splitlines(),
    ]
    comment = "\n".join(
        textwrap.fill(line, _COLUMNS, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)
        for line in told
    )
    effect = found.effect
    data = pairs.as_sweep(found.pair, shrinking.final_name(effect), of=effect.of, excluded=effect.excluded)
    return f"{comment}\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}"


def write(found: Shrunk, output: Path) -> None:
    """Write the sweep file; StoreError where that cannot be done."""
    try:
        atomic.write(output, file_text(found).encode())
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror}", hint="-o FILE elsewhere") from None


class TriedData(TypedDict):
    """A step that was tried."""

    step: str
    verdict: str
    text: str


class ShrunkData(TypedDict):
    """What was found; `ratio` is of the runs that the effect comes from, `again` of the file measured once more."""

    file: str
    statistic: str
    ratio: float | None
    tried: list[TriedData]
    ended: str
    runs_s: float
    again: StandingData | None
    again_s: float | None
    seen: bool


def data(found: Shrunk, output: Path) -> ShrunkData:
    """Return the same for JSON."""
    again, ratio = found.again, found.effect.ratio
    return {
        "file": str(output),
        "statistic": found.effect.of,
        "ratio": ratio if math.isfinite(ratio) else None,
        "tried": [{"step": one.step, "verdict": one.verdict, "text": one.text} for one in found.tried],
        "ended": found.ended,
        "runs_s": found.spent_s,
        "again": None if again is None else choicetext.data(again.standing),
        "again_s": None if again is None else again.seconds,
        "seen": found.seen,
    }
