"""Windows as attempts at measurements: what was not valid, and was measured again with success, is no loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.store.manifests.records import Summary

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
    """Every attempt of these runs, run by run; what was not valid in them is looked for in them and in the others."""
    mine = [one for manifest in of for one in _of(manifest)]
    elsewhere = [one for manifest in others for one in _of(manifest)]
    # Of a run that ended without a window it is not known which one another run must have.
    made = {key: one.run for one in (*elsewhere, *mine) if one.valid for key in (one.measurement, one.measurement[:-1])}
    wanted = [one.measurement if one.window else one.measurement[:-1] for one in mine]
    return [one if one.valid else replace(one, again=made.get(key, "")) for one, key in zip(mine, wanted, strict=True)]


def _of(manifest: Summary) -> Iterator[Attempt]:
    names = [window.name for window in manifest.windows]
    lost = (manifest.error,) if manifest.error else (f"the run is {manifest.outcome}",)
    for window in manifest.windows:
        yield _attempt(manifest, window.name, valid=window.valid, why=tuple(window.reasons))
    if manifest.outcome != "completed":
        missing = [name for name in manifest.points if name not in names] or ([] if names else [""])
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
