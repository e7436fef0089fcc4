"""Gates `clock` and `clock-order`: stamps of different nodes can be held against each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.core.fields import Duration
from orchestrator.core.units import span_text
from orchestrator.parts.rows import Row
from orchestrator.remote import clocks
from orchestrator.store.manifests.records import Gate, Manifest
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "clock"
ORDER = 90
EARLY = 0.001  # largest share of packets that may arrive before they were sent
MOST_UNCERTAIN = Limit(key="clock", kind=Duration, default=0.001, help="Largest uncertainty of a node's clock offset.")
GATES = (
    GateSpec(
        name="clock",
        passes="the offset of each host's clock is known well enough",
        limit=MOST_UNCERTAIN,
        remedy="Run `orch` nearer to the hosts, on a quieter management network.",
    ),
    GateSpec(
        name="clock-order",
        passes="no packet was captured as received before it was captured as sent",
        limit="0.1 % of the packets that both ends captured",
        remedy="Use PTP, or chrony against one server, on all hosts.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A node's clock: how far off its stamps may be at the run's end, and by how much it moved meanwhile, in seconds.

    `uncertainty_s` includes what it moved by, and is NaN where it was not measured before. `kernel` names the clock.
    """

    uncertainty_s: float
    moved_s: float = 0.0
    kernel: str = ""


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each node, and one on the pair of nodes whose packets fare worst."""
    limit = float(MOST_UNCERTAIN.of(window.manifest.validity))
    nodes = clocks_of(window.manifest)
    for node, one in nodes.items():
        if math.isnan(one.uncertainty_s):
            yield verdict("clock", None, f"{node}: its clock was not measured", measured=math.nan, limit=limit)
            continue
        precision = f"known to {span_text(one.uncertainty_s)}" if one.uncertainty_s else "the controller's own"
        (text,) = clocks.doubts({node: one.uncertainty_s}, limit) or [f"{node}: its clock is {precision}"]
        if one.moved_s:
            text += f"; it drifted by {one.moved_s * 1e6:+.3g} us during the run"
        yield verdict("clock", one.uncertainty_s <= limit, text, measured=one.uncertainty_s, limit=limit)
    yield from _order(window.table("one_way").to_pylist(), nodes)


def clocks_of(manifest: Manifest) -> dict[str, Clock]:
    """Return every node's clock as a manifest has it, by node.

    Every stamp is moved by the offset from before the run: what the offset moved by since then is error as a whole.
    """
    found = {}
    for node, clock in manifest.clocks.items():
        kernel = manifest.kernels.nodes.get(node, node)
        if clock.before is None:
            found[node] = Clock(uncertainty_s=math.nan, kernel=kernel)
            continue
        last = clock.after or clock.before
        moved_ns = last.offset_ns - clock.before.offset_ns
        unsure_ns = abs(moved_ns) + max(last.uncertainty_ns, clock.before.uncertainty_ns)
        found[node] = Clock(uncertainty_s=unsure_ns / 1e9, moved_s=moved_ns / 1e9, kernel=kernel)
    return found


def _order(pairs: list[Row], nodes: Mapping[str, Clock]) -> Iterator[Gate]:
    """Judge by rows of the table `one_way` whether packets arrive after they were sent, as far as clocks are known.

    It has to pass where packets are early by more than both clocks may be off, so always where there is one clock.
    """

    def may_be_off(pair: Row) -> float:
        ends = [nodes[node] for node in (pair["src"], pair["dst"]) if node in nodes]
        if len(ends) < 2 or ends[0].kernel == ends[1].kernel:
            return 0.0
        return math.fsum(0.0 if math.isnan(end.uncertainty_s) else end.uncertainty_s for end in ends)

    judged = [(pair["low_s"] + may_be_off(pair), pair["low_s"], pair) for pair in pairs]
    if not judged:
        return
    beyond, _, pair = min(judged, key=lambda one: one[:2])
    share = pair["early"] / pair["packets"]
    ordered = share <= EARLY
    text = (
        f"{pair['src']} to {pair['dst']}: {pair['early']:,} of {pair['packets']:,} packets that both captured arrive "
    )
    text += f"before they were sent ({share:.2%}); they take {pair['p50_s'] * 1e6:.4g} us (median)"
    if not ordered and beyond >= 0:
        text += ": within what is known of the clocks, so their order between these nodes is not known"
    elif not ordered:
        text += f", by {-beyond * 1e6:.4g} us more than their clocks are said to be off"
    yield verdict("clock-order", ordered, text, measured=share, limit=EARLY, required=ordered or beyond < 0)
