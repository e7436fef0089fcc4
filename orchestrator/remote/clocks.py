"""Whose clocks are one: hosts that run on one kernel share its clock, whatever pings between them say; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from orchestrator.core.units import span_text
from orchestrator.remote.answers import ClockSample


def doubts(uncertainties_s: Mapping[str, float], limit_s: float) -> list[str]:
    """A sentence for each node whose clock is not known well enough, with what to do."""
    return [
        f"{node}: its clock is known to {span_text(uncertainty)}, not to {span_text(limit_s)}: half the round trip"
        f" of its connection. Run orch nearer to it, or allow it with `validity: {{clock: {allowed(uncertainty)}}}`"
        for node, uncertainty in uncertainties_s.items()
        if uncertainty > limit_s
    ]


def allowed(uncertainty_s: float) -> str:
    """A limit that this uncertainty keeps to with a fifth to spare, as it is written in an experiment."""
    return f"{math.ceil(uncertainty_s * 1.2e3)}ms"


def agreed(samples: Mapping[str, ClockSample], kernels: Mapping[str, str], own: str) -> dict[str, ClockSample]:
    """The clock of every node: `kernels` says which kernel each runs on, `own` which one the controller does.

    Of the controller's own kernel the offset is exactly 0. Nodes that share another kernel share one offset, that of
    the sample among theirs which is known best, so that between them it is exactly 0 too.
    """
    best: dict[str, ClockSample] = {own: ClockSample(0, 0)}
    for node, sample in samples.items():
        known = best.setdefault(kernels[node], sample)
        if sample.uncertainty_ns < known.uncertainty_ns:
            best[kernels[node]] = sample
    return {node: best[kernels[node]] for node in samples}
