"""What a training sends by a model, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """What a rank sends in an iteration by the model of the paper named in `source`, in bytes, already scaled.

    `pairs`, where it is given, says which node sends how much of it to which: (from, to, bytes of all its ranks).
    """

    bytes_per_iteration: float
    parameters: int  # moved, scaled
    source: str
    pairs: tuple[tuple[str, str, float], ...] = ()
