"""Whether stamps of different nodes can be held against each other: how well clocks are known, and what packets say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.core.units import span_text
from orchestrator.remote import clocks
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.window_records import Gate

EARLY = 0.001  # largest share of packets that may arrive before they were sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A node's clock: how far off its stamps may be at the run's end, and by how much it moved meanwhile, in seconds.

    `uncertainty_s` includes what it moved by, and is NaN where it was not measured before. `kernel` names the clock.
    """

    node: str
    uncertainty_s: float
    moved_s: float = 0.0
    kernel: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneWay:
    """Packets of one node that another captured too: `early` ones arrived before they were sent.

    All but EARLY of them took at least `low_s` seconds.
    """

    src: str
    dst: str
    packets: int
    early: int
    low_s: float
    p50_s: float


def known(manifest: Manifest) -> tuple[Clock, ...]:
    """Every node's clock as a manifest has it.

    Every stamp is moved by the offset from before the run: what the offset moved by since then is error as a whole.
    """
    found = []
    for node, clock in manifest.clocks.items():
        kernel = manifest.kernels.nodes.get(node, node)
        if clock.before is None:
            found.append(Clock(node=node, uncertainty_s=math.nan, kernel=kernel))
            continue
        last = clock.after or clock.before
        moved_ns = last.offset_ns - clock.before.offset_ns
        unsure_ns = abs(moved_ns) + max(last.uncertainty_ns, clock.before.uncertainty_ns)
        found.append(Clock(node=node, uncertainty_s=unsure_ns / 1e9, moved_s=moved_ns / 1e9, kernel=kernel))
    return tuple(found)


def judge_clocks(nodes: Iterable[Clock], limit: float) -> Iterator[Gate]:
    """A gate for each node."""
    for one in nodes:
        if math.isnan(one.uncertainty_s):
            yield gate("clock", None, f"{one.node}: its clock was not measured", measured=math.nan, limit=limit)
            continue
        precision = f"known to {span_text(one.uncertainty_s)}" if one.uncertainty_s else "the controller's own"
        (text,) = clocks.doubts({one.node: one.uncertainty_s}, limit) or [f"{one.node}: its clock is {precision}"]
        if one.moved_s:
            text += f"; it drifted by {one.moved_s * 1e6:+.3g} us during the run"
        yield gate("clock", one.uncertainty_s <= limit, text, measured=one.uncertainty_s, limit=limit)


def judge_order(pairs: Iterable[OneWay], nodes: Iterable[Clock]) -> Iterator[Gate]:
    """One gate on the pair of nodes that fares worst: packets arrive after they were sent, as far as clocks are known.

    It has to pass where packets are early by more than both clocks may be off, so always where there is one clock.
    """
    clock = {one.node: one for one in nodes}

    def may_be_off(pair: OneWay) -> float:
        ends = [clock[node] for node in (pair.src, pair.dst) if node in clock]
        if len(ends) < 2 or ends[0].kernel == ends[1].kernel:
            return 0.0
        return math.fsum(0.0 if math.isnan(end.uncertainty_s) else end.uncertainty_s for end in ends)

    judged = [(pair.low_s + may_be_off(pair), pair.low_s, pair) for pair in pairs]
    if not judged:
        return
    beyond, _, pair = min(judged, key=lambda one: one[:2])
    share = pair.early / pair.packets
    ordered = share <= EARLY
    text = f"{pair.src} to {pair.dst}: {pair.early:,} of {pair.packets:,} packets that both captured arrive before "
    text += f"they were sent ({share:.2%}); they take {pair.p50_s * 1e6:.4g} us (median)"
    if not ordered and beyond >= 0:
        text += ": within what is known of the clocks, so their order between these nodes is not known"
    elif not ordered:
        text += f", by {-beyond * 1e6:.4g} us more than their clocks are said to be off"
    yield gate("clock-order", ordered, text, measured=share, limit=EARLY, required=ordered or beyond < 0)
