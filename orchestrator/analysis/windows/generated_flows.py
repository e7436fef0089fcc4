"""Measure how exactly a flow generator followed its schedule: lateness, losses, loads, flow sizes and gaps."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cross_traffic import flow_records, schedule_files
from cross_traffic.agents import flow_sender
from cross_traffic.agents.flow_drawing import Framing
from orchestrator.core.errors import StoreError
from orchestrator.core.paths import safepath
from orchestrator.parts.topology import Topology
from orchestrator.store.manifests.records import Manifest, Window
from orchestrator.store.tabular import tables
from orchestrator.validity.window import GeneratedFlows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SHED, UNFINISHED = "shed", "unfinished"  # how the errors of such flows begin
STARVED = flow_records.error_text(flow_sender.STARVED)
SMALLEST_BYTES = 16  # of a flow: its header
SIGNIFICANCE = 1.95  # of a Kolmogorov-Smirnov distance times the root of the sample: one in a thousand exceeds it
GAP_SLACK = 0.05
SIZE_SLACK = 0.01  # whole bytes, and draws that were chosen for their sum
SETTLED_NS = 50_000_000  # what the last flows of a schedule may take on top


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Planned and actual start (ns; 0: never) and layer-2 bytes of the flows of a source to a receiver."""

    start_ns: npt.NDArray[np.int64]
    wire_bytes: Floats
    started_ns: npt.NDArray[np.int64]


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


def generated(folder: Path, manifest: Manifest, window: Window) -> tuple[GeneratedFlows, ...]:
    """Measure what every generator of single flows did in a window; a flow belongs where its planned start lies."""
    import pyarrow.compute as pc

    asked = tables.read(folder, "schedules", where=pc.field("window_name") == window.name)
    mine = (pc.field("window_name") == window.name) & pc.field("planned_bytes").is_valid()
    flows = tables.read(folder, "flows", where=mine)
    if not flows.num_rows:
        return ()
    counters = tables.read(
        folder, "counters", where=pc.match_substring_regex(pc.field("counter"), r"\.received_bytes$")
    )
    found = []
    for source in sorted(set(flows["source"].to_pylist())):
        rows = flows.filter(pc.equal(flows["source"], source))
        plan = asked.filter(pc.equal(asked["source"], source))
        sizes = tables.read(
            folder, "sizes", where=(pc.field("source") == source) & (pc.field("window_name") == window.name)
        )
        received = counters.filter(pc.equal(counters["launch"], f"{window.name}.{source}.sink"))
        found.append(
            _generated(
                source, rows, plan=plan, sizes=sizes, received=received, window=window, topology=manifest.topology
            )
        )
    return tuple(found)


def sent(folder: Path, window: Window) -> dict[tuple[str, str], dict[str, float]]:
    """Return by source and receiver's address the bytes that each sender's address had acknowledged in a window.

    Of a flow at the window's edge it is the share of its time that lies inside.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    inside = (pc.field("end_ns") >= window.start_ns) & (pc.field("start_ns") < window.end_ns)
    mine = (pc.field("window_name") == window.name) & pc.field("planned_bytes").is_valid() & inside
    rows = tables.read(folder, "flows", where=mine).select(["source", "dst", "src", "bytes", "start_ns", "end_ns"])
    start, end = _ints(rows["start_ns"]), _ints(rows["end_ns"])
    part = np.minimum(end, window.end_ns) - np.maximum(start, window.start_ns)
    share = np.where(end > start, part / np.maximum(end - start, 1), 1.0)
    rows = rows.set_column(3, "bytes", pa.array(_ints(rows["bytes"]) * share))
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows.group_by(["source", "dst", "src"], use_threads=False).aggregate([("bytes", "sum")]).to_pylist():
        found.setdefault((row["source"], row["dst"]), {})[row["src"]] = float(row["bytes_sum"])
    return found


def schedules(folder: Path, manifest: Manifest, window: Window) -> dict[tuple[str, str], Schedule]:
    """Return by source and receiver's address when the flows of a window were planned, and their bytes on the wire."""
    import pyarrow.compute as pc

    of_window = pc.field("window_name") == window.name
    each = {row["source"]: row["flow_bytes"] for row in tables.read(folder, "schedules", where=of_window).to_pylist()}
    flows = tables.read(folder, "flows", where=of_window & pc.field("planned_bytes").is_valid())
    found = {}
    for pair in flows.group_by(["source", "dst"], use_threads=False).aggregate([]).to_pylist():
        source, dst = pair["source"], pair["dst"]
        rows = flows.filter(pc.and_(pc.equal(flows["source"], source), pc.equal(flows["dst"], dst)))
        framing = Framing(manifest.topology.mtu, manifest.topology.ip, int(each.get(source, 0)))
        wire = wire_bytes(_ints(rows["planned_bytes"]), framing)
        shed = pc.starts_with(rows["error"], SHED).to_numpy(zero_copy_only=False)
        found[source, dst] = Schedule(
            start_ns=_ints(rows["planned_start_ns"]),
            wire_bytes=wire,
            started_ns=np.where(shed, 0, _ints(rows["start_ns"])),
        )
    return found


