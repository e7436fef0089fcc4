"""Read what a paper prints from the data file beside the module that types it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict

FILE = "published.yaml"


class Data(BaseModel):
    """Immutable data of `published.yaml`; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Printed(Data):
    """One printed line: `source` is its place (table, figure, equation, section), `note` says where the paper errs."""

    source: str
    note: str = ""


T = TypeVar("T", bound=Data)


def read(module: str, kind: type[T]) -> T:
    """Read `published.yaml` beside a module (its `__file__`)."""
    found: Any = yaml.safe_load(Path(module).with_name(FILE).read_text(encoding="utf-8"))
    return kind.model_validate(found)
