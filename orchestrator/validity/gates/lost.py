"""Gate `lost`: the window was measured to its end, and not given up on the way (`lost: again`)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "lost"
ORDER = 220
GATES = (
    GateSpec(
        name="lost",
        passes="the window was measured to its end; judged where `lost: again` ended it before",
        limit="none",
        remedy="It is measured again, within `attempts`. Where every try is lost, do what helps against its reason.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict on a window that was ended early, with the reason as it stood then."""
    if window.record.lost:
        text = f"lost before its end, and measured no further: {window.record.lost}"
        yield verdict("lost", False, text, measured=math.nan, limit=None)
