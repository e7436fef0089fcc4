"""Gates `capture` and `capture-drops`: captures that figures rest on are whole, and lost few packets."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.core.fields import Share
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "captures"
ORDER = 70
MOST_DROPPED = Limit(
    key="capture_drops", kind=Share, default=0.0001, help="Largest share of packets that a capture may have dropped."
)
GATES = (
    GateSpec(
        name="capture",
        passes="a capture did not end early",
        limit="none",
        remedy="Look at the output of tcpdump or of the meter, and at free space under `work:`.",
    ),
    GateSpec(
        name="capture-drops",
        passes="tcpdump lost no packets, and a meter's table was never full",
        limit=MOST_DROPPED,
        remedy="Set `work:` to a faster local disk, or name fewer `hosts` of `tcpdump`; let a `meter` "
        "empty its table more often (`every`).",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each capture that is not whole, then one for the share of packets that each dropped."""
    for capture in window.captures:
        if capture.gap:
            text = f"capture at {capture.node}:{capture.port} {capture.gap}: no figure is taken from it"
            yield verdict("capture", False, text, measured=math.nan, limit=None, required=capture.needed)
    limit = float(MOST_DROPPED.of(window.manifest.validity))
    for capture in window.captures:
        if capture.captured is None or capture.received is None or capture.dropped is None:
            text = f"capture at {capture.node}:{capture.port} did not report its drops"
            yield verdict("capture-drops", None, text, measured=math.nan, limit=limit, required=False)
            continue
        seen = max(capture.received, capture.captured + capture.dropped)
        share = capture.dropped / seen if seen else 0.0
        text = f"capture at {capture.node}:{capture.port} dropped {capture.dropped} of {seen} packets ({share:.2%})"
        text += f", above {limit:.2%}" if share > limit else ""
        yield verdict("capture-drops", share <= limit, text, measured=share, limit=limit)
