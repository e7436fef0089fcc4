"""Read what a paper prints, and how it is checked, from the data file beside the module that types it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

FILE = "published.yaml"


class Data(BaseModel):
    """Immutable data of `published.yaml`; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Printed(Data):
    """One printed line: `source` is its place (table, figure, equation, section), `note` says where the paper errs."""

    source: str
    note: str = ""


class Check(Data):
    """How measurements are held to what the paper prints, stated before they are made.

    An interval over runs agrees within the margin: `share` of the printed value or `by` so much about it (in its unit),
    or from `least` to `most` where the paper prints a claim. Without any of these something has to hold each time.
    Below `rival`, which is less than `least`, another explanation is better; between the two it is as good.
    `because` is the reason of the margin. `fails` names inputs that must not agree; each is tried by the tests.
    """

    name: str
    share: float | None = None
    by: float | None = None
    least: float | None = None
    most: float | None = None
    rival: float | None = None
    because: str
    fails: tuple[str, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_kind(self) -> Check:
        kinds = [self.share is not None, self.by is not None, self.least is not None or self.most is not None]
        if sum(kinds) > 1:
            raise ValueError(f"{self.name}: one of share, by, and least or most")
        return self

    def bounds(self, printed: float) -> tuple[float, float]:
        """Return the lowest and the highest value that agrees with the printed one, or with the claim."""
        if self.share is not None:
            return printed - self.share * abs(printed), printed + self.share * abs(printed)
        if self.by is not None:
            return printed - self.by, printed + self.by
        return -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most


class Published(Data):
    """What a paper prints, and how it is checked."""

    checks: tuple[Check, ...]

    def check(self, name: str) -> Check:
        """Return the check of this name."""
        return next(one for one in self.checks if one.name == name)


T = TypeVar("T", bound=Data)


def read(module: str, kind: type[T]) -> T:
    """Read `published.yaml` beside a module (its `__file__`)."""
    found: Any = yaml.safe_load(Path(module).with_name(FILE).read_text(encoding="utf-8"))
    return kind.model_validate(found)
