"""What the report prints, as data with the place of each value."""

from __future__ import annotations

from functools import cache
from typing import Literal

from orchestrator.report.study import printed


class Claim(printed.Printed):
    """What the report says in words of Fig 2."""

    what: Literal["few", "many"]
    text: str


class Most(printed.Printed):
    """The largest effect of an order of transfers; `note` says of what."""

    what: Literal["variation", "step", "inference", "training", "straggling"]
    value: float


class Hashemi(printed.Data):
    """All of it."""

    claims: tuple[Claim, ...]
    most: tuple[Most, ...]

    def claim(self, what: Literal["few", "many"]) -> Claim:
        """The claim about so many workers."""
        return next(one for one in self.claims if one.what == what)

    def largest(self, what: Literal["variation", "step", "inference", "training", "straggling"]) -> Most:
        """The largest printed effect of this kind."""
        return next(one for one in self.most if one.what == what)


@cache
def published() -> Hashemi:
    """The printed values."""
    return printed.read(__file__, Hashemi)
