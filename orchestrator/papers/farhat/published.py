"""The findings on the paper's first page, as data with the place of each."""

from __future__ import annotations

from functools import cache
from typing import Literal

from orchestrator.report.study import printed

Name = Literal["proportional", "ring", "not-size-alone", "bandwidth", "batch", "hardware", "timeline", "accuracy"]


class Count(printed.Printed):
    """A number of workers or models."""

    what: Literal["workers", "models"]
    value: int


class Finding(printed.Printed):
    """A finding in words, shortened."""

    name: Name
    text: str


class Farhat(printed.Published):
    """The paper."""

    counts: tuple[Count, ...]
    findings: tuple[Finding, ...]

    def count(self, what: Literal["workers", "models"]) -> Count:
        return next(one for one in self.counts if one.what == what)

    def finding(self, name: Name) -> Finding:
        return next(one for one in self.findings if one.name == name)


@cache
def farhat() -> Farhat:
    """Return the paper's printed findings."""
    return printed.read(__file__, Farhat)
