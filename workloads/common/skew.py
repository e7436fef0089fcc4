"""Skew of an all-to-all: which part of all messages each rank sends to each other one, as a router of tokens has it."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, model_validator

from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Model
from orchestrator.core.paths.lookup import NamedFile
from orchestrator.core.units import Mistake

MOST_RANKS = 4096
LARGEST_BYTES = 64 << 20  # of a file, beyond which nothing is read

Shares = list[list[float]]


class Skew(Model):
    """Uneven parts of an all-to-all: recorded ones, or those of Zipf's law."""

    zipf: float | None = Field(default=None, ge=0, le=10)
    """Exponent s: the rank with the k-th most popular experts gets a part that goes with k^-s from every rank, rank 0
    the largest. 0 is even; of four ranks rank 0 gets 1.44 times the mean at 0.5, and 1.92 times at 1."""

    matrix: NamedFile | None = None
    """File with a line for each sending rank and a column for each receiving one: bytes or tokens, of which only the
    relations count. Looked up beside the file that names it, then from the current folder."""

    @model_validator(mode="after")
    def _one_way(self) -> Skew:
        if (self.zipf is None) == (self.matrix is None):
            raise Mistake("does not say once how uneven it is", accepted="zipf: 0.5, or matrix: routing.csv")
        return self


def parts_of(skew: Skew | None, world: int) -> Shares | None:
    """Return what each rank sends to each one, itself too, in messages: they add up to one a rank on average.

    None where nothing says that they are uneven. ConfigError tells what is wrong with a file.
    """
    if skew is None:
        return None
    if skew.matrix is None:
        weights = [(place + 1) ** -(skew.zipf or 0.0) for place in range(world)]
        return [[weight / math.fsum(weights) for weight in weights] for _ in range(world)]
    try:
        rows = _rows(skew.matrix)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{skew.matrix}: cannot be read: {error}") from None
    if len(rows) != world or any(len(row) != world for row in rows):
        wide = sorted({len(row) for row in rows})
        raise ConfigError(
            f"{skew.matrix}: {len(rows)} lines of {', '.join(map(str, wide))} numbers are not those of {world} ranks",
            hint=f"{world} lines of {world} numbers",
        )
    total = math.fsum(number for row in rows for number in row)
    if total <= 0:
        raise ConfigError(f"{skew.matrix}: nothing is sent", hint="numbers above 0")
    return [[number * world / total for number in row] for row in rows]


def _rows(path: Path) -> list[list[float]]:
    with path.open(encoding="utf-8") as file:
        text = file.read(LARGEST_BYTES)
    rows: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            row = [float(cell) for cell in next(csv.reader([line]))]
        except ValueError:
            raise ConfigError(f"{path}:{number}: not numbers alone", hint="numbers, with commas between") from None
        if len(row) > MOST_RANKS or len(rows) >= MOST_RANKS:
            raise ConfigError(f"{path}:{number}: more than {MOST_RANKS} ranks")
        if not all(math.isfinite(cell) and cell >= 0 for cell in row):
            raise ConfigError(f"{path}:{number}: a number below 0, or none", hint="bytes or tokens, 0 or more")
        rows.append(row)
    return rows


def busiest(parts: Sequence[Sequence[float]]) -> float:
    """Return what the busiest link has to carry in one direction, in messages; (n - 1) / n where all is even."""
    sent = [math.fsum(row) - row[rank] for rank, row in enumerate(parts)]
    received = [math.fsum(column) - column[rank] for rank, column in enumerate(zip(*parts, strict=True))]
    most: float = max(*sent, *received)
    return most
