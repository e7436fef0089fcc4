"""Find what a sweep planned (its plan file) and what was measured of it (manifests of runs)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from orchestrator.core.errors import StoreError, UnsafePath
from orchestrator.core.opendata import AxisValues, YamlMapping
from orchestrator.core.paths import safepath
from orchestrator.store import atomic, index, rundir
from orchestrator.store.manifests import coding
from orchestrator.store.manifests import manifest as manifests
from orchestrator.store.manifests.manifest import Renamed
from orchestrator.store.manifests.summaries import Git, Point, Summary, WindowSummary
from orchestrator.store.rundir import Listed

FOLDER = "sweeps"
FILE = "sweep.json"
FORMAT = 2
_RENAMED = (Renamed(1, ("fresh",), "rechecked"),)

Key = tuple[str, int, bool]  # point, repetition (from 1), whether it is the check of a window in a run of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPoint:
    """A point of a sweep and its values by axis."""

    point: str
    values: AxisValues


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a sweep, as its file has it; points in `rechecked` are measured once more in a run of their own.

    `definition` is the digest of the sweep file, and `sweep` what the file says. Random numbers of its runs, and the
    order of its points, follow from the `salt`; a sweep that is older than salts has none.
    """

    format: int = FORMAT
    id: str
    name: str
    began_ns: int
    definition: str
    mode: str = ""
    axes: tuple[str, ...] = ()
    repetitions: int = 1
    salt: str = ""
    argv: tuple[str, ...] = ()
    git: Git | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)
    sweep: YamlMapping = field(default_factory=dict)
    points: tuple[PlannedPoint, ...]
    rechecked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sweep:
    """One execution of a sweep file; its folder also holds what is made of it (verdicts, summaries)."""

    path: Path
    plan: Plan

    @property
    def id(self) -> str:
        return self.plan.id

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def salt(self) -> str:
        """Return its salt; that of an older sweep is its id."""
        return self.plan.salt or self.id

    def planned(self) -> list[Key]:
        """Return every planned measurement, repetition after repetition, checks last."""
        numbers = range(1, self.plan.repetitions + 1)
        planned = [(point.point, number, False) for number in numbers for point in self.plan.points]
        return planned + [(point, 1, True) for point in self.plan.rechecked]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWindow:
    """One measured window of a sweep's point; `window` is its record in the manifest of the run in folder `path`."""

    path: Path
    manifest: Summary
    window: WindowSummary
    measurement: Point

    @property
    def point(self) -> str:
        return self.measurement.point

    @property
    def repetition(self) -> int:
        return self.measurement.repetition

    @property
    def recheck(self) -> bool:
        """Whether the window is a check of another one, in a run of its own."""
        return self.measurement.recheck

    @property
    def key(self) -> Key:
        return (self.point, self.repetition, self.recheck)

    @property
    def valid(self) -> bool:
        return self.window.valid

    @property
    def scale(self) -> int:
        return self.manifest.scale

    @property
    def requested_bps(self) -> float:
        """The sum of all requested loads (bit/s, full size); 0 without cross traffic."""
        return self.window.requested_bps * self.scale

    @property
    def achieved_bps(self) -> float | None:
        """The sum of all loads as they arrived (bit/s, full size); None where that is not known."""
        achieved = self.window.achieved_bps
        return None if achieved is None else achieved * self.scale


def new_id(definition: str, began_ns: int) -> str:
    """Return an id of when the sweep began and its name; it sorts by time."""
    return rundir.new_run_id(definition[:8], began_ns)


def create(results: Path, plan: Plan) -> Sweep:
    """Write the plan of a sweep, from which it can be resumed."""
    path = results / FOLDER / plan.name / plan.id
    try:
        path.mkdir(parents=True)
        atomic.write(path / FILE, coding.sealed(plan, indent=1))
    except OSError as error:
        raise StoreError(f"{path}: cannot be made: {error.strerror}", hint="--results DIR elsewhere") from None
    return Sweep(path, plan)


def sweeps(results: Path, name: str | None = None) -> list[Sweep]:
    """Return the sweeps of the store (of this name), oldest first; those with a damaged plan are passed over."""
    found = []
    for file in (results / FOLDER).glob(f"{name or '*'}/*/{FILE}"):
        with contextlib.suppress(OSError, UnsafePath, ValueError, RecursionError):
            content = safepath.content(file) or b""
            found.append(Sweep(file.parent, manifests.decoded_as_now(content, Plan, FORMAT, _RENAMED)))
    return sorted(found, key=lambda sweep: sweep.id)


def find(results: Path, wanted: str) -> Sweep:
    """Return a sweep by its id or the beginning of it, by its name, or by `name@2026-11-20`.

    Of a name it is the newest one, of a day (UTC) the newest one of that day.
    """
    name, at, day = wanted.partition("@")
    found = [sweep for sweep in sweeps(results) if sweep.name == name and (not at or _day(sweep) == day)]
    if not found and wanted and not at:
        found = [sweep for sweep in sweeps(results) if sweep.id.startswith(wanted)]
        if len({sweep.id for sweep in found}) > 1:
            raise StoreError(f"{wanted}: {len(found)} sweeps match: {', '.join(sweep.id for sweep in found[:5])}")
    if not found:
        raise StoreError(f"{wanted}: no such sweep in {results}", hint=f"ls {results / FOLDER}")
    return found[-1]


def _day(sweep: Sweep) -> str:
    return f"{datetime.fromtimestamp(sweep.plan.began_ns / 1e9, tz=timezone.utc):%Y-%m-%d}"


def runs(results: Path, sweep: Sweep) -> list[Listed]:
    """Return every run of a sweep with its manifest in brief (see `store.index`), unsealed ones too, oldest first."""
    mine = [entry for entry in index.entries(results) if entry.manifest.sweep and entry.manifest.sweep.id == sweep.id]
    return sorted(mine, key=lambda entry: entry.run)


def measured(results: Path, sweep: Sweep) -> list[MeasuredWindow]:
    """Return every window that was measured and sealed, invalid ones too, oldest first."""
    return [one for entry in runs(results, sweep) if entry.sealed for one in windows_of(entry.path, entry.manifest)]


def measured_by(results: Path, name: str) -> list[MeasuredWindow]:
    """Return the measured windows of all sweeps of a name, of whatever definition."""
    entries = [entry for entry in index.entries(results) if entry.manifest.sweep and entry.manifest.sweep.name == name]
    return [one for entry in entries if entry.sealed for one in windows_of(entry.path, entry.manifest)]


def windows_of(path: Path, manifest: Summary) -> list[MeasuredWindow]:
    """Return the measured windows of one run of a sweep."""
    return [
        MeasuredWindow(path=path, manifest=manifest, window=window, measurement=manifest.points[window.name])
        for window in manifest.windows
        if window.name in manifest.points
    ]


def chosen(found: Iterable[MeasuredWindow]) -> list[MeasuredWindow]:
    """Return of each point and repetition the last valid window, checks left out."""
    last = {one.key: one for one in found if one.valid and not one.recheck}
    return list(last.values())


def missing(sweep: Sweep, found: Sequence[MeasuredWindow]) -> list[tuple[str, int]]:
    """Return the planned measurements (point, repetition) without a valid window."""
    have = {one.key for one in found if one.valid}
    return [key[:2] for key in sweep.planned() if not key[2] and key not in have]
