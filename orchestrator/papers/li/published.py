"""The values that the paper prints, as data with the place of each."""

from __future__ import annotations

from functools import cache

from orchestrator.report.study import printed


class Model(printed.Printed):
    """A model of table 2, its parameters in 2^20."""

    name: str
    parameters_m: float
    batch: int


class Traffic(printed.Printed):
    """A line of table 3: what rank 0 sends in an iteration, in MiB."""

    kind: str
    messages: int
    message_mib: float
    volume_mib: float


class Number(printed.Printed):
    """A printed number."""

    name: str
    value: float
    unit: str


class Claim(printed.Printed):
    """A finding in words, shortened."""

    name: str
    text: str


class Li(printed.Published):
    """The paper."""

    models: tuple[Model, ...]
    traffic: tuple[Traffic, ...]
    figures: tuple[Number, ...]
    claims: tuple[Claim, ...]

    def number(self, name: str) -> Number:
        return next(one for one in self.figures if one.name == name)

    def claim(self, name: str) -> Claim:
        return next(one for one in self.claims if one.name == name)


@cache
def li() -> Li:
    """Return the paper's printed values."""
    return printed.read(__file__, Li)
