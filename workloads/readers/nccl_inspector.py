"""Read the lines of JSON that NCCL's Inspector writes, one an operation (its inspector_json.cc, format v4.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.parts.rows import Columns, LaunchOutput, gathered
from workloads.readers import lines

FILES = "*-pid*.log"

_NAMES = {
    "AllReduce": "all-reduce",
    "AllGather": "all-gather",
    "ReduceScatter": "reduce-scatter",
    "AlltoAll": "all-to-all",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "Send": "send",
    "Recv": "receive",
}
_GBS = 8e9  # bit/s in what it calls GB/s


def read_nccl_inspector(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read the table `nccl_operations` of a rank; none where no Inspector wrote. Damaged lines are passed over."""
    who = {"job": output.job or "", "rank": output.rank if output.rank is not None else -1}
    rows = (
        {**who, **row, "written_ns": row["written_ns"] + output.offset_ns}
        for path in sorted(output.folder.glob(FILES))
        for row in lines.records(path, output.unread, _row)
    )
    found = gathered("nccl_operations", rows)
    return {"nccl_operations": found} if len(found["sequence"]) else {}


def _row(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the operation that a record tells of; None where it is not a whole one."""
    header, metadata = record.get("header"), record.get("metadata")
    kind = "coll" if "coll_perf" in record else "p2p"
    perf = record.get(f"{kind}_perf")
    if not (isinstance(header, dict) and isinstance(metadata, dict) and isinstance(perf, dict)):
        return None
    operation: Any = perf.get(kind)
    written: Any = metadata.get("dump_timestamp_us")
    counts: list[Any] = [perf.get(f"{kind}_{name}") for name in ("sn", "msg_size_bytes", "exec_time_us")]
    texts: list[Any] = [header.get("id"), operation, perf.get(f"{kind}_timing_source", "")]
    members = [header.get("rank"), header.get("n_ranks")]
    if not all(map(lines.is_whole, [written, *counts, *members])) or not all(map(lines.is_text, texts)):
        return None
    peer = perf.get("p2p_peer", -1)
    return {
        "communicator": texts[0],
        "member": members[0],
        "members": members[1],
        "operation": _NAMES.get(texts[1], texts[1]),
        "sequence": counts[0],
        "peer": peer if lines.is_whole(peer) else -1,
        "bytes": counts[1],
        "seconds": counts[2] * 1e-6,
        "algorithm_bps": _rate(perf.get(f"{kind}_algobw_gbs")),
        "bus_bps": _rate(perf.get(f"{kind}_busbw_gbs")),
        "timing": texts[2],
        "written_ns": _ns(written),
    }


def _rate(gbs: object) -> float | None:
    """Bit/s; none where it is not known, which the Inspector writes as a text."""
    return float(gbs) * _GBS if isinstance(gbs, int | float) and lines.is_real(gbs) else None


def _ns(us: int) -> int:
    return min(us, 2**52) * 1000
