"""Find which connections carried each collective, from its spans and from packets in bins of a millisecond."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.causes.ports import STEP_NS, grouped
from orchestrator.parts.rows import Row
from orchestrator.store.manifests.records import Manifest, Window
from orchestrator.store.manifests.summaries import Job

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_ROWS = 100_000  # of a job and window: later iterations are left out
FEWEST_SHARE = 0.01  # of a collective's bytes on a host: flows with less are acknowledgements and control


@dataclass(frozen=True, slots=True)
class _Flow:
    """A 5-tuple that leaves a host, with its payload by bin: numbers of bins since the epoch, and bytes."""

    port: str
    ends: tuple[str, str, int, str, int]  # protocol, source address and port, destination address and port
    bins: Ints
    payload: Floats


@dataclass(frozen=True, slots=True)
class _Collectives:
    """The collectives of a host in order of their begin: iteration, name, begin and end (bins, inclusive), size."""

    iteration: Ints
    what: list[str]
    begin: Ints
    end: Ints
    size: Floats

    def of(self, kept: npt.NDArray[np.bool_]) -> _Collectives:
        """Return these alone."""
        what = [name for name, keep in zip(self.what, kept, strict=True) if keep]
        return _Collectives(self.iteration[kept], what, self.begin[kept], self.end[kept], self.size[kept])


def carried(manifest: Manifest, window: Window, *, spans: Any, captured: Any, packets: Any) -> Iterator[Row]:
    """Yield rows of the table `carried`: a collective of an iteration on a 5-tuple that carried some of it.

    `spans`, `captured` and `packets` are the tables `spans`, `capture_flows` and `flow_packets` (pyarrow). Bytes are
    those that leave a host while its ranks have the collective under way. Where several are under way at once on one
    connection, each gets a share of the bin by its size: `alone_bytes` are those for which nobody else came into
    question. Instants are as exact as a bin. `last` marks the flow that ended last of all of the collective's.
    """
    for job in manifest.jobs:
        if job.name in window.iterations:
            yield from _of_job(manifest, window, job, spans=spans, captured=captured, packets=packets)


def _of_job(manifest: Manifest, window: Window, job: Job, *, spans: Any, captured: Any, packets: Any) -> Iterator[Row]:
    rows: list[Row] = []
    flows = {host: _flows(captured, packets, host=host, job=job.name, window=window) for host in job.nodes}
    for host in job.nodes:
        ranks = [rank.rank for rank in job.ranks if rank.node == host]
        under_way = _collectives(spans, job.name, ranks, window)
        if under_way is not None and flows[host]:
            each = sum(min(len(found), round(1 / FEWEST_SHARE)) for found in flows.values())
            most = MOST_ROWS // (each * len(set(under_way.what)))
            early = under_way.iteration < window.iterations[job.name].first + max(1, most)
            carried_here = _on_flows(under_way.of(early), flows[host], manifest)
            rows += [{"job": job.name, "host": host, **row} for row in carried_here]
    latest: dict[tuple[Any, Any], int] = {}
    for row in rows:
        key = row["iteration"], row["what"]
        latest[key] = max(latest.get(key, 0), row["last_ns"])
    for row in rows:
        yield {**row, "last": row["last_ns"] == latest[row["iteration"], row["what"]]}


def _collectives(spans: Any, job: str, ranks: list[int], window: Window) -> _Collectives | None:
    """Return the collectives of a host's ranks; one of several ranks is from the first begin to the last end."""
    import pyarrow as pa
    import pyarrow.compute as pc

    counted = window.iterations[job]
    mine = spans.filter(
        pc.and_(
            pc.and_(pc.equal(spans["job"], job), pc.equal(spans["lane"], "communication")),
            pc.and_(pc.less(spans["peer"], 0), pc.is_in(spans["rank"], pa.array(ranks, pa.int64()))),
        )
    )
    mine = mine.filter(
        pc.and_(pc.greater_equal(mine["iteration"], counted.first), pc.less_equal(mine["iteration"], counted.last))
    )
    if not mine.num_rows:
        return None
    each = mine.group_by(["iteration", "span", "what"]).aggregate(
        [("start_ns", "min"), ("end_ns", "max"), ("bytes", "max")]
    )
    each = each.sort_by("start_ns_min")
    size = each["bytes_max"].to_numpy(zero_copy_only=False).astype(np.float64)
    return _Collectives(
        iteration=each["iteration"].to_numpy().astype(np.int64),
        what=[
            f"{span} {what}".strip()
            for span, what in zip(each["span"].to_pylist(), each["what"].to_pylist(), strict=True)
        ],
        begin=each["start_ns_min"].to_numpy().astype(np.int64) // STEP_NS,
        end=each["end_ns_max"].to_numpy().astype(np.int64) // STEP_NS,
        size=np.where(size > 0, size, 1.0),
    )


