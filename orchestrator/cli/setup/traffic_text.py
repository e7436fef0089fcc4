"""What the `orch traffic` commands print of schedules and of senders' logs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.core.units import duration_text, span_text

if TYPE_CHECKING:
    from cross_traffic.agents.flow_drawing import StreamSpec
    from cross_traffic.schedule_files import BurstShape, Tally
    from orchestrator.analysis.windows.generated_flows import FlowLog


def headline(made: StreamSpec) -> str:
    """A schedule in a line: its load, bursts, arrivals and seed."""
    burst = made["burst"]
    shape = (
        "consistent"
        if burst is None
        else "{height:g} times the mean for {width_s:g} s every {period_s:g} s".format(**burst)
    )
    return f"{made['load_bps'] / 1e9:.6g} Gbit/s, {shape}, {made['arrivals']} arrivals, seed {made['seed']}"


def tally(counted: Tally, made: StreamSpec, *, seconds: float) -> str:
    """What a schedule of so many seconds amounts to, a figure a line."""
    load, requested = counted.load_bps(seconds), made["load_bps"]
    lines = [
        headline(made),
        f"flows          {counted.flows:,} in {seconds:g} s, {counted.flows / seconds:.5g} a second",
        f"load           {load / 1e9:.6g} Gbit/s on the wire ({load / requested - 1:+.3%} of the requested)",
        f"payload        {counted.payload:,} bytes; {counted.payload / max(1, counted.flows):,.0f} a flow, "
        f"{counted.largest:,} at most",
        f"busiest 1 ms   {counted.busiest_step * 8e3 / 1e9:.5g} Gbit/s start in it",
    ]
    if counted.burst is not None:
        lines.append("burst profile  " + _profile(counted.profile(), counted.burst))
    return "\n".join(lines)


def _profile(profile: Sequence[float], burst: BurstShape) -> str:
    """How many times the mean is sent in the burst, and in the parts of the rest of its period."""
    height, *rest = (f"{value:.2f}" for value in profile) if profile else ("nothing",)
    return f"{height} times the mean for {duration_text(burst.width_s)}, then {' '.join(rest)}"


def sent(log: FlowLog) -> str:
    """What a sender logged: how much, how late, how long and how near to what was planned, a figure a line."""
    late, late_p99, latest = map(span_text, log.late_s)
    took, took_p99 = map(span_text, log.completion_s[:2])
    lines = [
        f"flows          {log.flows:,} in {log.seconds:.6g} s; " + (_counts(log.errors) or "all acknowledged"),
        f"load           {log.planned_bps / 1e9:.6g} Gbit/s planned on the wire"
        + ("" if math.isnan(log.asked_bps) else f", {log.asked_bps / 1e9:.6g} requested"),
        f"acknowledged   {log.acknowledged_share:.4%} of the planned bytes by the schedule's end, "
        f"{log.settled_share:.4%} a twentieth of a second later",
        f"late           {late} p50, {late_p99} p99, {latest} at most",
        f"completion     {took} p50, {took_p99} p99; {log.retransmits:,} retransmits",
        f"distances      gaps {log.gap_distance:.4f}"
        + ("" if math.isnan(log.size_distance) else f", sizes {log.size_distance:.4f}")
        + " (Kolmogorov-Smirnov, from what was planned)",
    ]
    if log.burst is not None:
        lines += [
            "planned burst  " + _profile(log.profile, log.burst),
            "started burst  " + _profile(log.started_profile, log.burst),
        ]
    return "\n".join(lines)


def _counts(errors: Any) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in sorted(errors.items()))
