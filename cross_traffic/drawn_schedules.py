"""Specifications of schedules that senders draw by themselves, and the options that they have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationInfo

from cross_traffic import distributions
from cross_traffic.agents import flow_drawing
from cross_traffic.agents.flow_drawing import Arrivals, StreamSpec
from cross_traffic.distributions import Distribution
from cross_traffic.schedule_files import BurstShape
from orchestrator.core.errors import ConfigError
from orchestrator.core.paths import lookup
from orchestrator.core.units import Mistake

ARRIVALS: Mapping[Arrivals, str] = {
    "poisson": "Poisson, with sizes drawn until every two seconds carry the load, which so hardly varies beyond them",
    "compound-poisson": "a compound Poisson process, whose load varies as its flows come",
    "poisson-gaps": "nearly regular gaps",
}
COMPOUND_BLOCKS = 4  # over which the load of an unsteered schedule is looked at before ranks begin


def named_distribution(name: str, info: ValidationInfo, *, folder: Path = distributions.SIZES) -> str:
    """Return the name of a distribution of the folder, or the path of its file."""
    if name in distributions.known(folder):
        return name
    try:
        return lookup.looked_up(name, info)
    except Mistake as mistake:
        accepted = f"one of {', '.join(distributions.known(folder))}, or {mistake.accepted}"
        raise Mistake(f"there is no distribution {name!r}: {mistake.message}", accepted=accepted) from None


def stream_spec(
    distribution: Distribution,
    *,
    load_bps: float,
    mtu: int,
    ip: Literal[4, 6] = 4,
    seed: int | str,
    factor: float = 1.0,
    arrivals: Arrivals = "poisson",
    burst: BurstShape | None = None,
    duration_s: float | None = None,
    pool: bool = False,
    sink: int = 0,
    dilation: int = 1,
) -> StreamSpec:
    """Return the specification of a sender's schedule; ConfigError when no such schedule is possible.

    `load_bps` is layer-2 bit/s towards the sink, without FCS and preamble: payload, headers, opening and closing of
    connections (without the latter two when they come from a pool). `factor` multiplies the distribution's sizes,
    `dilation` the times of the random process itself.
    """
    made: StreamSpec = {
        "points": [list(point) for point in distribution.points],
        "factor": factor,
        "load_bps": load_bps,
        "mtu": mtu,
        "ip": ip,
        "flow_bytes": (flow_drawing.SEGMENT_HEADER_BYTES if pool else flow_drawing.FLOW_WIRE_BYTES)[ip],
        "arrivals": arrivals,
        "burst": None
        if burst is None
        else {"width_s": burst.width_s, "period_s": burst.period_s, "height": burst.height},
        "seed": seed,
        "duration_s": duration_s,
        "sink": sink,
    }
    if dilation != 1:
        made["dilation"] = dilation
    if not (math.isfinite(load_bps) and load_bps > 0):
        raise ConfigError(f"a load of {load_bps:g} bit/s cannot be scheduled")
    if burst is not None and arrivals == "compound-poisson":
        raise ConfigError("bursts carry the same bytes every period, which no compound Poisson process does")
    if burst is not None:
        if not 0 < burst.width_s < burst.period_s:
            raise ConfigError(f"a burst of {burst.width_s:g} s does not fit a period of {burst.period_s:g} s")
        if not 1 <= burst.height <= burst.period_s / burst.width_s * (1 + 1e-9):
            most = burst.period_s / burst.width_s
            raise ConfigError(
                f"a height of {burst.height:g} would put more than all bytes into the bursts (1 to {most:g})"
            )
    try:
        flow_drawing.process(made)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return made