def bursts(folder: Path, window: Window) -> dict[tuple[str, str], tuple[schedule_files.BurstShape, int]]:
    """Return by source and receiver's address the bursts of a window's schedules, and when the first began (ns)."""
    import pyarrow.compute as pc

    rows = tables.read(folder, "schedules", where=pc.field("window_name") == window.name).to_pylist()
    return {
        (row["source"], row["dst"]): (
            schedule_files.BurstShape(
                width_s=row["burst_width_s"], period_s=row["burst_period_s"], height=row["burst_height"]
            ),
            row["zero_ns"],
        )
        for row in rows
        if row["burst_period_s"]
    }


def _generated(
    source: str, flows: Any, *, plan: Any, sizes: Any, received: Any, window: Window, topology: Topology
) -> GeneratedFlows:
    begin, end = window.span_ns
    seconds = max((end - begin) / 1e9, 1e-9)
    planned, started = _ints(flows["planned_start_ns"]), _ints(flows["start_ns"])
    inside = (planned >= begin) & (planned < end)
    errors = np.asarray(flows["error"].to_pylist(), dtype=object)[inside].tolist()
    each = int(plan["flow_bytes"][0].as_py()) if plan.num_rows else 0
    wire = wire_bytes(_ints(flows["planned_bytes"]), Framing(topology.mtu, topology.ip, each))
    ended = flows["end_ns"].to_numpy(zero_copy_only=False).astype(np.float64)  # NaN: never
    acknowledged = (ended >= begin) & (ended < end)
    late = np.maximum(started[inside] - planned[inside], 0) / 1e9
    quantiles = np.percentile(late, [50, 99, 100]) if len(late) else np.full(3, math.nan)
    points = sizes.select(["bytes", "cdf"]).to_pydict()
    count = int(inside.sum())
    return GeneratedFlows(
        source=source,
        flows=count,
        shed=sum(error.startswith(SHED) for error in errors),
        starved=errors.count(STARVED),
        unfinished=sum(error.startswith(UNFINISHED) for error in errors),
        failed=sum(bool(error) and not error.startswith((SHED, UNFINISHED)) for error in errors),
        late_p50_s=float(quantiles[0]),
        late_p99_s=float(quantiles[1]),
        late_max_s=float(quantiles[2]),
        planned_bps=float(wire[inside].sum() * 8 / seconds),
        acknowledged_bps=float(wire[acknowledged].sum() * 8 / seconds),
        received_payload_bps=_growth(received, begin, end) * 8 / seconds,
        size_distance=size_distance(_ints(flows["planned_bytes"])[inside], points["bytes"], points["cdf"]),
        size_limit=SIGNIFICANCE / math.sqrt(count) + SIZE_SLACK if count else math.nan,
        gap_distance=_worst_gaps(
            np.asarray(flows["node"].to_pylist(), object)[inside], planned[inside], started[inside]
        ),
    )


