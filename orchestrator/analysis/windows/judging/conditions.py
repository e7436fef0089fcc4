"""Whether conditions that act on single packets did what was asked of them, judged over the whole run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.core.units import span_text
from orchestrator.store.manifests.window_records import Gate

HIT_SIGNIFICANCE = 4.0  # standard deviations that the hits of a random share may lie off; one run in 16,000 does
LEAST_HITS = 5.0  # expected ones, below which a share cannot be judged
HELD_SHARE = 0.05  # of the delay asked for, by which the median packet may be held longer or shorter, beside
HELD_S = 0.2e-3  # what a busy host needs to see to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How long a condition held packets on their way to a node, in seconds, over the whole run."""

    node: str
    requested_s: float
    packets: int
    dropped: int
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """How many packets a condition that hits them at random saw and hit, over the whole run; `share` was asked for."""

    name: str
    share: float
    seen: int
    hit: int


def judge_hits(conditions: Iterable[Hits]) -> Iterator[Gate]:
    for one in conditions:
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
        yield gate("hits", passed, text, measured=one.hit, limit=expected, required=enough)


def judge_held(conditions: Iterable[Held]) -> Iterator[Gate]:
    for one in conditions:
        text = f"packets to {one.node} were held {span_text(one.p50_s)} (99 %: at most {span_text(one.p99_s)})"
        text += f", {span_text(one.requested_s)} requested"
        if one.dropped:
            text += f"; {one.dropped} of {one.packets + one.dropped} were dropped: more came than can be held"
        passed = not one.dropped and abs(one.p50_s - one.requested_s) <= HELD_S + HELD_SHARE * one.requested_s
        yield gate("delay", passed, text, measured=one.p50_s, limit=one.requested_s)
