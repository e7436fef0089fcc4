"""One judgement of a window, and how it is made."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One judgement: `passed` is None where it could not be made; a `required` gate must pass for a window to be valid.

    `measured` and `limit` are in the unit that the message says.
    """

    name: str
    passed: bool | None
    required: bool
    measured: float | None
    limit: float | None
    message: str

    def as_data(self) -> dict[str, Any]:
        """For JSON; what is not a finite number becomes null."""
        data = asdict(self)
        for key in ("measured", "limit"):
            if data[key] is not None and not math.isfinite(data[key]):
                data[key] = None
        return data


def gate(
    name: str, passed: bool | None, message: str, *, measured: float, limit: float | None, required: bool = True
) -> Gate:
    """A gate; a `measured` of NaN is not known."""
    return Gate(
        name=name, passed=passed, required=required, measured=None if math.isnan(measured) else measured, limit=limit,
        message=message,
    )  # fmt: skip
