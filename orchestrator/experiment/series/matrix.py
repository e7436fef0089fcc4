"""The matrix of a sweep file: the combinations of its axes' values, and where in an experiment an axis sets one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.core import where
from orchestrator.core.errors import ConfigError
from orchestrator.core.opendata import AxisValues
from orchestrator.experiment.series.axis import MOST_POINTS, Axis
from orchestrator.experiment.yamlfiles.documents import Keys


def combinations(
    axes: Mapping[str, Axis], zipped: Sequence[Mapping[str, Axis]], exclude: Sequence[AxisValues], path: Path
) -> Iterator[tuple[AxisValues, AxisValues]]:
    """Every point of a sweep file's matrix that is not excluded: what each axis sets, and what people call it.

    Axes of a group in `zipped` go hand in hand. ConfigError for too many points, for none, and for an exclusion by an
    axis that is not there.
    """
    groups: list[list[dict[str, tuple[Any, Any]]]] = [
        [{axis: pair} for pair in values.pairs()] for axis, values in axes.items()
    ]
    groups += [
        [dict(zip(group, pairs, strict=True)) for pairs in zip(*(v.pairs() for v in group.values()), strict=True)]
        for group in zipped
    ]
    if math.prod(len(group) for group in groups) > MOST_POINTS:
        raise ConfigError(f"{path}: more than {MOST_POINTS} points; accepted: fewer values, or several sweeps")
    known = [axis for group in groups for axis in group[0]]
    for entry in exclude:
        for key in entry:
            if not where.Condition(key, "=", "").of(dict.fromkeys(known)):
                raise ConfigError(f"{path}: exclude: no axis {key}; accepted: {', '.join(known)}")
    found = 0
    for chosen in itertools.product(*groups):
        named = {axis: pair[0] for part in chosen for axis, pair in part.items()}
        if any(_is_excluded(named, entry) for entry in exclude):
            continue
        found += 1
        yield {axis: pair[1] for part in chosen for axis, pair in part.items()}, named
    if not found:
        raise ConfigError(f"{path}: exclude: leaves no point; accepted: an exclude that leaves some")


def _is_excluded(names: AxisValues, entry: AxisValues) -> bool:
    for key, unwanted in entry.items():
        choices = unwanted if isinstance(unwanted, list) else [unwanted]
        if not any(_bound(key, choice).holds(names) for choice in choices):
            return False
    return True


def _bound(key: str, value: Any) -> where.Condition:
    if isinstance(value, str) and value[:1] in "<>":
        relation = value[:2] if value[1:2] == "=" else value[:1]
        return where.Condition(key, relation, value[len(relation) :].strip())
    return where.Condition(key, "=", value)


def places(data: Any, way: Keys, at: Keys = ()) -> Iterator[Keys]:
    """The ways that a way with `*` in it means; one without means itself, whether something is there or not."""
    if "*" not in way:
        yield (*at, *way)
        return
    step, rest = way[0], way[1:]
    if step == "*":
        keys: Sequence[str | int] = list(data) if isinstance(data, dict) else []
        keys = range(len(data)) if isinstance(data, list) else keys
    else:
        keys = [step]
    for key in keys:
        yield from places(value_at(data, (key,), None), rest, (*at, key))


def value_at(data: Any, way: Keys, default: Any) -> Any:
    """What stands at this way through the data; the default where there is nothing."""
    for step in way:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return default
    return data
