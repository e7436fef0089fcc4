"""Gate `datagrams`: an unresponsive source offered the load that was asked; what of it was lost is told."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.core.units import rate_text
from orchestrator.parts.protocols import end_name
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "datagrams"
ORDER = 200
COUNTERS = ("datagrams.offered_bytes", "datagrams.lost_bytes", "datagrams.seconds")
MOST_OFF = 0.05  # by which the load that datagrams offer may differ from what is asked
GATES = (
    GateSpec(
        name="datagrams",
        passes="a source of `udp` offered the load that was asked, by the numbers of its datagrams at the receiver "
        "(the message tells how many of them were lost)",
        limit="5 % of the load",
        remedy="Free the sender's processors, or request less.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each load whose receiver counted datagrams."""
    for load in window.record.loads:
        offered, lost, seconds = (window.growth(load.dst, counter, port=load.source) for counter in COUNTERS)
        if math.isnan(offered) or math.isnan(lost) or not seconds > 0:
            continue
        rate = offered * 8 / seconds
        off = rate / load.requested_bps - 1
        scale = window.manifest.scale
        asked, told = (rate_text(float(f"{bps * scale:.4g}")) for bps in (load.requested_bps, rate))
        name = f"{load.source} from {load.src} to {end_name(load.dst, load.rail)}"
        text = f"{name}: {told} of {asked} were offered ({off:+.1%})"
        text += f", of which {lost / offered if offered > 0 else 0.0:.2%} were lost"
        text += "" if abs(off) <= MOST_OFF else f": off by more than {MOST_OFF:.3g} of it"
        yield verdict("datagrams", abs(off) <= MOST_OFF, text, measured=off, limit=MOST_OFF)
