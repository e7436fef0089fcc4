"""Gate `timeouts`: iterations did not wait for retransmission time-outs of TCP.

A real network has time-outs, and they are part of what is measured there: at full size they are a remark. A local
testbed divides sizes by its scale, so that a flow has too few packets for later ones to show that one was lost: what a
flow at full size repairs within a round trip ends there in a time-out (0.2 s and more, longer than an iteration may
be). So of a scaled run no more than the limit may be lost to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from orchestrator.core.fields import Share
from orchestrator.parts.collectors import tcp
from orchestrator.parts.registry import COLLECTOR
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow, TimeoutWaits

NAME = "timeouts"
ORDER = 170
COUNTERS = ("tcp.timeouts",)
SHOWN = 3  # connections that are named
MOST_LOST = Limit(
    key="timeouts",
    kind=Share | Literal["ignore"],
    default=0.01,
    help="Largest share of a window's time for which iterations of a scaled run may wait for TCP's retransmission "
    'time-outs, which its small flows have too many of; at full size, and with "ignore", they are only noted.',
)
GATES = (
    GateSpec(
        name="timeouts",
        passes="iterations did not wait for retransmission time-outs of TCP",
        limit=MOST_LOST,
        remedy="The message says whose they were. Request less load, use `dilation`, a smaller `scale` or longer "
        "queues (`queue`). The collector `tcp` counts them.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each job; of a run at full size without the collector `tcp` none."""
    limit = MOST_LOST.number(window.manifest.validity)
    scaled = window.manifest.scale > 1
    counted = [window.growth(node, COUNTERS[0]) for node in window.manifest.nodes]
    everywhere = math.fsum(count for count in counted if not math.isnan(count))
    for one in window.timeout_waits:
        judged = scaled and limit is not None
        kept = one.lost <= limit if scaled and limit is not None else one.waited == 0
        text = _text(one) + (f"; kernels counted {everywhere:.0f}" if everywhere else "")
        if judged and not kept:
            text += f": more than {limit:.3g} of it, where small flows have too many of them"
        yield verdict("timeouts", kept, text, measured=one.lost, limit=limit, required=judged)
    if scaled and not window.timeout_waits and not window.manifest.nodes_running(COLLECTOR + tcp.NAME):
        text = "not known whether iterations waited for retransmission time-outs: add `tcp` to `collect`"
        yield verdict("timeouts", None, text, measured=math.nan, limit=limit, required=False)


def _text(one: TimeoutWaits) -> str:
    if not one.whose:
        return f"job {one.job}: no connection was seen to time out"
    text = f"job {one.job}: {one.waited} of {one.iterations} iterations waited for time-outs of {one.least_s:.2g} s or"
    text += f" more ({one.lost:.1%} of their time); {'' if one.exact else 'at least '}{one.timeouts} time-outs were its"
    text += f" own; {', '.join(f'{whose}: {count}' for whose, count in list(one.whose.items())[:SHOWN])}"
    more = len(one.whose) - SHOWN
    return text + (f" and {more} more" if more > 0 else "")
