"""Parse conditions such as `load<=8gbit` on named values, as in `--where` and a sweep's `exclude`."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.core.errors import ConfigError
from orchestrator.core.units import quantity

_CONDITION = re.compile(r"\s*([A-Za-z0-9_.*-]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Fields = Mapping[str, Any]  # what a condition can be about, by name: the plain values of a run, or of a point's axes


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the values of a key; a key may be the end of a longer one ("load" of "traffic.0.iperf.load")."""

    key: str
    relation: str
    value: Any

    def of(self, fields: Fields) -> list[Any]:
        """Return the values that the condition is about: those of the key itself, else of the keys that end in it."""
        if self.key in fields:
            return [fields[self.key]]
        return [value for key, value in fields.items() if key.endswith("." + self.key)]

    def holds(self, fields: Fields) -> bool:
        """Return whether it holds for one of the values (with `!=`: for all of them); False where there is none."""
        found = self.of(fields)
        if self.relation == "!=":
            return bool(found) and not any(same(value, self.value) for value in found)
        return any(self._holds_of(value) for value in found)

    def _holds_of(self, value: Any) -> bool:
        if self.relation == "=":
            return same(value, self.value)
        left, right = _number(value), _number(self.value)
        comparable = left is not None and right is not None and ("" in (left[0], right[0]) or left[0] == right[0])
        return comparable and _COMPARE[self.relation](left[1], right[1])  # type: ignore[index]


def parse(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Parse conditions from the command line; ConfigError for an invalid one."""
    found = []
    for text in texts:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise ConfigError(
                f"--where {text}: not a condition; accepted: key, relation (= != < <= > >=) and value, as load<=8gbit"
            )
        key, relation, value = match.groups()
        found.append(Condition(key, "=" if relation == "==" else relation, value))
    return tuple(found)


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal, "4gbit" and "4000mbit" and 4e9 alike."""
    one, other = _number(left), _number(right)
    if one and other and ("" in (one[0], other[0]) or one[0] == other[0]):
        return one[1] == other[1]
    return text_of(left) == text_of(right)


def text_of(value: Any) -> str:
    """Return a value as people write it: lists with commas between, `true`, `4gbit`."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return ",".join(text_of(entry) for entry in value)
    return json.dumps(value, sort_keys=True)


def _number(value: Any) -> tuple[str, float] | None:
    """Return the kind ("" for a bare number) and amount of a value; None for any other."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return "", float(value)
    if not isinstance(value, str):
        return None
    try:
        return "", float(value)
    except ValueError:
        return quantity(value)
