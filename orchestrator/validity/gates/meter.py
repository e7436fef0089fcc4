"""Gates `meter-in` and `meter-out`: what a meter counted at a port is what a capture saw there."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "meter"
ORDER = 210
MOST_OFF = 0.001
LIMIT = "0.1 %, and what may fall on either side of the window's ends"
GATES = (
    GateSpec(
        name="meter-in",
        passes="a meter and a capture at the same port agree on the bytes of frames that come in",
        limit=LIMIT,
        required=False,
        remedy="Look for packets that the capture lost.",
    ),
    GateSpec(
        name="meter-out",
        passes="a meter and a capture at the same port agree on the bytes of frames that leave",
        limit=LIMIT,
        required=False,
        remedy="What leaves is metered before the device's queue, and captured behind it: look for its drops, by the "
        "collector `qdisc`, and for packets that the capture lost.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a remark for each direction of a port that was both metered and captured."""
    for gate, direction in (("meter-in", "in"), ("meter-out", "out")):
        for port in window.metered:
            if port.direction != direction or not port.captured > 0 or math.isnan(port.metered):
                continue
            off, limit = port.metered / port.captured - 1, MOST_OFF + port.edges / port.captured
            name = f"{port.node}:{port.port} {direction}"
            text = f"{name}: metered {port.metered / 1e6:.5g} MB, captured {port.captured / 1e6:.5g} MB ({off:+.2%})"
            yield verdict(gate, abs(off) <= limit, text, measured=off, limit=limit, required=False)
