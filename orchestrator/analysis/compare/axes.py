"""Two settings held against each other: points that were set differently, and the two values of an axis of a sweep."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.analysis.compare import selection, window_settings
from orchestrator.analysis.compare.selection import Chosen, Measurement
from orchestrator.core.errors import ConfigError
from orchestrator.core.units import bytes_text
from orchestrator.store.rundir import Entry
from orchestrator.store.tabular import tables

_NOT_SET = "not set"


def set_apart(a: Chosen, b: Chosen) -> dict[str, str]:
    """How each common point was set differently on the two sides; points that were set alike are left out."""
    first, second = _of_points(a), _of_points(b)
    return {
        point: differences
        for point in first.keys() & second.keys()
        if (differences := "; ".join(_differences(first[point], second[point])))
    }


def burst_sizes(a: Chosen, b: Chosen) -> list[str]:
    """What bursts change beside the course of the load, where one side alone has them: they hold no large flows."""
    (with_a, largest_a), (with_b, largest_b) = _bursts(a), _bursts(b)
    if with_a == with_b or math.isnan(largest_a + largest_b):
        return []
    name, least, most = (a.name, largest_a, largest_b) if with_a else (b.name, largest_b, largest_a)
    return [
        f"sizes of flows: a period of the bursts of {name} holds none larger than {bytes_text(least)}, the other side "
        f"has up to {bytes_text(most)}: what differs is not the bursts alone"
    ]


def _bursts(chosen: Chosen) -> tuple[bool, float]:
    """Whether generated flows came in bursts, and the bytes of the largest that could be drawn (full size)."""
    wanted: dict[Path, set[str]] = defaultdict(set)
    scales: dict[Path, int] = {}
    for window in chosen.windows:
        wanted[window.entry.path].add(window.record.name)
        scales[window.entry.path] = window.entry.manifest.scale
    rows = [
        (row["burst_height"] is not None, row["largest_bytes"] * scales[path])
        for path, names in wanted.items()
        for row in tables.read(path / "tables", "schedules").to_pylist()
        if row["window_name"] in names and row["largest_bytes"] is not None
    ]
    return any(burst for burst, _ in rows), float(max((size for _, size in rows), default=math.nan))


def without(chosen: Chosen, points: Mapping[str, str]) -> Chosen:
    """The same without these points."""
    return replace(chosen, points={key: found for key, found in chosen.points.items() if key not in points})


def by_axis(results: Path, wanted: str, axis: str, values: Sequence[str]) -> tuple[Chosen, Chosen]:
    """The measurements with each of two values of a sweep's axis; points are matched by their other values.

    `axis` is a field's path or its end, `values` are two of its values, or none where it has two. ConfigError where
    there is no such axis, or it has other values.
    """
    chosen = selection.choose(results, wanted)
    windows = [window for entry in chosen.entries for window in selection.windows_of(entry)]
    axes = {path for window in windows for path in window.values}
    found = sorted(path for path in axes if path == axis or path.endswith(f".{axis}"))
    if len(found) != 1:
        raise ConfigError(
            f"{axis!r} names {len(found) or 'no'} axes of {wanted}; accepted: {', '.join(sorted(axes)) or 'no axis'}"
        )
    of_value: dict[str, list[Measurement[Entry]]] = defaultdict(list)
    for window in windows:
        if found[0] in window.values:
            of_value[str(window.values[found[0]])].append(_elsewhere(window, found[0]))
    names = list(values) or list(of_value)
    if len(names) != 2 or not of_value.keys() >= set(names):
        raise ConfigError(f"{found[0]}: two values are compared; accepted: two of {', '.join(of_value)}")
    end = found[0].rpartition(".")[2]
    first, second = (
        selection.of_windows(of_value[name], chosen.entries, name=f"{wanted} with {end} {name}") for name in names
    )
    return first, second


def _elsewhere(window: Measurement[Entry], axis: str) -> Measurement[Entry]:
    """The window under the key of its values on all other axes."""
    others = {path: value for path, value in window.values.items() if path != axis}
    key = f"{json.dumps(others, sort_keys=True, default=str)} {window.job}"
    return replace(window, key=key, label=selection.values_text(others) or "all")


def _of_points(chosen: Chosen) -> dict[str, dict[str, set[str]]]:
    """Everything that was set for each point: a path below the experiment, and the values there over its windows."""
    known: dict[Path, dict[str, window_settings.WindowSetting]] = {}
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for window in chosen.windows:
        run = window.entry
        if run.path not in known:
            known[run.path] = window_settings.of_windows(run)
        setting = known[run.path][window.record.name].setting
        found[window.key].append({**dict(setting.shared), **dict(setting.traffic), "requested load": _load(window)})
    return {point: _together(mine) for point, mine in found.items()}


def _together(found: Sequence[Mapping[str, str]]) -> dict[str, set[str]]:
    paths = {path for one in found for path in one}
    return {path: {one.get(path, _NOT_SET) for one in found} for path in paths}


def _load(window: Measurement[Entry]) -> str:
    requested = math.fsum(load.requested_bps for load in window.record.loads) * window.entry.manifest.scale
    return f"{requested / 1e9:g} Gbit/s"


def _differences(a: Mapping[str, set[str]], b: Mapping[str, set[str]]) -> list[str]:
    return [
        f"{path} {', '.join(sorted(a.get(path, {_NOT_SET})))} against {', '.join(sorted(b.get(path, {_NOT_SET})))}"
        for path in sorted({*a, *b})
        if a.get(path, {_NOT_SET}) != b.get(path, {_NOT_SET})
    ]
