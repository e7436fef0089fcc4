"""What a report opens with: whether its numbers count, and which windows were measured again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.report.runs import Run
from orchestrator.store.attempts import Attempt, Key, attempts
from orchestrator.store.manifests.records import Summary

INVALID = "INVALID: do not use these numbers as they stand"
_TITLES = {"failed": "FAILED", "interrupted": "INTERRUPTED", "lost": "LOST", "running": "NOT FINISHED"}
_MOST_OPEN = 2  # reasons that are not folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Its `state` chooses the colour. `lines` are read first, `more` is folded below a line that says what it holds."""

    state: str
    title: str
    lines: tuple[str, ...] = ()
    more: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def word(self) -> str:
        """The same of a run in one word."""
        return "repeated" if self.state == "doubt" else self.state


def of_run(run: Run, others: Sequence[Summary] = ()) -> Verdict:
    """The verdict on a run; of one whose windows `others` measured again, where to look instead."""
    manifest = run.manifest
    reasons = list(manifest.reasons)
    if manifest.error:
        reasons.insert(0, f"at stage {manifest.stage or '?'}: {manifest.error}")
    if not reasons:
        reasons = [f"{window.name}: {why}" for window in run.windows for why in window.reasons]
    doubts = tuple(
        f"{window.name}: {gate.message}"
        for window in run.windows
        for gate in window.gates
        if gate.passed is None and gate.required
    )
    more = (
        (_count(len(reasons) - _MOST_OPEN, "more reason"), tuple(reasons[_MOST_OPEN:])),
        (f"{_count(len(doubts), 'gate')} could not be judged", doubts),
    )
    state = "valid" if manifest.valid else "invalid"
    title = "Valid" if manifest.valid else INVALID
    if manifest.outcome != "completed":
        state, title = manifest.outcome, _TITLES[manifest.outcome]
    lines = tuple(reasons[:_MOST_OPEN])
    bad = [one for one in attempts([manifest], others) if not one.valid]
    if bad and all(one.again for one in bad):
        state, title = "doubt", "Measured again: use the runs that count"
        lines = (*(f"{one.window or 'the run'} was measured again in {one.again}" for one in bad), *lines)
    return Verdict(state=state, title=title, lines=lines, more=tuple(one for one in more if one[1]))


def of_runs(runs: Sequence[Run], others: Sequence[Summary] = ()) -> Verdict:
    """The verdict on runs together, measurement by measurement: a window that was measured again is no loss."""
    if len(runs) == 1:
        return of_run(runs[0], others)
    names = {run.id: run.name for run in runs}
    mine = attempts([run.manifest for run in runs], others)
    points = {one.point for one in mine if one.window}
    lost = [one for one in mine if not one.valid and not one.again]
    again = [one for one in mine if one.again]
    empty = points - {one.point for one in mine if one.valid or one.again}
    state, title = "valid", "Valid"
    if lost:
        state, title = "doubt", "Valid at every point, but not in every run"
    if empty or not points:
        state, title = "invalid", INVALID
        if len(empty) < len(points):
            title = f"INVALID in part: no valid window at {len(empty)} of {_count(len(points), 'point')}"
    more = (
        (f"{_count(len(again), 'measurement')} repeated, since the first try was not valid", again),
        (f"{_count(len(lost), 'measurement')} not valid, and part of no level over runs", lost),
    )
    return Verdict(
        state=state,
        title=title,
        lines=tuple(_valid_ones(mine, points)),
        more=tuple((what, tuple(_told(one, names) for one in found)) for what, found in more if found),
    )


def _valid_ones(mine: Sequence[Attempt], points: Collection[Key]) -> Iterator[str]:
    """How many valid measurements there are, together and of each point.

    What was valid in several runs, as of an experiment that was run several times, is as many measurements.
    """
    shown = [one for one in mine if one.window]
    valid = {
        (one.point, one.measurement, one.run if one.valid else one.again) for one in shown if one.valid or one.again
    }
    lost = {one.measurement for one in shown if not one.valid and not one.again}
    counts = sorted(sum(of == point for of, *_ in valid) for point in points)
    if counts:
        least, most = counts[0], counts[-1]
        each = f": {len(points)} points with {least if least == most else f'{least} to {most}'} each"
        yield f"{len(valid)} of {_count(len(valid) + len(lost), 'measurement')} valid{each if len(points) > 1 else ''}"


def _told(one: Attempt, names: Mapping[str, str]) -> str:
    where = ", ".join(filter(None, (names[one.run], one.window)))
    again = f" (measured again in {names.get(one.again, one.again)})" if one.again else ""
    return f"{where}: {'; '.join(one.why) or 'not measured'}{again}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
