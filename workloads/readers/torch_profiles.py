"""Reads what PyTorch's profiler wrote of a training into spans: when a rank computed and when it communicated.

It takes files of a rank's folder by their names, gzipped or not: `*.pt.trace.json` is what the profiler's
`tensorboard_trace_handler` writes (Kineto's JSON), `*.et.json` that of an ExecutionTraceObserver (PyTorch's own form of
a Chakra execution trace), which has no times, but the size of every tensor, by the same `record function id`.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.core.intervals import Interval
from orchestrator.core.opendata import JsonObject
from orchestrator.core.paths import safepath
from orchestrator.parts.rows import TABLES, Columns, LaunchOutput, Row
from workloads.readers import lines
from workloads.readers.spans import overlap

MOST_BYTES = 1 << 28  # of JSON in a file; a larger one is left out

_PAUSE_NS = 1_000_000  # operations of one pass that are closer together than this are one span
_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_CPU_BACKENDS = re.compile(r"(?:gloo|mpi|ucc):(\w+)")
_NAMES = (
    (r"all_?reduce", "all-reduce"), (r"all_?gather", "all-gather"), (r"reduce_?scatter", "reduce-scatter"),
    (r"all_?to_?all", "all-to-all"), (r"broadcast", "broadcast"), (r"barrier", "barrier"), (r"reduce", "reduce"),
    (r"gather", "gather"), (r"scatter", "scatter"), (r"recv", "receive"), (r"send", "send"),
)  # fmt: skip
_WIDTHS = {
    "double": 8, "long": 8, "long int": 8, "float": 4, "int": 4, "half": 2, "c10::half": 2, "bfloat16": 2,
    "c10::bfloat16": 2, "short": 2, "signed char": 1, "unsigned char": 1, "bool": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Event:
    """Something that went on in a thread; instants in ns since the epoch, by the clock of the host."""

    category: str
    name: str
    thread: object
    begin: int
    end: int
    args: JsonObject

    def moved(self, by_ns: int) -> _Event:
        return replace(self, begin=self.begin + by_ns, end=self.end + by_ns)


@dataclass(frozen=True, slots=True)
class _Span:
    lane: str
    name: str
    what: str
    size: int
    begin: int
    end: int


def read_profiles(output: LaunchOutput, iterations: Columns) -> Mapping[str, Columns]:
    """The tables `spans` and `overlaps` of the iterations of one rank that its profiles tell of; else they are empty.

    Of a training on GPUs spans are kernels and copies, communication those of NCCL. On processors communication is what
    gloo or MPI carried, and computing what PyTorch's operations took: those of a pass that follow one another closely
    are one span, `forward`, `backward` or `step` (the optimizer's). A file that is damaged or too large is left out.
    """
    observed = _files(output.folder, ".et.json", ".et.json.gz")
    sizes = {key: size for path in observed for key, size in _tensor_sizes(_text(path))}
    inside: dict[int, list[_Span]] = {}
    for path in _files(output.folder, ".pt.trace.json", ".pt.trace.json.gz"):
        events = [one.moved(output.offset_ns) for one in _events(_document(path))]
        steps = sorted((one.begin, one.end) for one in events if one.name.startswith("ProfilerStep#"))
        for span in _spans(events, sizes):
            place = _iteration(iterations, _step_of(steps, span))
            if place is not None:
                inside.setdefault(place, []).append(span)
    rows: dict[str, list[Row]] = {"spans": [], "overlaps": []}
    for place, found in sorted(inside.items()):
        where = {key: iterations[key][place] for key in ("job", "rank", "window_name", "iteration")}
        rows["spans"] += [
            {**where, "lane": span.lane, "span": span.name, "what": span.what, "peer": -1, "bytes": span.size,
             "sequence": sequence, "start_ns": span.begin, "end_ns": span.end}
            for sequence, span in enumerate(sorted(found, key=lambda one: (one.begin, one.end)))
        ]  # fmt: skip
        rows["overlaps"].append({**where, **overlap((span.lane, span.begin, span.end) for span in found)})
    return {table: {key: [row[key] for row in kept] for key in TABLES[table]} for table, kept in rows.items()}


def _step_of(steps: Sequence[Interval], span: _Span) -> Interval:
    """The profiler's step that a span began in; where there is none, the instant of its beginning."""
    place = bisect_right(steps, span.begin, key=lambda step: step[0]) - 1
    if place >= 0 and span.begin < steps[place][1]:
        return steps[place]
    return span.begin, span.begin + 1


def _iteration(iterations: Columns, step: Interval) -> int | None:
    """The place of the iteration that has most of a step; what a training prints comes a moment after its step."""
    starts, ends = iterations["start_ns"], iterations["end_ns"]
    first = max(0, bisect_right(starts, step[0]) - 1)
    last = bisect_right(starts, step[1])
    shares = [(min(ends[place], step[1]) - max(starts[place], step[0]), -place) for place in range(first, last)]
    most, place = max(shares, default=(0, 0))
    return -place if most > 0 else None


def _files(folder: Path, *endings: str) -> list[Path]:
    return sorted(path for path in folder.rglob("*.json*") if path.name.endswith(endings))


def _text(path: Path) -> str:
    """What is in a file as far as it can be read; nothing where that is too much."""
    content = b""
    try:
        with safepath.opened(path) as plain, gzip.open(plain) if path.suffix == ".gz" else plain as file:
            while part := file.read(1 << 20):
                content += part
                if len(content) > MOST_BYTES:
                    return ""
    except (OSError, EOFError, zlib.error):  # a gzipped file that was cut off or is damaged
        pass
    return content.decode("utf-8", "replace")


def _document(path: Path) -> JsonObject:
    try:
        found = json.loads(_text(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _events(document: JsonObject) -> Iterator[_Event]:
    """The complete events of Kineto's JSON; its times are us since `baseTimeNanoseconds`, which older ones lack."""
    base, events = document.get("baseTimeNanoseconds", 0), document.get("traceEvents")
    if not lines.is_whole(base) or not isinstance(events, list):
        return
    for one in events:
        if not isinstance(one, dict) or one.get("ph") != "X":
            continue
        category, name, thread, args = one.get("cat"), one.get("name"), one.get("tid"), one.get("args")
        begin_ns, took_ns = _ns(one.get("ts")), _ns(one.get("dur", 0))
        if begin_ns is None or took_ns is None or not isinstance(thread, (int, str)):
            continue
        if not (isinstance(name, str) and lines.is_text(name) and isinstance(category, str)):
            continue
        begin = base + begin_ns
        yield _Event(category, name, thread, begin, begin + took_ns, args if isinstance(args, dict) else {})


def _ns(us: object) -> int | None:
    """Microseconds of the file in nanoseconds; None where that is no time."""
    if not isinstance(us, (int, float)) or not lines.is_real(us) or not 0 <= us < 2**52:
        return None
    return round(us * 1000)


def _spans(events: list[_Event], sizes: Mapping[int, int]) -> Iterator[_Span]:
    events.sort(key=lambda one: (one.begin, -one.end))
    kernels = [one for one in events if one.category in _GPU]
    if kernels:
        yield from map(_kernel, kernels)
        return
    for one in events:
        carried = _CPU_BACKENDS.match(one.name) if one.category == "user_annotation" else None
        if carried:
            size = sizes.get(_function(one), _size(one.args))
            yield _Span("communication", _called(carried[1]), "", size, one.begin, one.end)
    yield from _passes(events)


def _kernel(one: _Event) -> _Span:
    if not one.name.lower().startswith("nccl"):
        return _Span("compute", "kernel", one.name, 0, one.begin, one.end)
    collective = one.args.get("Collective name")
    count, width = one.args.get("In msg nelems"), _WIDTHS.get(str(one.args.get("dtype")).lower(), 0)
    size = count * width if isinstance(count, int) and lines.is_whole(count) else 0
    name = _called(collective if isinstance(collective, str) and collective else one.name.split("_", 1)[-1])
    return _Span("communication", name, one.name, size if lines.is_whole(size) else 0, one.begin, one.end)


def _called(operation: str) -> str:
    """What an operation of PyTorch or a kernel of NCCL is called in our tables."""
    known = (name for pattern, name in _NAMES if re.search(pattern, operation.lower()))
    return next(known, operation.lower().replace("_", "-"))


def _passes(events: Iterable[_Event]) -> Iterator[_Span]:
    """Operations that lie in no other one of their thread, those of a pass in one; events in order of begin."""
    open_of: dict[object, _Span] = {}
    pass_of: dict[object, str] = {}
    until: dict[object, int] = {}
    for one in events:
        if one.category == "user_annotation":
            pass_of[one.thread] = _pass_begun(one.name, pass_of.get(one.thread, "forward"))
        if one.category != "cpu_op" or one.begin < until.get(one.thread, 0) or one.name.startswith("c10d::"):
            continue
        until[one.thread] = one.end
        if one.name.startswith(("autograd::", "torch.distributed.ddp.reducer")):
            pass_of[one.thread] = "backward"
        name, last = pass_of.get(one.thread, "forward"), open_of.get(one.thread)
        if last is not None and last.name == name and one.begin - last.end < _PAUSE_NS:
            open_of[one.thread] = replace(last, end=one.end)
            continue
        if last is not None:
            yield last
        open_of[one.thread] = _Span("compute", name, "", 0, one.begin, one.end)
    yield from open_of.values()


def _pass_begun(annotation: str, now: str) -> str:
    if annotation.startswith(("ProfilerStep#", "DistributedDataParallel.forward")):
        return "forward"
    return "step" if annotation.startswith("Optimizer.step#") else now


def _function(one: _Event) -> int:
    number = one.args.get("Record function id")
    return number if lines.is_whole(number) else -1  # type: ignore[return-value]


def _size(args: JsonObject) -> int:
    """Bytes of the tensors that an event had as inputs; 0 where shapes were not recorded."""
    shapes, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(shapes, list) or not isinstance(types, list):
        return 0
    size = sum(_bytes(shape, _WIDTHS.get(str(kind).lower(), 0)) for shape, kind in zip(shapes, types, strict=False))
    return size if lines.is_whole(size) else 0


def _bytes(shape: object, width: int) -> int:
    if not isinstance(shape, list) or len(shape) > 64 or not all(map(lines.is_whole, shape)):
        return 0
    return math.prod(shape) * width if shape else 0


def _tensor_sizes(text: str) -> Iterator[tuple[int, int]]:
    """Of each recorded function its id, and the bytes of the tensors that it takes.

    The observer ends its file when it is unregistered: that of a training that was ended before lacks its end.
    """
    for node in lines.objects(text[max(0, text.find('"nodes"')) :]):
        inputs, attributes = node.get("inputs"), node.get("attrs")
        values = inputs.get("values") if isinstance(inputs, dict) else None
        for one in attributes if isinstance(attributes, list) else ():
            if isinstance(one, dict) and one.get("name") == "rf_id" and lines.is_whole(one.get("value")):
                size = sum(_tensors(values, depth=0))
                yield one["value"], size if lines.is_whole(size) else 0


def _tensors(values: object, *, depth: int) -> Iterator[int]:
    """Bytes of each tensor in the values of a node: [tensor, storage, offset, elements, bytes of each, device]."""
    if not isinstance(values, list) or depth > 3:
        return
    if len(values) >= 6 and isinstance(values[5], str) and all(map(lines.is_whole, values[:5])):
        yield values[3] * values[4]
        return
    for one in values:
        yield from _tensors(one, depth=depth + 1)