def _flows(captured: Any, packets: Any, *, host: str, job: str, window: Window) -> list[_Flow]:
    """Return the flows of a job that leave a host, with what they carried in the window."""
    import pyarrow.compute as pc

    wanted: dict[tuple[str, int], Row] = {}
    seen: dict[str, int] = {}
    for row in captured.filter(pc.equal(captured["node"], host)).to_pylist():
        number = seen[row["launch"]] = seen.get(row["launch"], -1) + 1
        if row["direction"] == "out" and row["name"] == job and row["payload_bytes"]:
            wanted[row["launch"], number] = row
    inside = pc.and_(pc.greater_equal(packets["bin_ns"], window.start_ns), pc.less(packets["bin_ns"], window.end_ns))
    rows = packets.filter(pc.and_(pc.equal(packets["node"], host), inside)).sort_by("bin_ns")
    bins = rows["bin_ns"].to_numpy().astype(np.int64) // STEP_NS
    payload = rows["payload_bytes"].to_numpy().astype(np.float64)
    found = []
    for key, mine in grouped(rows, ("launch", "flow")):
        if key in wanted and payload[mine].any():
            row = wanted[key[0], key[1]]
            ends = (row["protocol"], row["src"], row["src_port"], row["dst"], row["dst_port"])
            found.append(_Flow(row["port"], ends, bins[mine], payload[mine]))
    return found


def _on_flows(under_way: _Collectives, flows: list[_Flow], manifest: Manifest) -> Iterator[Row]:
    """Yield what each flow carried of each collective."""
    hosts = {address: node.name for node in manifest.topology.hosts for address in node.addresses}
    first, last = int(under_way.begin.min()), int(under_way.end.max())
    weight, count = np.zeros(last - first + 2), np.zeros(last - first + 2)
    np.add.at(weight, under_way.begin - first, under_way.size)
    np.add.at(weight, under_way.end - first + 1, -under_way.size)
    np.add.at(count, under_way.begin - first, 1)
    np.add.at(count, under_way.end - first + 1, -1)
    weight, count = np.cumsum(weight), np.cumsum(count)
    found: list[tuple[int, _Flow, float, float, int, int]] = []
    total = np.zeros(len(under_way.begin))
    for flow in flows:
        inside = (flow.bins >= first) & (flow.bins <= last)
        bins, payload = flow.bins[inside], flow.payload[inside]
        among, alone = weight[bins - first], count[bins - first] == 1
        low, high = np.searchsorted(bins, under_way.begin), np.searchsorted(bins, under_way.end, side="right")
        for place in np.flatnonzero(high > low):
            part = slice(low[place], high[place])
            amount = float((payload[part] * under_way.size[place] / among[part]).sum())
            sent = np.flatnonzero(payload[part] > 0)
            if len(sent):
                own = float((payload[part] * alone[part]).sum())
                begin, end = int(bins[part][sent[0]]), int(bins[part][sent[-1]])
                found.append((int(place), flow, amount, own, begin, end))
                total[place] += amount
    for number, flow, amount, own, begin, end in found:
        if amount >= FEWEST_SHARE * total[number]:
            protocol, src, src_port, dst, dst_port = flow.ends
            yield {
                "iteration": int(under_way.iteration[number]),
                "what": under_way.what[number],
                "port": flow.port,
                "to_host": hosts.get(dst, ""),
                "protocol": protocol,
                "src": src,
                "src_port": src_port,
                "dst": dst,
                "dst_port": dst_port,
                "payload_bytes": round(amount),
                "alone_bytes": round(own),
                "first_ns": begin * STEP_NS,
                "last_ns": (end + 1) * STEP_NS,
            }
