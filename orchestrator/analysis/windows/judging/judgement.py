"""How a judgement of a window is made."""

from __future__ import annotations

import math

from orchestrator.store.manifests.window_records import Gate


def gate(
    name: str, passed: bool | None, message: str, *, measured: float, limit: float | None, required: bool = True
) -> Gate:
    """A gate; a `measured` of NaN is not known."""
    return Gate(
        name=name,
        passed=passed,
        required=required,
        measured=None if math.isnan(measured) else measured,
        limit=limit,
        message=message,
    )
