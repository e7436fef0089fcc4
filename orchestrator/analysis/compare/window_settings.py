"""Read the settings of a window's experiment but its loads: which windows measured the same, how others differ."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.core.errors import StoreError
from orchestrator.core.opendata import YamlMapping
from orchestrator.core.units import quantity
from orchestrator.experiment import old_names
from orchestrator.store.rundir import Listed

Flat = tuple[tuple[str, str], ...]  # path below the experiment, and the value there

# These say how often and how long one measures and what counts, not what is measured; traffic is a window's own.
_NOT_MEASURED = (
    "name",
    "seed",
    "repetitions",
    "attempts",
    "local_run",
    "measure",
    "validity",
    "windows",
    "traffic",
    "captures",
)
# Streams are the means to a load: those of a source are raised until it is reached.
_OF_LOAD = ("load", "streams")
_RATE = re.compile(r"conditions\.\d+\.rate\.rate")


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """The settings of a window: `shared` with all windows of its run, `traffic` of its own without the loads."""

    shared: Flat
    traffic: Flat = ()

    @property
    def without_traffic(self) -> Setting:
        return Setting(self.shared)

    @property
    def least_rate_bps(self) -> float:
        """The lowest rate that a condition set for a link; infinite where none did."""
        rates = (quantity(value) for path, value in self.shared if _RATE.fullmatch(path))
        return min((number for _, number in filter(None, rates)), default=math.inf)


@dataclass(frozen=True, slots=True)
class WindowSetting:
    """The kind of cross traffic of a window, "" without any, and all settings."""

    traffic: str
    setting: Setting


def set_to(entry: Listed) -> dict[str, YamlMapping]:
    """Return the experiment as set for each window, with its own traffic, without what says how long one measures.

    StoreError when the run's experiment file cannot be read, or has not all windows that were measured.
    """
    document = old_names.recorded(entry.path)
    experiment: YamlMapping = document.data
    shared = {key: value for key, value in experiment.items() if key not in _NOT_MEASURED}
    windows = experiment.get("windows") or [{"name": "w1", "traffic": experiment.get("traffic") or []}]
    if not isinstance(windows, list) or not all(map(_is_window, windows)):
        raise StoreError(f"{document.name}: its windows are not as orch writes them")
    found = {window["name"]: {**shared, "traffic": window.get("traffic") or []} for window in windows}
    if lacking := [window.name for window in entry.manifest.windows if window.name not in found]:
        raise StoreError(f"{document.name}: it has no window {lacking[0]}, which was measured")
    return found


def _is_window(value: object) -> bool:
    """Return whether a mapping is a window: a name, and sources of traffic, a part each."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    sources = value.get("traffic") or []
    return isinstance(sources, list) and all(isinstance(one, dict) and len(one) == 1 for one in sources)


def of_windows(entry: Listed) -> dict[str, WindowSetting]:
    """Return the setting of each window, by the run's own experiment file; StoreError when that cannot be read."""
    found = {}
    for name, data in set_to(entry).items():
        sources = data.pop("traffic")
        traffic = tuple(flat({"traffic": [_without_load(source) for source in sources]}))
        found[name] = WindowSetting("+".join(map(_source_name, sources)), Setting(tuple(flat(data)), traffic))
    return found


def differences(settings: Sequence[Setting]) -> list[str]:
    """Return of each of these mappings what not all of them have in common."""
    whole = [dict(one.shared) | dict(one.traffic) for one in settings]
    paths = sorted({path for one in whole for path in one if len({other.get(path) for other in whole}) > 1})
    return [", ".join(f"{path} {one.get(path, 'not set')}" for path in paths) for one in whole]


def flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value in nested mappings and lists, as text, by its path."""
    below = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if below is None:
        yield path, str(value)
        return
    for key, inner in below:
        yield from flat(inner, f"{path}.{key}" if path else str(key))


def _without_load(choice: YamlMapping) -> YamlMapping:
    ((name, config),) = choice.items()
    if not isinstance(config, Mapping):
        return {name: config}
    return {name: {key: value for key, value in config.items() if key not in _OF_LOAD}}


def _source_name(choice: YamlMapping) -> str:
    ((name, config),) = choice.items()
    return f"{name}-burst" if isinstance(config, Mapping) and config.get("burst") else str(name)