def wire_bytes(sizes: Ints, framing: Framing) -> Floats:
    """Return layer-2 bytes towards the receiver of flows of these sizes: payload, headers, opening and closing."""
    payload = np.maximum(sizes, SMALLEST_BYTES)
    segments = -(-payload // framing.segment)
    total: Floats = (payload + framing.header * segments + framing.flow_bytes).astype(np.float64)
    return total


def size_distance(sizes: Ints, points: npt.ArrayLike, cdf: npt.ArrayLike) -> float:
    """Return the Kolmogorov-Smirnov distance of flow sizes from a piecewise-linear distribution; NaN without one."""
    at, share = np.asarray(points, np.float64), np.asarray(cdf, np.float64)
    if not len(at) or not len(sizes):
        return math.nan
    values, counts = np.unique(sizes, return_counts=True)
    above = np.cumsum(counts) / len(sizes)
    below = above - counts / len(sizes)
    # A size is a whole number that stands for all that is rounded to it; the smallest for everything below, too.
    upper = np.interp(values + 0.5, at, share, left=0.0, right=1.0)
    lower = np.interp(np.maximum(values - 0.5, 0), at, share, left=0.0, right=1.0)
    lower = np.where(values <= 1, 0.0, lower)
    return float(max(np.max(np.abs(above - upper)), np.max(np.abs(below - lower))))


def _worst_gaps(nodes: Any, planned_ns: Ints, started_ns: Ints) -> float:
    """Return the largest gap distance of any sender, NaN when none has one."""
    found = [gap_distance(planned_ns[nodes == node], started_ns[nodes == node]) for node in set(nodes.tolist())]
    return max((one for one in found if not math.isnan(one)), default=math.nan)


def gap_distance(planned_ns: Ints, started_ns: Ints) -> float:
    """Return the distance between the gaps as planned and as they were; NaN below three flows.

    That of Kolmogorov and Smirnov, after gaps may differ by `GAP_SLACK` of the mean one: of regular gaps even the
    smallest jitter would have a distance of one half.
    """
    if len(planned_ns) < 3:
        return math.nan
    wanted, real = (np.sort(np.diff(np.sort(times)).astype(np.float64)) for times in (planned_ns, started_ns))
    slack = GAP_SLACK * float(np.mean(wanted))

    def beyond(one: Floats, other: Floats) -> float:
        """Return how far the share of `one` up to any gap exceeds that of `other` up to a slightly longer one."""
        share = np.arange(1, len(one) + 1) / len(one)
        return float(np.max(share - np.searchsorted(other, one + slack, side="right") / len(other)))

    return max(0.0, beyond(wanted, real), beyond(real, wanted))


def _growth(counters: Any, begin: int, end: int) -> float:
    """Return how much the sinks' counters grew together, each interpolated between samples; NaN without any."""
    import pyarrow.compute as pc

    total = math.nan
    keys = counters.select(["node", "counter"]).group_by(["node", "counter"], use_threads=False).aggregate([])
    for key in keys.to_pylist():
        mine = pc.and_(pc.equal(counters["node"], key["node"]), pc.equal(counters["counter"], key["counter"]))
        rows = counters.filter(mine)
        at, value = _ints(rows["time_ns"]), rows["value"].to_numpy(zero_copy_only=False)
        low, high = np.interp([begin, end], at, value)
        total = (0.0 if math.isnan(total) else total) + float(high - low)
    return total


def _ints(column: Any) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def log_summary(folder: Path) -> FlowLog:
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
    payload = np.maximum(rows["size"], SMALLEST_BYTES)
    done = rows["error"] == 0
    late = np.maximum(rows["start"] - rows["planned"], 0) / 1e9
    took = (rows["acked"] - rows["start"])[done] / 1e9
    each = streams[0]["flow_bytes"] if streams else 0
    wire = wire_bytes(rows["size"].astype(np.int64), Framing(spec["mtu"], spec.get("ip", 4), each))
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
        size_distance=size_distance(rows["size"], [at for at, _ in points], [to for _, to in points]),
        gap_distance=gap_distance(rows["planned"], rows["start"]),
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
