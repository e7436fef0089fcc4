"""Whose clocks are one: hosts that run on one kernel share its clock, whatever pings between them say; pure."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.answers import ClockSample


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
