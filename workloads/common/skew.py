"""Skew of an all-to-all: which part of all messages each rank sends to each other one, as a router of tokens has it."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field, model_validator

from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Model
from orchestrator.core.paths.lookup import NamedFile
from orchestrator.core.units import Mistake

LARGEST_BYTES = 64 << 20  # of a file, beyond which nothing is read
LINES = "lines rank,peer,amount, such as 0,1,5000"

Shares = list[list[float]]


class Skew(Model):
    """Uneven parts of an all-to-all: recorded ones, or those of Zipf's law."""

    zipf: float | None = Field(default=None, ge=0, le=10)
    """Exponent s: the rank with the k-th most popular experts gets a part that goes with k^-s from every rank, rank 0
    the largest. 0 is even; of four ranks rank 0 gets 1.44 times the mean at 0.5, and 1.92 times at 1."""

    matrix: NamedFile | None = None
    """File of lines rank,peer,amount: bytes or tokens that a rank sends to a peer, of which only the relations count.
    Looked up beside the file that names it, then from the current folder."""

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
        amounts = _amounts(skew.matrix, world)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{skew.matrix}: cannot be read: {error}") from None
    total = math.fsum(amounts.values())
    if total <= 0:
        raise ConfigError(f"{skew.matrix}: nothing is sent", hint=LINES)
    return [[amounts[rank, peer] * world / total for peer in range(world)] for rank in range(world)]


def _amounts(path: Path, world: int) -> Mapping[tuple[int, int], float]:
    """Return what a file says that each rank sends to each peer; lines of the same two add up."""
    found: dict[tuple[int, int], float] = defaultdict(float)
    with path.open(encoding="utf-8") as file:
        text = file.read(LARGEST_BYTES)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith(("#", "rank,peer,")):
            continue
        try:
            rank, peer, amount = next(csv.reader([line]))
            pair, size = (int(rank), int(peer)), float(amount)
        except ValueError:
            raise ConfigError(f"{path}:{number}: not rank, peer and amount", hint=LINES) from None
        if not all(0 <= one < world for one in pair):
            raise ConfigError(f"{path}:{number}: {rank} or {peer} is none of {world} ranks", hint=f"0 to {world - 1}")
        if not (math.isfinite(size) and size >= 0):
            raise ConfigError(f"{path}:{number}: {amount} is no amount", hint="bytes or tokens, 0 or more")
        found[pair] += size
    return found


def busiest(parts: Sequence[Sequence[float]]) -> float:
    """Return what the busiest link has to carry in one direction, in messages; (n - 1) / n where all is even."""
    sent = [math.fsum(row) - row[rank] for rank, row in enumerate(parts)]
    received = [math.fsum(column) - column[rank] for rank, column in enumerate(zip(*parts, strict=True))]
    most: float = max(*sent, *received)
    return most
