"""Gates `load-course`, `load-bursts` and `flow-gaps`: cross traffic, its bursts and its flows came when due."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from orchestrator.core.fields import Share
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import LoadCourse, MeasuredWindow

NAME = "load-course"
ORDER = 50
GAP_DISTANCE = 0.1  # largest Kolmogorov-Smirnov distance of the gaps between flows from the planned ones
BURSTS_OFF = 0.5  # largest distance of bursts from those that were due; without any bursts it is 1
MOST_OFF = Limit(
    key="load_course",
    kind=Share | Literal["ignore"],
    default=0.05,
    help="Largest departure of a load from its schedule over any span of a window, as a share of its mean, beyond "
    'a tenth of a second of it and two of the largest flows; "ignore" only notes it.',
)
GATES = (
    GateSpec(
        name="load-course",
        passes="the load followed its schedule in every span of the window, not in its mean alone",
        limit=MOST_OFF,
        remedy="Find what else used the link or the sender's processors in the span that the message names. For a few "
        "large flows use a longer window.",
    ),
    GateSpec(
        name="load-bursts",
        passes="the bursts of the cross traffic started and arrived when they were due, and as high",
        limit="half of what bursts have above a constant rate (a remark with `load_course: ignore`)",
        remedy="Free the sender's processors, or set `realtime` of the traffic. Use wider bursts, or a smaller scale.",
    ),
    GateSpec(
        name="flow-gaps",
        passes="gaps between flows of a generator follow the schedule",
        limit="Kolmogorov-Smirnov distance of 0.1 (a remark with `load_course: ignore`)",
        remedy="Free the sender's processors, or set `realtime` of the traffic.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each source at each receiver, one for the bursts of each that has any, and one a generator."""
    limit = MOST_OFF.number(window.manifest.validity)
    for one in window.courses:
        yield _course(one, limit)
        if one.bursts:
            yield _bursts(one, required=limit is not None)
    for made in window.generated:
        if made.flows and not math.isnan(off := made.gap_distance):
            text = f"{made.source}: the gaps between its flows are off the planned ones by {off:.3g}"
            text += f" (Kolmogorov-Smirnov, at most {GAP_DISTANCE:.3g})"
            kept = off <= GAP_DISTANCE
            yield verdict("flow-gaps", kept, text, measured=off, limit=GAP_DISTANCE, required=limit is not None)


def _course(one: LoadCourse, limit: float | None) -> Gate:
    name = f"{one.source} to {one.dst}"
    if math.isnan(one.off):
        text = f"{name}: the window is too short to tell whether the load was what was scheduled throughout"
        return verdict("load-course", None, text, measured=one.off, limit=limit, required=False)
    kept = limit is None or one.off <= limit
    text = f"{name}: in no span did more than the worth of {one.swing_s:.2g} s of the load come early or late"
    if one.off > 0:
        text = f"{name}: from {one.begin_s:.3g} to {one.end_s:.3g} s of the window {one.arrived:.1%} of the mean load"
        text += f" arrived, where {one.due:.1%} was due"
    text += "" if kept else f": off by more than {limit:.3g} of it and the worth of {one.grace_s:.2g} s"
    return verdict("load-course", kept, text, measured=one.off, limit=limit, required=limit is not None)


def _bursts(one: LoadCourse, *, required: bool) -> Gate:
    known = {"started": one.bursts_started_off, "arrived": one.bursts_arrived_off}
    known = {what: off for what, off in known.items() if not math.isnan(off)}
    name = f"{one.source} to {one.dst}: its bursts"
    if not known:
        text = (
            f"{name} cannot be told from a constant rate: capture at {one.dst}, or use wider bursts or a smaller load"
        )
        return verdict("load-bursts", None, text, measured=math.nan, limit=BURSTS_OFF, required=False)
    off = max(known.values())
    offs = " and ".join(f"{what} {off:.0%}" for what, off in known.items())
    text = f"{name} {offs} off those that were due (a constant rate: 100%)"
    text += "" if off <= BURSTS_OFF else f", more than {BURSTS_OFF:.0%}"
    return verdict("load-bursts", off <= BURSTS_OFF, text, measured=off, limit=BURSTS_OFF, required=required)
