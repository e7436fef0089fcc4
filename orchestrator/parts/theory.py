"""What a training sends by a model, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Collective after collective takes the next rail; all rails carry as much; the first one carries all.
Spread = Literal["", "turns", "even", "first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """What a rank sends in an iteration by the model of the paper named in `source`, in bytes, already scaled.

    `pairs`, where it is given, says which node sends how much of it to which: (from, to, bytes of all its ranks).
    `spread` says how that shares the rails of a host; empty where nothing is known of it.
    """

    bytes_per_iteration: float
    parameters: int  # moved, scaled
    source: str
    pairs: tuple[tuple[str, str, float], ...] = ()
    spread: Spread = ""
