"""The values that the report prints, as data with the place of each."""

from __future__ import annotations

from functools import cache
from typing import Literal

from orchestrator.report.study import printed


class Claim(printed.Printed):
    """A claim of the report on Fig 2, in words."""

    what: Literal["few", "many"]
    text: str


class Most(printed.Printed):
    """The largest effect of an order of transfers; `note` names the effect."""

    what: Literal["variation", "step", "inference", "training", "straggling"]
    value: float


class Hashemi(printed.Published):
    """The report's printed values."""

    claims: tuple[Claim, ...]
    most: tuple[Most, ...]

    def claim(self, what: Literal["few", "many"]) -> Claim:
        """Return the claim about so many workers."""
        return next(one for one in self.claims if one.what == what)

    def largest(self, what: Literal["variation", "step", "inference", "training", "straggling"]) -> Most:
        """Return the largest printed effect of this kind."""
        return next(one for one in self.most if one.what == what)


@cache
def published() -> Hashemi:
    """Return the report's printed values."""
    return printed.read(__file__, Hashemi)
