"""Numbers of records: in which bounds they are read, and how one that is not known is written."""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import Meta

# A manifest may be somebody else's: whole numbers fit the tables, and sums and products of others are numbers still.
Whole = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Real = Annotated[float, Meta(gt=-1e300, lt=1e300)]


def known(value: float | None) -> float:
    """The figure; NaN where it is not known."""
    return math.nan if value is None else value
