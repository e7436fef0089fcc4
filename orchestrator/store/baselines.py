"""Save and read baselines: named sets of runs with which later runs are compared, a file each."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import ConfigError, StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.store import atomic, rundir
from orchestrator.store.manifests import coding
from orchestrator.store.rundir import Entry

FOLDER = "baselines"
FORMAT = 1
_HINT = "orch baseline set NAME RUN..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The content of a baseline's file: the folders of its `runs`, from the store's, and their names (`of`)."""

    format: int = FORMAT
    name: str
    set_ns: int = 0
    of: tuple[str, ...] = ()
    runs: tuple[str, ...]


def check_name(name: str) -> None:
    """Raise ConfigError for a name that no baseline can have."""
    if not re.fullmatch(r"[\w-][\w.-]*", name):
        raise ConfigError(f"{name!r} cannot name a baseline; accepted: letters, digits, '-', '_' and '.'")


def save(results: Path, name: str, *, of: Sequence[str], runs: Sequence[str]) -> Path:
    """Save these runs as the baseline of a name, in place of an older one; return the file."""
    path = _file(results, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Baseline(name=name, set_ns=time.time_ns(), of=tuple(of), runs=tuple(runs))
    atomic.write(path, coding.sealed(made, indent=1))
    return path


def every(results: Path) -> list[Baseline]:
    """Return every baseline of the store, by name; StoreError for one that cannot be read."""
    return [_read(path) for path in sorted((results / FOLDER).glob("*.json"))]


def held(results: Path) -> list[Path]:
    """Return the folders of all runs that baselines hold, whether they are still there or not."""
    return [(results / run).resolve() for baseline in every(results) for run in baseline.runs]


def holding(results: Path, run: Path) -> list[str]:
    """Return the names of the baselines that hold the run in this folder."""
    return [one.name for one in every(results) if run.resolve() in [(results / name).resolve() for name in one.runs]]


def exists(results: Path, name: str) -> bool:
    """Return whether there is a baseline of this name."""
    return "/" not in name and safepath.is_there(_file(results, name))


def entries(results: Path, name: str) -> list[Entry]:
    """Return the runs that a baseline holds.

    StoreError when there is no such baseline, or not all of its runs any more.
    """
    path = _file(results, name)
    if not path.is_file():
        known = ", ".join(baseline.name for baseline in every(results)) or "none"
        raise StoreError(
            f"no baseline {name!r} in {results}; there are: {known}", hint=f"orch baseline set {name} RUN|SWEEP..."
        )
    found, gone = [], []
    for run in _read(path).runs:
        try:
            found.append(rundir.find(results, str(results / run)))
        except StoreError:
            gone.append(run)
    if gone:
        raise StoreError(
            f"baseline {name}: {len(gone)} of its runs are gone: {', '.join(gone[:3])}",
            hint=f"orch baseline set {name} RUN... names others",
        )
    return found


def _file(results: Path, name: str) -> Path:
    return results / FOLDER / f"{name}.json"


def _read(path: Path) -> Baseline:
    try:
        return coding.decoded(safepath.content(path) or b"", Baseline)
    except (OSError, UnsafePath, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is no baseline: {error}", hint=_HINT) from error
