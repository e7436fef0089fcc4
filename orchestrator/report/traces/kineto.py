"""Write ranks' activities as PyTorch profiler traces (Kineto's JSON), a file a rank.

HolisticTraceAnalysis and whatever else reads such traces take them. They look at kernels on streams of a GPU, and tell
communication by the names of NCCL's kernels; so a rank is a device here whose computations are on stream 7, and whose
operations are called ncclKernel_..., whatever carried them. What each really is stands in its `args`. A kernel belongs
to the iteration whose ProfilerStep has its launch, so each has one, at the instant when it begins.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.core.opendata import JsonObject
from orchestrator.core.paths import safepath
from orchestrator.report.runs import Run
from orchestrator.report.traces.activity import COMPUTE, Activity, RankActivities, of_run

_COMPUTING, _COMMUNICATING = 7, 20  # streams; overlapping communications are on 20, 21, ...
_KERNELS = {
    "all-reduce": "AllReduce", "all-gather": "AllGather", "reduce-scatter": "ReduceScatter", "broadcast": "Broadcast",
    "reduce": "Reduce", "send": "SendRecv", "receive": "SendRecv", "all-to-all": "SendRecv",
    "send and receive": "SendRecv", "unknown": "Generic",
}  # fmt: skip


def write(run: Run, folder: Path) -> list[Path]:
    """Write `JOB/rank-RANK.json.gz` for each rank of the run; StoreError where nothing can be written."""
    written = []
    for rank in of_run(run):
        path = folder / safepath.segment(rank.job) / f"rank-{rank.rank}.json.gz"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with gzip.GzipFile(path, "wb", compresslevel=6, mtime=0) as file:
                file.write(json.dumps(document(rank, run), indent=1).encode())
        except OSError as error:
            raise StoreError(f"cannot write the trace {path}: {error.strerror}") from error
        written.append(path)
    return written


def document(rank: RankActivities, run: Run) -> JsonObject:
    """Return the trace of a rank; `ts` in microseconds since `baseTimeNanoseconds`, the beginning of the run."""
    origin_ns = run.manifest.began_ns or run.origin_ns
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": f"rank {rank.rank}"}],
        "distributedInfo": {"backend": "nccl", "rank": rank.rank, "world_size": rank.ranks},
        "run": run.id,
        "experiment": run.manifest.experiment,
        "scale": run.scale,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": origin_ns,
        "traceEvents": [*_names(rank), *_steps(rank, origin_ns), *_kernels(rank, origin_ns)],
    }


def _names(rank: RankActivities) -> Iterator[JsonObject]:
    for pid, name in ((0, f"{rank.job}, rank {rank.rank}"), (1, f"iterations of rank {rank.rank}")):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": name}}


def _steps(rank: RankActivities, origin_ns: int) -> Iterator[JsonObject]:
    for one in rank.iterations:
        yield {
            "ph": "X",
            "cat": "user_annotation",
            "name": f"ProfilerStep#{one.number}",
            "pid": 1,
            "tid": 1,
            "ts": _us(one.start_ns - origin_ns),
            "dur": _us(one.end_ns - one.start_ns),
            "args": {},
        }


def _kernels(rank: RankActivities, origin_ns: int) -> Iterator[JsonObject]:
    ends_ns: list[int] = []  # of each stream of communications
    for number, one in enumerate(rank.activities, start=1):
        stream = _COMPUTING if one.lane == COMPUTE else _COMMUNICATING + _free(ends_ns, one)
        begin_us = _us(one.start_ns - origin_ns)
        yield {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": begin_us,
            "dur": 0,
            "args": {"correlation": number, "External id": number},
        }
        yield {
            "ph": "X",
            "cat": "kernel",
            "name": _kernel(one),
            "pid": 0,
            "tid": stream,
            "ts": begin_us,
            "dur": _us(one.end_ns - one.start_ns),
            "args": {
                "device": 0,
                "context": 1,
                "stream": stream,
                "correlation": number,
                "External id": number,
                "activity": f"{one.name} {one.what}".strip(),
                "iteration": one.iteration,
                **({"peer": one.peer} if one.lane != COMPUTE else {}),
                **({"bytes": one.size} if one.lane != COMPUTE and one.size is not None else {}),
            },
        }


def _kernel(one: Activity) -> str:
    if one.lane == COMPUTE:
        return one.name
    return f"ncclKernel_{_KERNELS.get(one.name, one.name)}"


def _free(ends_ns: list[int], one: Activity) -> int:
    """Return the first stream on which nothing goes on when an activity begins."""
    place = next((place for place, end_ns in enumerate(ends_ns) if end_ns <= one.start_ns), len(ends_ns))
    ends_ns[place:] = [one.end_ns, *ends_ns[place + 1 :]]
    return place


def _us(ns: int) -> float:
    return round(ns / 1000, 3)
