"""Whether the captures that figures rest on are whole, and how many packets they dropped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.analysis.windows.judgement import gate
from orchestrator.store.window_records import Gate


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
            text = f"capture at {capture.node}:{capture.port} did not say what it dropped"
            yield gate("capture-drops", None, text, measured=math.nan, limit=limit, required=False)
            continue
        seen = max(capture.received, capture.captured + capture.dropped)
        share = capture.dropped / seen if seen else 0.0
        text = f"capture at {capture.node}:{capture.port} dropped {capture.dropped} of {seen} packets ({share:.2%})"
        text += f", above {limit:.2%}" if share > limit else ""
        yield gate("capture-drops", share <= limit, text, measured=share, limit=limit)
