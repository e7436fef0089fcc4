"""Gates `flows`, `launch` and `flow-sizes`: a generator of single flows did what it was asked."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.core.fields import Duration
from orchestrator.core.units import span_text
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import GeneratedFlows, MeasuredWindow

NAME = "flows"
ORDER = 60
LOST = 0.001  # largest share of flows that fail; none may be shed
LATEST = Limit(
    key="launch_late",
    kind=Duration,
    default=0.01,
    help="Latest that flows of generated cross traffic may start (99th percentile).",
)
GATES = (
    GateSpec(
        name="flows",
        passes="flows of a generator (`websearch`, `replay`, `checkpoint`, ...) neither failed nor were shed",
        limit="0.1 % failed, none shed",
        remedy="The message says whether too many flows were open or the sender had no processor time. Request less, "
        "or use a host with free processors.",
    ),
    GateSpec(
        name="launch",
        passes="flows of a generator started on time (99th percentile)",
        limit=LATEST,
        remedy="Free the sender's processors, or set `realtime` of the traffic.",
    ),
    GateSpec(
        name="flow-sizes",
        passes="sizes of the flows follow their distribution",
        limit="Kolmogorov-Smirnov distance, by the number of flows",
        remedy="Measure a longer window, which holds more flows.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give the verdicts for each generator; that of `flows` alone where it planned none."""
    latest = float(LATEST.of(window.manifest.validity))
    for made in window.generated:
        yield _lost(made)
        if not made.flows:
            continue
        late, late_p99, latest_of_all = map(span_text, (made.late_p50_s, made.late_p99_s, made.late_max_s))
        text = f"{made.source}: flows started {late} late (p50), {late_p99} (p99), {latest_of_all} at most"
        punctual = made.late_p99_s <= latest
        text += "" if punctual else f"; the p99 is above {span_text(latest)}"
        yield verdict("launch", punctual, text, measured=made.late_p99_s, limit=latest)
        if not math.isnan(off := made.size_distance):
            text = f"{made.source}: their sizes are off their distribution by {off:.3g} (Kolmogorov-Smirnov, at most "
            text += f"{made.size_limit:.3g})"
            yield verdict("flow-sizes", off <= made.size_limit, text, measured=off, limit=made.size_limit)


def _lost(made: GeneratedFlows) -> Gate:
    share = (made.shed + made.failed) / made.flows if made.flows else math.inf
    text = f"{made.source}: {made.flows} flows, {made.failed} failed, {made.shed} shed"
    why = f" ({made.shed - made.starved} because too many were open, {made.starved} for want of processor time)"
    text += why if made.shed else "" if made.flows else ": it planned none in the window"
    return verdict("flows", share <= LOST and not made.shed, text, measured=share, limit=LOST)
