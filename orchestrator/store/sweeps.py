"""Sweeps as the store keeps them: one file that says what was planned, and manifests that say what was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from orchestrator.core.errors import StoreError
from orchestrator.store import index, rundir
from orchestrator.store.rundir import Entry

FOLDER = "sweeps"
FILE = "sweep.json"
FORMAT = 1

Key = tuple[str, int, bool]  # point, repetition (from 1), whether it is the check of a window in a run of its own


@dataclass(frozen=True, slots=True)
class Sweep:
    """One carrying out of a sweep file; its folder takes what is made of it (verdicts, summaries)."""

    path: Path
    data: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def began_ns(self) -> int:
        return int(self.data["began_ns"])

    @property
    def definition(self) -> str:
        return str(self.data["definition"])

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(self.data["axes"])

    @property
    def repetitions(self) -> int:
        return int(self.data["repetitions"])

    @property
    def points(self) -> list[Mapping[str, Any]]:
        """Every planned point: `point` and its `values` by axis."""
        return list(self.data["points"])

    @property
    def fresh(self) -> tuple[str, ...]:
        """Points that are measured once more in a run of their own."""
        return tuple(self.data["fresh"])

    def planned(self) -> list[Key]:
        """Every planned measurement, repetition after repetition, checks last."""
        numbers = range(1, self.repetitions + 1)
        planned = [(str(point["point"]), number, False) for number in numbers for point in self.points]
        return planned + [(point, 1, True) for point in self.fresh]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One measured window of a sweep's point; `window` is its record in the manifest of the run in folder `path`."""

    point: str
    values: Mapping[str, Any]
    repetition: int
    fresh: bool
    path: Path
    manifest: Mapping[str, Any]
    window: Mapping[str, Any]

    @property
    def key(self) -> Key:
        return (self.point, self.repetition, self.fresh)

    @property
    def valid(self) -> bool:
        return bool(self.window["valid"])

    @property
    def scale(self) -> int:
        return int(self.manifest["scale"])

    @property
    def requested_bps(self) -> float:
        """All loads together, at full size; 0 without cross traffic."""
        return math.fsum(load["requested_bps"] for load in self.window["loads"]) * self.scale

    @property
    def achieved_bps(self) -> float | None:
        """The same as it arrived; None where that is not known."""
        rates = [load["achieved_bps"] for load in self.window["loads"]]
        return None if any(rate is None for rate in rates) else math.fsum(rates) * self.scale


def new_id(definition: str, began_ns: int) -> str:
    """When it began and what it is: sorts by time."""
    return rundir.new_run_id(definition[:8], began_ns)


def create(results: Path, data: Mapping[str, Any]) -> Sweep:
    """Write what a sweep plans; from here on it can be taken up again."""
    path = results / FOLDER / str(data["name"]) / str(data["id"])
    try:
        path.mkdir(parents=True)
        rundir.write_json(path / FILE, {"format": FORMAT, **data})
    except OSError as error:
        raise StoreError(f"{path}: cannot be made: {error.strerror}", hint="--results DIR elsewhere") from None
    return Sweep(path, data)


def sweeps(results: Path, name: str | None = None) -> list[Sweep]:
    """Sweeps of the store (of this name), oldest first; what is torn is passed over."""
    found = []
    for file in (results / FOLDER).glob(f"{name or '*'}/*/{FILE}"):
        try:
            data = json.loads(file.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(data, dict) and {"id", "name", "began_ns", "definition", "points"} <= data.keys():
            found.append(Sweep(file.parent, data))
    return sorted(found, key=lambda sweep: sweep.id)


def find(results: Path, wanted: str) -> Sweep:
    """A sweep by its id or the beginning of it, by name the newest, by `name@2026-11-20` the newest of a day (UTC)."""
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
    return f"{datetime.fromtimestamp(sweep.began_ns / 1e9, tz=timezone.utc):%Y-%m-%d}"


def runs(results: Path, sweep: Sweep) -> list[Entry]:
    """Every run of a sweep with its manifest in brief (see `store.index`), unsealed ones too, oldest first."""
    mine = [entry for entry in index.entries(results) if entry.manifest.get("sweep", {}).get("id") == sweep.id]
    return sorted(mine, key=lambda entry: entry.run)


def measured(results: Path, sweep: Sweep) -> list[Measured]:
    """Every window that was measured and sealed, invalid ones too, oldest first."""
    return [one for entry in runs(results, sweep) if entry.sealed for one in windows_of(entry.path, entry.manifest)]


def measured_by(results: Path, name: str) -> list[Measured]:
    """The same of all sweeps of a name."""
    entries = [entry for entry in index.entries(results) if entry.manifest.get("sweep", {}).get("name") == name]
    return [one for entry in entries if entry.sealed for one in windows_of(entry.path, entry.manifest)]


def windows_of(path: Path, manifest: Mapping[str, Any]) -> list[Measured]:
    """The measured windows of one run of a sweep."""
    planned = manifest["sweep"]["points"]
    return [
        Measured(path=path, manifest=manifest, window=window, **planned[window["window"]])
        for window in manifest["windows"]
        if window["window"] in planned
    ]


def chosen(found: Iterable[Measured]) -> list[Measured]:
    """Of each point and repetition the last valid window, checks left out."""
    last = {one.key: one for one in found if one.valid and not one.fresh}
    return list(last.values())


def missing(sweep: Sweep, found: Sequence[Measured]) -> list[tuple[str, int]]:
    """Planned measurements (point, repetition) without a valid window."""
    have = {one.key for one in found if one.valid}
    return [key[:2] for key in sweep.planned() if not key[2] and key not in have]
