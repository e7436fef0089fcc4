"""Gate `load-course`: the cross traffic kept to its schedule, and did not reach its mean by being off both ways."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from orchestrator.core.fields import Share
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "load-course"
ORDER = 50
MOST_OFF = Limit(
    key="load_course",
    kind=Share | Literal["ignore"],
    default=0.2,
    help='Largest departure of a load over time from its schedule, root mean square of its mean; "ignore" only notes '
    "it.",
)
GATES = (
    GateSpec(
        name="load-course",
        passes="the load followed its schedule throughout the window, not in its mean alone",
        limit=MOST_OFF,
        remedy="Find what else used the link. For a few large flows use a longer window.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each source at each receiver."""
    limit = MOST_OFF.number(window.manifest.validity)
    for one in window.courses:
        name = f"{one.source} to {one.dst}"
        if math.isnan(one.off):
            text = f"{name}: the window is too short to tell whether the load was what was scheduled throughout"
            yield verdict("load-course", None, text, measured=one.off, limit=limit, required=False)
            continue
        kept = limit is None or one.off <= limit
        text = f"{name}: in pieces of {one.piece_s:.3g} s the load is off its schedule's course by {one.off:.1%} (rms)"
        text += f"; it varies by {one.arrived:.1%}, the schedule by {one.scheduled:.1%}"
        text += "" if kept else f": more than {limit:.3g} of its mean"
        yield verdict("load-course", kept, text, measured=one.off, limit=limit, required=limit is not None)
