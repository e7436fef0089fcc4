"""Whether the cross traffic that was requested arrived, and without pauses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.core.units import rate_text
from orchestrator.parts.protocols import end_name
from orchestrator.store.manifests.window_records import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Cross traffic from one host to another over a rail, layer-2 bit/s; NaN where nothing at `dst` says what arrived.

    By the counters of a network device several sources are one load, with the names of all in `source` and in `src`.
    `seen_by` says in a few words what it was counted by, where that is no capture, and `unseen` why it is not known.
    """

    source: str
    src: str
    dst: str
    requested_bps: float
    achieved_bps: float
    longest_gap_s: float
    rail: int = 0
    seen_by: str = ""
    unseen: str = ""

    @property
    def end(self) -> str:
        """Where it arrives, for people."""
        return end_name(self.dst, self.rail)


def judge_loads(
    loads: Iterable[Load], most_off: float | None, longest_gap_s: float | None, *, scale: int = 1
) -> Iterator[Gate]:
    """A gate for the mean of each load, and one for pauses in it; a `most_off` of None takes it as achieved.

    Loads were divided by `scale` for a local testbed, and are told at full size, as they were asked for.
    """
    for load in loads:
        name = f"{load.source} from {load.src} to {load.end}"
        if math.isnan(load.achieved_bps):
            text = f"{name}: there is no whole capture at {load.end}, so the load that arrived is not known"
            text += f" ({load.unseen})" if load.unseen else ""
            yield gate("load", None, text, measured=math.nan, limit=most_off, required=most_off is not None)
            continue
        yield _mean(load, f"{name}, {load.seen_by}" if load.seen_by else name, most_off, scale)
        if longest_gap_s is not None:
            steady = load.longest_gap_s <= longest_gap_s
            text = f"{name}: longest pause {load.longest_gap_s:.3g} s"
            text += "" if steady else f", above {longest_gap_s:.3g} s: it did not run throughout the window"
            yield gate("gap", steady, text, measured=load.longest_gap_s, limit=longest_gap_s)


def _mean(load: Load, name: str, most_off: float | None, scale: int) -> Gate:
    off = load.achieved_bps / load.requested_bps - 1 if load.requested_bps > 0 else math.inf
    passed = most_off is None or abs(off) <= most_off
    achieved, requested = (rate_text(float(f"{bps * scale:.5g}")) for bps in (load.achieved_bps, load.requested_bps))
    text = f"{name}: {achieved} of {requested} arrived ({off:+.1%})"
    if most_off is None:
        text += "; taken as achieved"
    elif not passed:
        text += f", off by more than {most_off:.3g} of it"
    return gate("load", passed, text, measured=off, limit=most_off, required=most_off is not None)
