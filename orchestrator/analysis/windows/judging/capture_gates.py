"""Whether the captures that figures rest on are whole, and how many packets they dropped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.analysis.traffic import trust
from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.window_records import Gate, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What a capture's tool said at its exit, over the whole run; None when it said nothing.

    `gap` says why no figure may be taken from it, and is empty for a whole one; `needed` whether figures of the window
    rest on it.
    """

    node: str
    port: str
    captured: int | None
    received: int | None
    dropped: int | None
    gap: str = ""
    needed: bool = False


def captures(planned: Iterable[trust.Planned], manifest: Manifest, window: Window) -> tuple[Capture, ...]:
    """Every capture that a run was to make, as its gates look at it."""
    measured_at = {node for job in manifest.jobs for node in job.nodes} | {load.dst for load in window.loads}
    found = []
    for one in planned:
        counts = one.counts or {}
        found.append(
            Capture(
                node=one.node,
                port=one.port,
                captured=counts.get("captured"),
                received=counts.get("received"),
                dropped=counts.get("dropped"),
                gap="" if one.state == "complete" else f"{one.state} ({one.why})",
                needed=one.state == "ended early" and one.node in measured_at,
            )
        )
    return tuple(found)


def judge_captures(captures: Sequence[Capture], most_dropped: float) -> Iterator[Gate]:
    """A gate for each capture that is not whole, and one for the share of packets that each dropped."""
    yield from _whole(captures)
    yield from _drops(captures, most_dropped)


def _whole(captures: Iterable[Capture]) -> Iterator[Gate]:
    for capture in captures:
        if capture.gap:
            text = f"capture at {capture.node}:{capture.port} {capture.gap}: no figure is taken from it"
            yield gate("capture", False, text, measured=math.nan, limit=None, required=capture.needed)


def _drops(captures: Iterable[Capture], limit: float) -> Iterator[Gate]:
    for capture in captures:
        if capture.captured is None or capture.received is None or capture.dropped is None:
            text = f"capture at {capture.node}:{capture.port} did not report its drops"
            yield gate("capture-drops", None, text, measured=math.nan, limit=limit, required=False)
            continue
        seen = max(capture.received, capture.captured + capture.dropped)
        share = capture.dropped / seen if seen else 0.0
        text = f"capture at {capture.node}:{capture.port} dropped {capture.dropped} of {seen} packets ({share:.2%})"
        text += f", above {limit:.2%}" if share > limit else ""
        yield gate("capture-drops", share <= limit, text, measured=share, limit=limit)
