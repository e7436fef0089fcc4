"""Gates `load` and `gap`: the cross traffic that was requested arrived, and without pauses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from orchestrator.core.fields import Share
from orchestrator.core.units import rate_text, span_text
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import ArrivedLoad, MeasuredWindow

NAME = "load"
ORDER = 40
GAP_S = 1.0  # longest time without any received cross traffic of a load, beyond what it does by its nature
MOST_OFF = Limit(
    key="load",
    kind=Share | Literal["as-achieved"],
    default=0.05,
    help='Largest difference between achieved and requested cross traffic; "as-achieved" accepts any.',
)
GATES = (
    GateSpec(
        name="load",
        passes="the mean cross traffic that arrived is the requested load, by the capture at the receiver or by the "
        "counters of its network device; of a periodic source over whole periods",
        limit=MOST_OFF,
        remedy="Request less, or use more `streams`. Check the link rate of the inventory. Where nothing says what "
        "arrived, capture at the receiver, or send to a host on which nothing trains and collect `nic`. To accept any "
        "load: `validity: {load: as-achieved}`.",
    ),
    GateSpec(
        name="gap",
        passes="the cross traffic never paused",
        limit="1 s without a packet of it, and what a source pauses by its nature: a period, or between requests",
        remedy="Request less, or use more `streams`. Look at the sender's output.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for the mean of each load, and one for pauses in it.

    Loads were divided by the run's scale for a local testbed, and are told at full size, as they were asked for.
    """
    most_off = MOST_OFF.number(window.manifest.validity)
    planned = {made.source: made.planned_bps for made in window.generated}
    ends = Counter(load.source for load in window.loads)
    for load in window.loads:
        name = f"{load.source} from {load.src} to {load.end}"
        if math.isnan(load.achieved_bps):
            text = f"{name}: there is no whole capture at {load.end}, so the load that arrived is not known"
            text += f" ({load.unseen})" if load.unseen else ""
            begin, end = window.record.span_ns
            if load.period_s * 1e9 > end - begin:
                text = f"{name}: the window is shorter than its period of {span_text(load.period_s)}"
            yield verdict("load", None, text, measured=math.nan, limit=most_off, required=most_off is not None)
            continue
        due_bps = planned.get(load.source, math.nan) if ends[load.source] == 1 else math.nan
        yield _mean(load, f"{name}, {load.seen_by}" if load.seen_by else name, most_off, due_bps, window.manifest.scale)
        longest = GAP_S + load.pause_s
        steady = load.longest_gap_s <= longest
        text = f"{name}: longest pause {load.longest_gap_s:.3g} s"
        text += "" if steady else f", above {longest:.3g} s: it did not run throughout the window"
        yield verdict("gap", steady, text, measured=load.longest_gap_s, limit=longest)


def _mean(load: ArrivedLoad, name: str, most_off: float | None, due_bps: float, scale: int) -> Gate:
    """Judge the mean of a load; `due_bps`: of the flows that its schedule has in the window, NaN where it has none."""
    off = load.achieved_bps / load.requested_bps - 1 if load.requested_bps > 0 else math.inf
    passed = most_off is None or abs(off) <= most_off
    rates = (load.achieved_bps, load.requested_bps, 0.0 if math.isnan(due_bps) else due_bps)
    achieved, requested, due = (rate_text(float(f"{bps * scale:.5g}")) for bps in rates)
    text = f"{name}: {achieved} of {requested} arrived ({off:+.1%})"
    if most_off is None:
        text += "; taken as achieved"
    elif not passed:
        text += f", off by more than {most_off:.3g} of it"
        if abs(due_bps - load.requested_bps) > most_off * load.requested_bps:
            text += f"; the schedule that was drawn has {due} in this window, in each attempt: measure a longer window"
    return verdict("load", passed, text, measured=off, limit=most_off, required=most_off is not None)
