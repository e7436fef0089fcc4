"""Pair invalid windows with those that measured the same again with success."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.store.manifests.summaries import Summary

Key = tuple[str | int | bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A window of a run that was, or was to be, measured.

    `measurement` is the same of two attempts at the same repetition of the same `point`. `window` is empty where a run
    ended before it had one. `again` is the run that measured it with success, where this one did not.
    """

    run: str
    window: str
    point: Key
    measurement: Key
    valid: bool
    why: tuple[str, ...] = ()
    again: str = ""


def attempts(of: Sequence[Summary], others: Iterable[Summary] = ()) -> list[Attempt]:
    """Return every attempt of these runs, run by run.

    What was not valid in them is looked for in them and in the others.
    """
    mine = [one for manifest in of for one in _of(manifest)]
    made: dict[Key, list[str]] = defaultdict(list)
    for one in (*(one for manifest in others for one in _of(manifest)), *mine):
        if one.valid:
            made[one.measurement].append(one.run)
            made[one.measurement[:-1]].append(one.run)
    return [one if one.valid else replace(one, again=_again(one, made)) for one in mine]


def _again(attempt: Attempt, made: Mapping[Key, Sequence[str]]) -> str:
    """Return the last other run with the same measurement; None for an attempt that ended before it had a window."""
    wanted = attempt.measurement if attempt.window else attempt.measurement[:-1]
    return next((run for run in reversed(made.get(wanted, ())) if run != attempt.run), "")


def _of(manifest: Summary) -> Iterator[Attempt]:
    measured = {window.name for window in manifest.windows}
    for window in manifest.windows:
        yield _attempt(manifest, window.name, valid=window.valid, why=tuple(window.reasons))
    missing = [name for name in dict.fromkeys((*manifest.points, *manifest.unreached)) if name not in measured]
    if not missing and not manifest.valid and all(window.valid for window in manifest.windows):
        missing = [""]  # which windows it lacks is not recorded
    lost = (manifest.error,) if manifest.error else manifest.reasons
    for name in missing:
        yield _attempt(manifest, name, valid=False, why=lost)


def _attempt(manifest: Summary, window: str, *, valid: bool, why: tuple[str, ...]) -> Attempt:
    planned = manifest.points.get(window)
    point: Key
    measurement: Key
    if manifest.sweep is not None and planned is not None:
        point = (manifest.sweep.id, planned.point, planned.recheck)
        measurement = (*point, planned.repetition)
    else:  # the digest is of the experiment and the repetition; a run without it repeats no other
        point = (manifest.experiment, window)
        measurement = (manifest.experiment, manifest.point or manifest.run, window)
    return Attempt(run=manifest.run, window=window, point=point, measurement=measurement, valid=valid, why=why)
