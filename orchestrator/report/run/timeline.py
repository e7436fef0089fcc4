"""Write the timeline of a run as a Chrome trace (Perfetto): phases, windows, bursts, flows, counters.

The format (Trace Event Format, JSON object form):
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Slices of one thread may follow one
another or lie in one another, but not overlap in part; so overlapping ones get threads of their own.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np

from orchestrator.analysis.traffic.traffic import CROSS, TRAINING
from orchestrator.core.errors import StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.parts.rows import TABLES, Row
from orchestrator.report.runs import Run

PAUSE_NS = 2_000_000  # what ends a burst
MOST = 60_000  # entries of a kind; a file then stays below some ten megabytes
_MOST_SAMPLES = 4_000  # of a counter
_GROWING = r"(tx_bytes|rx_bytes)$"
_STATES = r"(backlog_bytes|drops|busy_share)$"


@dataclass(frozen=True, slots=True)
class Part:
    """The entries of one source, and a sentence about what was left out; empty when nothing was."""

    entries: list[Entry]
    left_out: str = ""


Source = Callable[[Run], Part]


def write(run: Run, path: Path, *, sources: Iterable[Source] | None = None) -> Path:
    """Write a run's timeline as a Chrome trace, gzipped JSON. What is bounded is told in its `otherData`.

    `sources` are all that give entries; who knows more of a run (a framework's own timeline) adds one.
    """
    parts = [source(run) for source in (SOURCES if sources is None else sources)]
    notes = {
        "run": run.id,
        "experiment": run.manifest.experiment,
        "zero_ns_since_epoch": str(_begin(run)),  # too long for the floats that readers of JSON make of it
        "scale": run.scale,
        "left_out": [part.left_out for part in parts if part.left_out],
    }
    entries = [entry for part in parts for entry in part.entries]
    return _write_trace(path, entries, origin_ns=_begin(run), notes=notes)


def _begin(run: Run) -> int:
    return run.manifest.began_ns or run.origin_ns


def phases(run: Run) -> Part:
    """Return phases of the run by its event log, and the measured windows."""
    stamps: list[tuple[int, str]] = []
    try:
        lines = safepath.text(run.path / "events.jsonl").splitlines()
    except (OSError, UnsafePath):
        lines = []
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue  # cut off where a crash ended it
        told = event if isinstance(event, dict) and event.get("event") in ("phase", "sealed") else {}
        if isinstance(when_ns := told.get("wall_ns"), int):
            stamps.append((when_ns, str(told.get("name", ""))))
    found: list[Entry] = [
        Slice(process="run", track="phases", name=name, start_ns=begin, end_ns=end)
        for (begin, name), (end, _) in pairwise(stamps)
        if name
    ]
    for window in run.windows:
        if window.start_ns and window.end_ns:
            args = {"valid": window.valid, "reasons": list(window.reasons)}
            found.append(
                Slice(
                    process="run",
                    track="windows",
                    name=window.name,
                    args=args,
                    start_ns=window.start_ns,
                    end_ns=window.end_ns,
                )
            )
    return Part(found)


def iterations(run: Run) -> Part:
    """Return iterations of every rank, with the rank's own forward, backward and waiting times."""
    table = run.table("iterations")
    in_parts = table.num_rows <= MOST // 4
    rows = table.slice(0, MOST).to_pylist()
    found: list[Entry] = []
    for row in rows:
        where = {"process": row["node"], "track": f"{row['job']}, rank {row['rank']}"}
        begin, end = row["start_ns"], row["end_ns"]
        args = {key: row[key] for key in ("window_name", "loss", "seconds") if _known(row[key])}
        found.append(Slice(**where, name=f"iteration {row['iteration']}", start_ns=begin, end_ns=end, args=args))
        for name, key in (("forward", "forward_s"), ("backward", "backward_s"), ("wait for gradients", "wait_s")):
            if not in_parts or not _known(row[key]):
                continue
            until = min(end, begin + int(row[key] * 1e9))
            found.append(Slice(**where, name=name, start_ns=begin, end_ns=until, inside=True))
            begin = until
    missing = f"; {table.num_rows - len(rows)} iterations of ranks" if table.num_rows > len(rows) else ""
    return Part(found, "" if in_parts else f"what iterations consist of{missing}")


def spans(run: Run) -> Part:
    """Return spans of computing and communication within iterations, by frameworks that trace them."""
    if "spans" not in TABLES:
        return Part([])
    table = run.table("spans")
    return Part(
        list(span_entries(table.slice(0, MOST).to_pylist())),
        f"{table.num_rows - MOST} spans" if table.num_rows > MOST else "",
    )


def span_entries(rows: Iterable[Row]) -> Iterator[Slice]:
    """Return rows of the `spans` table as slices beside their rank's iterations."""
    for row in rows:
        args = {key: row[key] for key in ("iteration", "bytes", "peer") if _known(row[key]) and row[key] != -1}
        yield Slice(
            process=row["node"],
            track=f"{row['job']}, rank {row['rank']}: {row['lane']}",
            name=f"{row['span']} {row['what']}".strip(),
            start_ns=row["start_ns"],
            end_ns=row["end_ns"],
            args=args,
        )


def bursts(run: Run) -> Part:
    """Return the bursts of training traffic between each pair of hosts, from silence to silence."""
    found = run.traffic
    if found is None:
        return Part([])
    training = found.of(TRAINING)
    mine = training[found.bin_flow]
    pair = found.src[found.bin_flow[mine]] * len(found.hosts) + found.dst[found.bin_flow[mine]]
    start, size = found.bin_ns[mine], found.bin_payload[mine]
    keep = size > 0
    pair, start, size = pair[keep], start[keep], size[keep]
    order = np.lexsort((start, pair))
    pair, start, size = pair[order], start[order], size[order]
    pause = max(PAUSE_NS, 2 * found.width_ns)
    fresh = _fresh(pair, start, pause)
    while int(fresh.sum()) > MOST:
        pause *= 2
        fresh = _fresh(pair, start, pause)
    heads = np.flatnonzero(fresh)
    tails = np.append(heads[1:], len(pair))[: len(heads)] - 1
    totals = np.add.reduceat(size, heads) if len(heads) else size
    entries: list[Entry] = []
    for head, tail, total in zip(heads.tolist(), tails.tolist(), totals.tolist(), strict=True):
        src, dst = divmod(int(pair[head]), len(found.hosts))
        begin, end = int(start[head]), int(start[tail]) + found.width_ns
        entries.append(
            Slice(
                process="training traffic",
                track=f"{found.hosts[src]} → {found.hosts[dst]}",
                name="burst",
                start_ns=begin,
                end_ns=end,
                args={"payload_bytes": total, "bits_per_second": round(total * 8e9 / (end - begin))},
            )
        )
    joined = (
        f"pauses of training traffic below {pause / 1e6:.0f} ms" if pause > max(PAUSE_NS, 2 * found.width_ns) else ""
    )
    return Part(entries, joined)


def _fresh(pair: Any, start: Any, pause: int) -> Any:
    if not len(pair):
        return np.zeros(0, bool)
    return np.concatenate(([True], (np.diff(pair) != 0) | (np.diff(start) > pause)))


def flows(run: Run) -> Part:
    """Return flows of the cross traffic by their sources' own logs, and where these say nothing, as captured."""
    table = run.table("flows")
    names = {address: node.name for node in run.hosts for address in node.addresses}
    dated = [row for row in table.to_pylist() if row["start_ns"] and _end(row) > row["start_ns"]]
    entries = [
        Slice(
            process="cross traffic",
            name=f"flow {row['flow']}",
            start_ns=row["start_ns"],
            end_ns=_end(row),
            track=f"{row['source']}, {names.get(row['src'], row['src'])} → {names.get(row['dst'], row['dst'])}",
            args={key: row[key] for key in ("bytes", "retransmits", "error") if _known(row[key])},
        )
        for row in dated
    ]
    known = {row["source"] for row in dated}
    found = run.traffic
    if found is not None:
        captured = np.flatnonzero(found.of(CROSS) & (found.payload_bytes > 0)).tolist()
        entries += [
            Slice(
                process="cross traffic",
                name=found.label(row),
                start_ns=int(found.first_ns[row]),
                end_ns=int(found.last_ns[row]),
                args={"payload_bytes": int(found.payload_bytes[row])},
                track=f"{found.name[row]}, {found.hosts[found.src[row]]} → {found.hosts[found.dst[row]]}",
            )
            for row in captured
            if found.name[row] not in known
        ]
    entries.sort(key=lambda one: one.start_ns - one.end_ns)
    missing = len(entries) - MOST
    return Part(list(entries[:MOST]), f"the {missing} shortest flows of cross traffic" if missing > 0 else "")


def _end(row: Row) -> int:
    return max(row[key] or 0 for key in ("end_ns", "last_byte_ns"))


def counters(run: Run) -> Part:
    """Return rates of network devices, queues and drops, processors; thinned, each with its highest values."""
    found: list[Entry] = []
    thinned = False
    for pattern, growing in ((_GROWING, True), (_STATES, False)):
        table = run.counter_rows(pattern)
        keys = table.select(["node", "port", "counter"]).group_by(["node", "port", "counter"]).aggregate([])
        series = sorted(keys.to_pylist(), key=lambda key: (key["node"], key["port"], key["counter"]))
        most = max(50, min(_MOST_SAMPLES, MOST // 2 // max(1, len(series))))
        for key in series:
            at, value = _series(table, key)
            name = " ".join(part for part in (key["port"], key["counter"]) if part)
            if growing:
                at, value = _rates(at, value)
                name = name.replace("_bytes", " bit/s")
            if not value.any():
                continue
            at, value, cut = _thinned(at, value, most)
            thinned |= cut
            found += [
                Sample(process=key["node"], counter=name, time_ns=when, value=what)
                for when, what in zip(at.tolist(), value.tolist(), strict=True)
            ]
    return Part(found, "samples of counters between the highest ones" if thinned else "")


def _series(table: Any, key: Mapping[str, str]) -> tuple[Any, Any]:
    import pyarrow.compute as pc

    mine = pc.and_(pc.equal(table["counter"], key["counter"]), pc.equal(table["node"], key["node"]))
    rows = table.filter(pc.and_(mine, pc.equal(table["port"], key["port"])))
    at, value = rows["time_ns"].to_numpy(), rows["value"].to_numpy()
    order = np.argsort(at, kind="stable")
    order = order[np.isfinite(value[order])]
    return at[order], value[order]


def _rates(at: Any, value: Any) -> tuple[Any, Any]:
    """Return bits a second from each sample to the next one, at the earlier one; 0 from the last one on."""
    steps = np.diff(at)
    keep = np.flatnonzero(steps > 0)
    rate = np.maximum(np.diff(value)[keep], 0) * 8e9 / steps[keep]
    return np.append(at[keep], at[-1:]), np.append(rate, np.zeros(len(at[-1:])))


def _thinned(at: Any, value: Any, most: int) -> tuple[Any, Any, bool]:
    if len(at) <= most:
        return at, value, False
    edges = np.linspace(0, len(at), most + 1).astype(int)
    keep = np.array([begin + int(np.argmax(value[begin:end])) for begin, end in pairwise(edges.tolist())])
    return at[keep], value[keep], True


def _known(value: Any) -> bool:
    return value is not None and value == value  # noqa: PLR0124  # NaN is not equal to itself


SOURCES: tuple[Source, ...] = (phases, iterations, spans, bursts, flows, counters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """An event with a duration, from `start_ns` to `end_ns` (since the epoch), on a track of a process.

    `inside`: it is a part of the slice of its track that it lies in; else it gets a lane where nothing else goes on.
    """

    process: str
    track: str
    name: str
    start_ns: int
    end_ns: int
    inside: bool = False
    args: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The value of a counter from an instant on."""

    process: str
    counter: str
    time_ns: int
    value: float


Entry = Slice | Sample


class _TraceEvent(TypedDict):
    name: str
    ph: Literal["X", "C", "M"]
    pid: int
    args: Mapping[str, object]


class TraceEvent(_TraceEvent, total=False):
    """An event of the format: a slice (X), a counter (C) or a name (M); times in microseconds."""

    cat: str
    ts: float
    dur: float
    tid: int


def trace_events(entries: Iterable[Entry], *, origin_ns: int) -> list[TraceEvent]:
    """Return events of the format: names of processes and threads first, then all by time.

    `ts` is in us since `origin_ns`. Processes are listed in the order in which entries first name them, tracks likewise
    within their process.
    """
    everything = list(entries)
    pids: dict[str, int] = {}
    lanes: dict[tuple[str, str], list[list[int]]] = {}
    for entry in everything:
        pids.setdefault(entry.process, len(pids) + 1)
        if isinstance(entry, Slice):
            lanes.setdefault((entry.process, entry.track), [])
    timed: list[tuple[int, int, TraceEvent]] = []
    slices = [entry for entry in everything if isinstance(entry, Slice)]
    placed = [(entry, _lane(entry, lanes)) for entry in sorted(slices, key=lambda one: (one.start_ns, -one.end_ns))]
    tids = _threads(lanes)
    for entry, lane in placed:
        timed.append(
            (
                entry.start_ns,
                -entry.end_ns,
                {
                    "name": entry.name,
                    "cat": "run",
                    "ph": "X",
                    "ts": _us(entry.start_ns - origin_ns),
                    "dur": _us(max(0, entry.end_ns - entry.start_ns)),
                    "pid": pids[entry.process],
                    "tid": tids[entry.process, entry.track, lane],
                    "args": dict(entry.args),
                },
            )
        )
    timed += [
        (
            sample.time_ns,
            0,
            {
                "name": sample.counter,
                "cat": "run",
                "ph": "C",
                "ts": _us(sample.time_ns - origin_ns),
                "pid": pids[sample.process],
                "args": {"value": sample.value},
            },
        )
        for sample in everything
        if isinstance(sample, Sample)
    ]
    timed.sort(key=lambda one: one[:2])
    return [*_names(pids, tids), *(event for *_, event in timed)]


def _write_trace(path: Path, entries: Iterable[Entry], *, origin_ns: int, notes: Mapping[str, object]) -> Path:
    """Write the trace as gzipped JSON, an event a line, as Perfetto reads it. StoreError when it cannot."""
    found = trace_events(entries, origin_ns=origin_ns)
    try:
        with gzip.GzipFile(path, "wb", compresslevel=6, mtime=0) as file:
            file.write(b'{"displayTimeUnit": "ms",\n"otherData": ' + json.dumps(dict(notes)).encode())
            file.write(b',\n"traceEvents": [')
            for number, event in enumerate(found):
                file.write((b",\n" if number else b"\n") + json.dumps(event, allow_nan=False).encode())
            file.write(b"\n]}\n")
    except OSError as error:
        raise StoreError(f"cannot write the timeline {path}: {error.strerror}") from error
    return path


def _lane(entry: Slice, lanes: dict[tuple[str, str], list[list[int]]]) -> int:
    """Return the first lane of the track in which nothing goes on, or only what the slice is inside of.

    A lane is the stack of the ends of what goes on in it.
    """
    mine = lanes[entry.process, entry.track]
    for number, going_on in enumerate(mine):
        while going_on and going_on[-1] <= entry.start_ns:
            going_on.pop()
        if not going_on or (entry.inside and entry.end_ns <= going_on[-1]):
            going_on.append(entry.end_ns)
            return number
    mine.append([entry.end_ns])
    return len(mine) - 1


def _threads(lanes: Mapping[tuple[str, str], list[list[int]]]) -> dict[tuple[str, str, int], int]:
    keys = [(process, track, lane) for (process, track), mine in lanes.items() for lane in range(len(mine))]
    return {key: number for number, key in enumerate(keys, start=1)}


def _names(pids: Mapping[str, int], tids: Mapping[tuple[str, str, int], int]) -> Iterable[TraceEvent]:
    for process, pid in pids.items():
        yield {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": process}}
        yield {"name": "process_sort_index", "ph": "M", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    for (process, track, lane), tid in tids.items():
        name = track if lane == 0 else f"{track} ({lane + 1})"
        yield {"name": "thread_name", "ph": "M", "pid": pids[process], "tid": tid, "args": {"name": name}}
        yield {"name": "thread_sort_index", "ph": "M", "pid": pids[process], "tid": tid, "args": {"sort_index": tid}}


def _us(ns: int) -> float:
    return round(ns / 1000, 3)
