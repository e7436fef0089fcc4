"""What a flow sender's log says: what was asked, what happened, and how exactly."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cross_traffic import flow_records, schedule_files
from cross_traffic.agents import flow_drawing
from orchestrator.analysis.windows.readings import generated
from orchestrator.core.errors import StoreError
from orchestrator.core.paths import safepath

SETTLED_NS = 50_000_000  # what the last flows of a schedule may take on top


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLog:
    """A sender's log summed up; loads in layer-2 bit/s, shares of the payload that was planned."""

    flows: int
    seconds: float  # from the schedule's zero to its end
    errors: Mapping[str, int]
    asked_bps: float  # NaN for a recorded schedule
    planned_bps: float
    planned_bytes: int
    acknowledged_bytes: int  # of flows that succeeded, whenever they did
    acknowledged_share: float  # by the schedule's end
    settled_share: float  # a twentieth of a second later
    late_s: tuple[float, float, float]  # p50, p99, largest
    size_distance: float  # Kolmogorov-Smirnov; NaN without a distribution
    gap_distance: float
    completion_s: tuple[float, float]  # p50 and p99 of flows that succeeded
    retransmits: int
    burst: schedule_files.BurstShape | None
    profile: tuple[float, ...]  # of a burst's period (`BurstShape.phases_ns`), times the mean; empty without bursts
    started_profile: tuple[float, ...]  # the same by the flows' actual starts


def check(folder: Path) -> FlowLog:
    """Sum up the log in a sender's folder; StoreError when there is none."""
    try:
        spec = json.loads(safepath.content(folder / "spec.json") or b"")
        logs = [flow_records.records(log)[1] for log in sorted(folder.glob("flows.*.bin"))]
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{folder} holds no log of a flow sender: {error}", hint="the folder that `orch traffic send --log` wrote"
        ) from None
    rows = np.concatenate(logs) if logs else np.zeros(0, flow_records.RECORD)
    if not len(rows):
        raise StoreError(f"{folder}: no flow was logged")
    rows = rows[np.argsort(rows["number"], kind="stable")]
    streams = spec["streams"]
    ends = [stream["duration_s"] for stream in streams if stream["duration_s"]]
    end_ns = int(max(ends) * 1e9) if ends else int(rows["planned"].max()) + 1
    payload = np.maximum(rows["size"], generated.SMALLEST_BYTES)
    done = rows["error"] == 0
    late = np.maximum(rows["start"] - rows["planned"], 0) / 1e9
    took = (rows["acked"] - rows["start"])[done] / 1e9
    each = streams[0]["flow_bytes"] if streams else 0
    wire = generated.wire_bytes(
        rows["size"].astype(np.int64), flow_drawing.Framing(spec["mtu"], spec.get("ip", 4), each)
    )
    points = flow_records.size_points(streams[0]) if streams and not streams[0]["burst"] else []
    burst = schedule_files.BurstShape(**streams[0]["burst"]) if streams and streams[0]["burst"] else None

    def share(by_ns: int) -> float:
        return float(payload[done & (rows["acked"] <= by_ns)].sum() / payload.sum())

    return FlowLog(
        flows=len(rows),
        seconds=end_ns / 1e9,
        errors=dict(Counter(flow_records.error_text(int(code)) for code in rows["error"][~done])),
        asked_bps=math.fsum(stream["load_bps"] for stream in streams) if streams else math.nan,
        planned_bps=float(wire.sum() * 8e9 / end_ns),
        planned_bytes=int(payload.sum()),
        acknowledged_bytes=int(payload[done].sum()),
        acknowledged_share=share(end_ns),
        settled_share=share(end_ns + SETTLED_NS),
        late_s=_quantiles(late, 50, 99, 100),
        size_distance=generated.size_distance(rows["size"], [at for at, _ in points], [to for _, to in points]),
        gap_distance=generated.gap_distance(rows["planned"], rows["start"]),
        completion_s=_quantiles(took, 50, 99),
        retransmits=int(rows["retransmits"].sum()),
        burst=burst,
        profile=_profile(rows["planned"], wire, burst),
        started_profile=_profile(rows["start"], wire, burst),
    )


def _quantiles(values: Any, *which: float) -> tuple[Any, ...]:
    return tuple(float(value) for value in np.percentile(values, which)) if len(values) else (math.nan,) * len(which)


def _profile(starts: Any, wire: Any, burst: schedule_files.BurstShape | None) -> tuple[float, ...]:
    if burst is None:
        return ()
    edges = np.array(burst.phases_ns())
    sent, _ = np.histogram(starts % edges[-1], edges, weights=wire)
    return tuple(burst.profile(sent.tolist()))
