"""Declare a gate: its name, its limit in `validity:`, its help, and the verdicts that it gives."""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.core.errors import StoreError
from orchestrator.store.manifests.records import Gate, LimitValue
from orchestrator.validity.window import MeasuredWindow

Limits = Mapping[str, LimitValue | None]  # by key of `validity:`, as a manifest records them


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A key of `validity:`, by which an experiment moves what a window must keep to.

    `kind` is the type of its value in a file, such as `Share | Literal["ignore"]`: a word in place of a number. The
    `default` is in SI units (shares of 1, seconds), `help` a sentence for the reference of keys.
    """

    key: str
    kind: Any
    default: LimitValue
    help: str

    def of(self, limits: Limits) -> LimitValue:
        """Return the recorded limit, the default where a run is older than it; StoreError for a value of no sense."""
        value = limits.get(self.key)
        if value is None:
            return self.default
        known = (
            value in _words(self.kind) if isinstance(value, str) else typing.get_origin(self.kind) is not typing.Literal
        )
        if not known:
            raise StoreError(f"validity: {self.key}: {value!r} is no limit")
        return float(value) if isinstance(self.default, float) and not isinstance(value, str) else value

    def number(self, limits: Limits) -> float | None:
        """Return the recorded limit as a number; None for a word, which takes any number."""
        value = self.of(limits)
        return None if isinstance(value, str) else value


def _words(kind: Any) -> set[Any]:
    """Return the words that stand for a value of a type."""
    if typing.get_origin(kind) is typing.Literal:
        return set(typing.get_args(kind))
    return {word for inner in typing.get_args(kind) for word in _words(inner)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """The declaration of a gate; `name` is that of its verdicts.

    A window passes when `passes`; `limit` is a key of `validity:`, or says in words what no key moves; `remedy` is what
    to do about a window that fails. One that is not `required` gives remarks, unless its limit says otherwise.
    """

    name: str
    passes: str
    limit: Limit | str
    remedy: str
    required: bool = True


class GateModule(Protocol):
    """A module with gates. It may declare COUNTERS, the names of counters of which it needs samples."""

    NAME: str
    """By which other packages name it (entry points of the group `orch.gates`)."""
    ORDER: int
    """Gates are judged in ascending order; those of this project have 10, 20 and so on, in steps of 10."""
    GATES: tuple[GateSpec, ...]

    @staticmethod
    def judge(window: MeasuredWindow) -> Iterator[Gate]:
        """Give a verdict for each thing that is judged: a job, a load, a host."""


def verdict(
    name: str, passed: bool | None, message: str, *, measured: float, limit: float | None, required: bool = True
) -> Gate:
    """Return the judgement of the gate `name`: `passed` is None where it cannot be made, `measured` NaN if unknown."""
    return Gate(
        name=name,
        passed=passed,
        required=required,
        measured=None if math.isnan(measured) else measured,
        limit=limit,
        message=message,
    )
