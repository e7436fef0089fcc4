"""Gates `hits`, `delay`, `marks`, `events`: conditions did what was asked, over the run and within windows."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.core.units import bytes_text, span_text
from orchestrator.store.manifests.records import Event, Gate
from orchestrator.validity.declaration import GateSpec, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "conditions"
ORDER = 120
HIT_SIGNIFICANCE = 4.0  # standard deviations that the hits of a random share may lie off; one run in 16,000 does
LEAST_HITS = 5.0  # expected ones, below which a share cannot be judged
HELD_SHARE = 0.05  # of the delay asked for, by which the median packet may be held longer or shorter, beside
HELD_S = 0.2e-3  # what a busy host needs to see to it
LATE_S = 0.5  # by which an event within a window may come late: verified changes on all nodes that take part
GATES = (
    GateSpec(
        name="hits",
        passes="a condition that loses or marks packets at random hit the requested share of them",
        limit="4 standard deviations of such a count",
        remedy="Something else removed the rule, or changed the traffic. Too few packets to judge is a remark.",
    ),
    GateSpec(
        name="delay",
        passes="a condition held packets for the requested time",
        limit="the median, 5 % of the time and 0.2 ms more or less",
        remedy="The process that delays had no processor time, or more packets came than it can hold.",
    ),
    GateSpec(
        name="marks",
        passes="packets at a port that marks at a threshold were ECN-capable",
        limit="1 packet",
        remedy="Senders or receivers did not negotiate ECN: see the socket option or the congestion control in use.",
    ),
    GateSpec(
        name="events",
        passes="what a condition was to do within a window came to pass at its times",
        limit="0.5 s late",
        remedy="Make the window longer than the event, or measure when the machine is idle.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each condition that hits packets at random, holds them up, or marks them at a port."""
    for one in window.manifest.hits:
        expected = one.seen * one.share
        limit = HIT_SIGNIFICANCE * math.sqrt(expected * (1 - one.share))
        enough, off = expected >= LEAST_HITS, abs(one.hit - expected)
        text = f"{one.name}: {one.hit} of {one.seen} packets of the run"
        text += f" ({one.hit / one.seen:.3%}, {one.share:.3%} requested)" if one.seen else ""
        if not enough:
            text += ": too few to judge the share"
        elif off > limit:
            text += f", off by more than {HIT_SIGNIFICANCE:g} standard deviations"
        passed = off <= limit if enough else None
        yield verdict("hits", passed, text, measured=one.hit, limit=expected, required=enough)
    for event in window.manifest.events:
        if event.window == window.record.name:
            yield _of_event(event, window.record.start_ns)
    for row in window.table("delays").to_pylist():
        held_s, requested_s, dropped = row["held_p50_s"], row["requested_s"], row["dropped"]
        text = f"packets to {row['node']} were held {span_text(held_s)} (99 %: at most {span_text(row['held_p99_s'])})"
        text += f", {span_text(requested_s)} requested"
        if dropped:
            text += f"; {dropped} of {row['packets'] + dropped} were dropped: more came than can be held"
        passed = not dropped and abs(held_s - requested_s) <= HELD_S + HELD_SHARE * requested_s
        yield verdict("delay", passed, text, measured=held_s, limit=requested_s)
    for row in window.table("marks").to_pylist():
        capable, marked, where = row["capable"], row["marked"], f"{row['node']}:{row['device']}"
        text = f"{where}: {marked} of the run's {capable} ECN-capable packets found more than"
        text += f" {bytes_text(row['threshold_bytes'])} in the queue and were marked"
        if row["unmarkable"]:
            text += f"; {row['unmarkable']} others found as much and were not capable"
        passed = capable > 0 if row["packets"] else None
        yield verdict("marks", passed, text, measured=capable, limit=1, required=passed is not None)


def _of_event(event: Event, start_ns: int) -> Gate:
    """Return the verdict on an event; the window's first iteration may have begun before its times were set."""
    if event.began_ns is None or event.ended_ns is None:
        text = f"{event.event} did not come to pass: the window was over before {event.begin_s:g} s"
        return verdict("events", False, text, measured=math.nan, limit=LATE_S)
    began_s, ended_s = ((ns - start_ns) / 1e9 for ns in (event.began_ns, event.ended_ns))
    late_s = max(abs(began_s - event.begin_s), abs(ended_s - event.end_s))
    text = f"{event.event} from {began_s:.2f} to {ended_s:.2f} s ({event.begin_s:g} to {event.end_s:g} s requested)"
    return verdict("events", late_s <= LATE_S, text, measured=late_s, limit=LATE_S)
