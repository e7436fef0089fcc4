"""Expand the axes of a sweep: the values of each, their combinations, and the paths that they set; pure."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from orchestrator.core import where
from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Model
from orchestrator.core.opendata import AxisValues, JsonSchema, YamlMapping, YamlValue
from orchestrator.core.units import Mistake
from orchestrator.experiment.documents import Keys

MOST_POINTS = 10_000
_SLOWER = re.compile(r"\+[0-9]{1,4}(\.[0-9]+)?%")


class Axis(Model):
    """The values of one field: a list, numbers with a unit, a range, or named pieces of an experiment file."""

    values: tuple[YamlValue, ...] = ()
    """The values, each as it would stand in the experiment file; with `unit`, numbers."""
    unit: str = ""
    """What follows each number, such as gbit."""
    first: float | None = Field(default=None, alias="from")
    """First number of a range."""
    to: float | None = None
    """Last number of a range, itself included."""
    step: float | None = Field(default=None, gt=0)
    """From one number of a range to the next."""
    count: int | None = Field(default=None, ge=2)
    """How many numbers of a range, equally far apart, instead of `step`."""
    find: str | None = None
    """Measure only those numbers of a range that tell where the curve bends: `knee`, where congestion begins (the
    question `congestion point`); "+10%", where the mean is longer than at the lowest number by so much; or
    `first-invalid`, the lowest number at which no measurement is valid."""
    within: float | None = Field(default=None, gt=0)
    """With `find`, how far the interval of the answer reaches at most; numbers are twice as far apart by default."""
    most: int = Field(default=20, ge=5, le=200)
    """With `find`, most measurements of a curve."""
    named: YamlMapping = Field(default_factory=dict)
    """Name of each value (a mapping or a list that would be unreadable in a table), and the value."""

    @model_validator(mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        return {"values": value} if isinstance(value, list) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        """Return a schema of a mapping, or of a list of values alone."""
        return {"anyOf": [handler.resolve_ref_schema(handler(core)), {"type": "array", "minItems": 1}]}

    @model_validator(mode="after")
    def _one_way(self) -> Axis:
        is_range = self.first is not None or self.to is not None
        if self.find is not None:
            self._check_find()
        if bool(self.values) + is_range + bool(self.named) != 1:
            raise Mistake("not an axis", accepted="a list, or exactly one of values, from and to, named")
        if is_range and (self.first is None or self.to is None or self._spacings() != 1):
            raise Mistake("not a whole range", accepted="from, to, and one of step, count")
        if self.first is not None and self.to is not None and self.to < self.first:
            raise Mistake("the range is empty", accepted="to that is at least from")
        if is_range and not self._length() <= MOST_POINTS:  # which NaN is not, either
            raise Mistake(f"a range of {self._length():.6g} numbers", accepted=f"at most {MOST_POINTS}")
        if self.unit and not all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values):
            raise Mistake("values beside a unit are numbers alone", accepted="[0, 4, 8], or no unit", at=("values",))
        return self

    def _check_find(self) -> None:
        if self.find is not None and not (self.find in ("knee", "first-invalid") or _SLOWER.fullmatch(self.find)):
            raise Mistake("nothing that can be found", accepted='knee, first-invalid, or "+10%"', at=("find",))
        if self.first is None or self.to is None:
            raise Mistake("is found in a range alone", accepted="from and to beside it", at=("find",))
        if self.within is None:
            raise Mistake("how well it is to be known is not said", accepted="within: 0.5 beside it", at=("find",))

    def _spacings(self) -> int:
        """Return how many keys say how far apart the numbers are."""
        given = sum(one is not None for one in (self.step, self.count))
        return given or int(self.find is not None)

    @property
    def _apart(self) -> float:
        return self.step or 2 * (self.within or 0.5)

    @property
    def slower(self) -> float:
        """Return by what share of the lowest number's time a slower one's is longer; infinite if validity decides."""
        return math.inf if self.find == "first-invalid" else float((self.find or "+10%")[1:-1]) / 100

    def pairs(self) -> list[tuple[Any, Any]]:
        """Return the label of each value, and the value; a value without a name is its own label."""
        if self.named:
            return list(self.named.items())
        values = [_with_unit(value, self.unit) for value in self.values or self._range()]
        return [(value, value) for value in values]

    def _length(self) -> float:
        """Return how many numbers a range has, without making them."""
        if self.count is not None:
            return self.count
        return ((self.to or 0.0) - (self.first or 0.0)) / self._apart + 1

    def _range(self) -> list[float]:
        if self.first is None or self.to is None:
            raise AssertionError("the model lets whole ranges through")
        if self.count is not None:
            return [self.first + (self.to - self.first) * i / (self.count - 1) for i in range(self.count)]
        step = self._apart
        return [self.first + step * i for i in range(math.floor((self.to - self.first) / step + 1e-9) + 1)]


def _with_unit(value: Any, unit: str) -> Any:
    if isinstance(value, float):
        value = round(value, 9)
        value = int(value) if value.is_integer() else value
    return f"{value:.15g}{unit}" if unit else value


def combinations(
    axes: Mapping[str, Axis], zipped: Sequence[Mapping[str, Axis]], exclude: Sequence[AxisValues], path: Path
) -> Iterator[tuple[AxisValues, AxisValues]]:
    """Yield every point of a sweep file's matrix that is not excluded: the value and the label of each axis.

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
        if any(has_values(named, entry) for entry in exclude):
            continue
        found += 1
        yield {axis: pair[1] for part in chosen for axis, pair in part.items()}, named
    if not found:
        raise ConfigError(f"{path}: exclude: leaves no point; accepted: an exclude that leaves some")


def has_values(names: AxisValues, entry: AxisValues) -> bool:
    """Return whether a point has all of these values (of a list: one of them; of text such as ">8gbit": a bound)."""
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
    """Yield the paths that a path with `*` matches; one without stands for itself, whether it exists or not."""
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
    """Return the value at a path in the data; the default where there is none."""
    for step in way:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return default
    return data
