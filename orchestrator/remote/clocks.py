"""Offsets of the nodes' clocks and their uncertainty; nodes on one kernel share a clock. Pure functions.

Hosts that run on one kernel share its clock, whatever pings between them say. Of others the offset is that of the ping
with the shortest round trip: what a ping waits for on its way shows as an offset of half as much (Mills, RFC 5905,
section 10). Synchronisation daemons have figures of their own, which stand beside it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from orchestrator.core.units import span_text

CHRONY_FIELDS = 14  # of a line of `chronyc -c tracking`


@dataclass(frozen=True, slots=True)
class ClockSample:
    """Controller's clock minus the node's, known to within `uncertainty_ns` either way."""

    offset_ns: int
    uncertainty_ns: int


def said(facts: Mapping[str, object]) -> dict[str, int]:
    """Return bounds of a node's clock error, in nanoseconds, by its own synchronisation, where it has one.

    `chrony_ns`: how far the clock may be off true time at most, by its own bound: offset, half the root delay, and root
    dispersion (chronyc(1), `tracking`). `ptp_ns`: how far ptp4l last saw it from its master (pmc(8)).
    """
    found = {}
    fields = str(facts.get("clock") or "").split(",")
    if len(fields) == CHRONY_FIELDS and fields[-1] != "Not synchronised":
        with suppress(ValueError):
            system_s, delay_s, dispersion_s = (float(fields[place]) for place in (4, 10, 11))
            found["chrony_ns"] = round((abs(system_s) + delay_s / 2 + dispersion_s) * 1e9)
    if match := re.search(r"offsetFromMaster\s+(-?\d+(?:\.\d+)?)", str(facts.get("ptp") or "")):
        found["ptp_ns"] = round(abs(float(match[1])))
    return found


def doubts(uncertainties_s: Mapping[str, float], limit_s: float) -> list[str]:
    """Return a warning for each node whose clock is not known well enough, with a remedy."""
    return [
        f"{node}: its clock is known to {span_text(uncertainty)}, not to {span_text(limit_s)}: half the round trip"
        f" of its connection. Run orch nearer to it, or allow it with `validity: {{clock: {allowed(uncertainty)}}}`"
        for node, uncertainty in uncertainties_s.items()
        if uncertainty > limit_s
    ]


def allowed(uncertainty_s: float) -> str:
    """Return a limit a fifth above this uncertainty, as it is written in an experiment."""
    return f"{math.ceil(uncertainty_s * 1.2e3)}ms"


def asked(kernels: Mapping[str, str], own: str) -> dict[str, str]:
    """Return the node whose clock is asked, by kernel: one for each kernel that is not the controller's own."""
    found: dict[str, str] = {}
    for node, kernel in sorted(kernels.items()):
        if kernel != own:
            found.setdefault(kernel, node)
    return found


def agreed(samples: Mapping[str, ClockSample], kernels: Mapping[str, str], own: str) -> dict[str, ClockSample]:
    """Return the clock of every node, from `samples` by kernel and `kernels` by node; `own` is the controller's kernel.

    Of the controller's own kernel the offset is exactly 0. Nodes that share another kernel share its one offset, so
    that between them it is exactly 0 too. A node whose kernel did not answer is left out.
    """
    known = {**samples, own: ClockSample(0, 0)}
    return {node: known[kernel] for node, kernel in kernels.items() if kernel in known}


def better(one: ClockSample | None, other: ClockSample) -> ClockSample:
    """Return the sample with the shorter round trip; the earlier one of equals."""
    return other if one is None or other.uncertainty_ns < one.uncertainty_ns else one
