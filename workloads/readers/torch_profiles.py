"""Read what PyTorch's profiler wrote of a training into spans: when a rank computed and when it communicated.

It takes files of a rank's folder by their names, gzipped or not: `*.pt.trace.json` is what the profiler's
`tensorboard_trace_handler` writes (Kineto's JSON), `*.et.json` that of an ExecutionTraceObserver (PyTorch's own form of
a Chakra execution trace), which has no times, but the size of every tensor, by the same `record function id`.

Of a kernel of NCCL its name tells little: one SendRecv is every all-to-all, Generic anything. From PyTorch 2.2 on it
has the operation, the number of elements and their type as arguments; before, the operation is the annotation
`nccl:...` around its launch, which either its external id or its correlation leads to.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from orchestrator.core.intervals import Interval
from orchestrator.core.opendata import JsonObject
from orchestrator.core.paths import safepath
from orchestrator.parts.rows import Columns, LaunchOutput, Row, gathered
from workloads.readers import lines
from workloads.readers.spans import overlap

MOST_BYTES = 1 << 28  # of JSON in a file; a larger one is left out

# What PyTorch 1.8 to 1.11 called categories.
_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
}
_NO_NUMBER = re.compile(r"([:\[,]\s*)-?(?:nan|inf)(?=\s*[,}\]])")  # which Kineto writes, and JSON does not have
_PAUSE_NS = 1_000_000  # operations of one pass that are closer together than this are one span
_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime")
_ON_GPU = "gpu_user_annotation"
_RECORDS = ("record_param_comms", "c10d::")
_GZIP = 31  # zlib's word for one with gzip's header
_DEEP = 64  # annotations within one another that are looked at
_COMMUNICATES = re.compile(r"(?:void )?(?:nccl|rccl|msccl)", re.IGNORECASE)
_OF_KERNEL = re.compile(r"(AllReduce|AllGather|ReduceScatter|Reduce|Broadcast|AlltoAll|AllToAll|SendRecv)")
_BOTH = "send and receive"  # of a kernel that is told to send, to receive, or to do both, as all-to-alls do
_UNKNOWN = "unknown"
_SEVERAL = "coalesced"  # operations of a group that are one kernel
_ANNOTATION = re.compile(r"(?:nccl|rccl):(\w+)")
Told = Callable[..., None]

_CPU_BACKENDS = re.compile(r"(?:gloo|mpi|ucc):(\w+)")
_NAMES = (
    (r"all_?reduce", "all-reduce"), (r"all_?gather", "all-gather"), (r"reduce_?scatter", "reduce-scatter"),
    (r"all_?to_?all", "all-to-all"), (r"broadcast", "broadcast"), (r"barrier", "barrier"), (r"reduce", "reduce"),
    (r"gather", "gather"), (r"scatter", "scatter"), (r"recv", "receive"), (r"send", "send"),
)  # fmt: skip
# Bytes of an element by its type, as C++ and c10::ScalarType call it, in small letters and without "c10::".
_WIDTHS = {
    "double": 8, "long": 8, "long int": 8, "unsigned long": 8, "uint64": 8, "float": 4, "int": 4, "unsigned int": 4,
    "uint32": 4, "half": 2, "bfloat16": 2, "short": 2, "short int": 2, "unsigned short": 2, "uint16": 2, "char": 1,
    "signed char": 1, "byte": 1, "unsigned char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1, "complexhalf": 4,
    "complex<half>": 4, "complexfloat": 8, "complex<float>": 8, "complexdouble": 16, "complex<double>": 16,
    "qint8": 1, "quint8": 1, "qint32": 4,
}  # fmt: skip
_TENSORS = re.compile(r"(?:GenericList\[)?Tensor\(([^()]*)\)\]?")


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
    size: int | None
    begin: int
    end: int


def read_profiles(output: LaunchOutput, iterations: Columns) -> Mapping[str, Columns]:
    """Read the tables `spans` and `overlaps` of those iterations of a rank that its profiles tell of; else empty.

    Of a training on GPUs spans are kernels and copies, communication those of NCCL. On processors communication is what
    gloo or MPI carried, and computing what PyTorch's operations took: those of a pass that follow one another closely
    are one span, `forward`, `backward` or `step` (the optimizer's). Of a damaged file the events that are whole count;
    one that is too large is left out. A size that no file tells is None.
    """
    observed = _files(output.folder, ".et.json", ".et.json.gz")
    sizes = {key: size for path in observed for key, size in _tensor_sizes(path, _told(output, path))}
    inside: dict[int, list[_Span]] = {}
    for path in _files(output.folder, ".pt.trace.json", ".pt.trace.json.gz"):
        events = [one.moved(output.offset_ns) for one in _events(path, _told(output, path))]
        steps = sorted((one.begin, one.end) for one in events if one.name.startswith("ProfilerStep#"))
        found, outside = 0, 0
        for span in _spans(events, sizes):
            place = _iteration(iterations, _step_of(steps, span))
            found, outside = found + (place is not None), outside + (place is None)
            if place is not None:
                inside.setdefault(place, []).append(span)
        if outside and not found and len(iterations["start_ns"]):  # else it is of warm-up, or goes on longer
            _told(output, path)("spans, all of the file, in no iteration", count=outside)
    rows: dict[str, list[Row]] = {"spans": [], "overlaps": []}
    for place, spans in sorted(inside.items()):
        where = {key: iterations[key][place] for key in ("job", "rank", "window_name", "iteration")}
        rows["spans"] += [
            {
                **where,
                "lane": span.lane,
                "span": span.name,
                "what": span.what,
                "peer": -1,
                "bytes": span.size,
                "sequence": sequence,
                "start_ns": span.begin,
                "end_ns": span.end,
            }
            for sequence, span in enumerate(sorted(spans, key=lambda one: (one.begin, one.end)))
        ]
        rows["overlaps"].append({**where, **overlap((span.lane, span.begin, span.end) for span in spans)})
    return {table: gathered(table, kept) for table, kept in rows.items()}


def _step_of(steps: Sequence[Interval], span: _Span) -> Interval:
    """Return the profiler's step that a span began in; where there is none, the instant of its beginning."""
    place = bisect_right(steps, span.begin, key=lambda step: step[0]) - 1
    if place >= 0 and span.begin < steps[place][1]:
        return steps[place]
    return span.begin, span.begin + 1


def _iteration(iterations: Columns, step: Interval) -> int | None:
    """Return the place of the iteration that has most of a step.

    What a training prints comes a moment after its step.
    """
    starts, ends = iterations["start_ns"], iterations["end_ns"]
    first = max(0, bisect_right(starts, step[0]) - 1)
    last = bisect_right(starts, step[1])
    shares = [(min(ends[place], step[1]) - max(starts[place], step[0]), -place) for place in range(first, last)]
    most, place = max(shares, default=(0, 0))
    return -place if most > 0 else None


def _files(folder: Path, *endings: str) -> list[Path]:
    return sorted(path for path in folder.rglob("*.json*") if path.name.endswith(endings))


def _told(output: LaunchOutput, path: Path) -> Told:
    return partial(output.unread.add, path.relative_to(output.folder).as_posix())


def _text(path: Path, told: Told) -> str:
    """Return what is in a file as far as it can be read; nothing where that is too much."""
    content = bytearray()
    try:
        with safepath.opened(path) as file:
            parts = iter(lambda: file.read(1 << 16), b"")
            for part in _unpacked(parts) if path.suffix == ".gz" else parts:
                content += part
                if len(content) > MOST_BYTES:
                    told(f"files of more than {MOST_BYTES} bytes")
                    return ""
    except (OSError, EOFError, zlib.error) as error:
        told("ends of a file that cannot be unpacked", line=content.count(b"\n") + 1, text=str(error))
    return content.decode("utf-8", "replace")


def _unpacked(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Give what a gzipped file holds, as far as it goes: EOFError behind all of it where its end is missing."""
    unpacker = zlib.decompressobj(_GZIP)
    for part in parts:
        yield unpacker.decompress(part)
        while unpacker.eof and (rest := unpacker.unused_data):
            unpacker = zlib.decompressobj(_GZIP)
            yield unpacker.decompress(rest)
    if not unpacker.eof:
        raise EOFError("it is cut off")


def _events(path: Path, told: Told) -> Iterator[_Event]:
    """Give the complete events of Kineto's JSON.

    Its times are us since `baseTimeNanoseconds`, which older ones lack.
    """
    base, events = _document(_text(path, told), told)
    for one in events:
        if not isinstance(one, dict):
            told("events", text=str(one))
        elif one.get("ph") == "X":
            event = _event(one, base)
            if event is not None:
                yield event
            else:
                told("events", text=str(one))


def _document(text: str, told: Told) -> tuple[int, Iterable[object]]:
    """Return the instant that events count from and the events; of a file that is no JSON, those that are whole."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        text = _NO_NUMBER.sub(r"\1null", text)
        base = re.search(r'"baseTimeNanoseconds":\s*(\d{1,19})\b', text)
        begin = text.find('"traceEvents"')
        if begin < 0 and text.strip():
            told("files without events", text=text)
        return int(base[1]) if base else 0, lines.objects(text, told, begin=begin) if begin >= 0 else ()
    events = found.get("traceEvents") if isinstance(found, dict) else found  # a list, as the profiler before 1.8 writes
    base_ns = found.get("baseTimeNanoseconds", 0) if isinstance(found, dict) else 0
    if isinstance(events, list) and lines.is_whole(base_ns):
        return base_ns, events
    told("files without events", text=text)
    return 0, ()


def _event(one: JsonObject, base: int) -> _Event | None:
    """Return an event as it is written; None of one that is not complete."""
    category, name, thread, args = one.get("cat"), one.get("name"), one.get("tid"), one.get("args")
    begin_ns, took_ns = _ns(one.get("ts")), _ns(one.get("dur", 0))
    if begin_ns is None or took_ns is None or not isinstance(thread, (int, str)):
        return None
    if not (isinstance(name, str) and lines.is_text(name) and isinstance(category, str)):
        return None
    begin = base + begin_ns
    known = {key.lower(): value for key, value in args.items()} if isinstance(args, dict) else {}
    return _Event(_CATEGORIES.get(category, category), name, thread, begin, begin + took_ns, known)


def _ns(us: object) -> int | None:
    """Microseconds of the file in nanoseconds; None where that is no time."""
    if not isinstance(us, (int, float)) or not lines.is_real(us) or not 0 <= us < 2**52:
        return None
    return round(us * 1000)


def _spans(events: list[_Event], sizes: Mapping[int, int]) -> Iterator[_Span]:
    events.sort(key=lambda one: (one.begin, -one.end))
    kernels = [one for one in events if one.category in _GPU]
    if kernels:
        origins = _Origins(events)
        yield from (_kernel(one, origins, sizes) for one in kernels)
        return
    for one in events:
        carried = _CPU_BACKENDS.match(one.name) if one.category == "user_annotation" else None
        if carried:
            size = sizes.get(_function(one), _size(one))
            yield _Span("communication", _called(carried[1]), "", size, one.begin, one.end)
    yield from _passes(events)


class _Origins:
    """What kernels of NCCL were launched for: PyTorch's annotations and records, by any way that leads there."""

    def __init__(self, events: Sequence[_Event]) -> None:
        telling = [one for one in events if _ANNOTATION.match(one.name) or one.name.startswith(_RECORDS)]
        self._by_id: dict[object, list[_Event]] = {}
        self._within: dict[object, list[_Event]] = {}  # by thread, in order of begin; of annotations alone
        for one in telling:
            if (number := one.args.get("external id")) is not None and isinstance(number, (int, str)):
                self._by_id.setdefault(number, []).append(one)
            self._within.setdefault((one.category == _ON_GPU, one.thread), []).append(one)
        self._launched = {
            number: one
            for one in events
            if one.category in _LAUNCHES and isinstance(number := one.args.get("correlation"), (int, str))
        }

    def of(self, kernel: _Event) -> list[_Event]:
        """Return those that tell of a kernel, the surest first."""
        number, correlation = kernel.args.get("external id"), kernel.args.get("correlation")
        found = [*self._by_id.get(number, ())] if isinstance(number, (int, str)) else []
        found += self._around(True, kernel)
        launch = self._launched.get(correlation) if isinstance(correlation, (int, str)) else None
        return found + (self._around(False, launch) if launch else [])

    def _around(self, on_gpu: bool, one: _Event) -> list[_Event]:
        """Return what goes on in the event's thread at its beginning, the innermost first."""
        inside = self._within.get((on_gpu, one.thread), [])
        last = bisect_right(inside, one.begin, key=lambda other: other.begin)
        return [other for other in reversed(inside[max(0, last - _DEEP) : last]) if one.begin < other.end]


def _kernel(one: _Event, origins: _Origins, sizes: Mapping[int, int]) -> _Span:
    if not _COMMUNICATES.match(one.name):
        return _Span("compute", "kernel", one.name, 0, one.begin, one.end)
    telling = [one, *origins.of(one)]
    names = (named for event in telling if (named := _named(event)))
    name = next(names, None) or _of_kernel(one.name)
    known = (size for event in telling if (size := _elements(event)) is not None)
    size = next(known, None)
    for event in telling[1:]:
        if size is None:
            size = sizes.get(_function(event), _size(event))
    return _Span("communication", name, one.name, size, one.begin, one.end)


def _named(one: _Event) -> str:
    """Return the operation that an event tells of; empty where it tells of none."""
    collective = one.args.get("collective name")
    if isinstance(collective, str) and collective not in ("", _SEVERAL) and lines.is_text(collective):
        return _called(collective)
    annotation = _ANNOTATION.match(one.name)
    if annotation and annotation[1] != _SEVERAL:
        return _called(annotation[1])
    return _called(one.name.partition("::")[2]) if one.name.startswith("c10d::") else ""


def _of_kernel(name: str) -> str:
    """Return what the name of a kernel of NCCL tells."""
    found = _OF_KERNEL.search(name.partition("(")[0])
    return _UNKNOWN if found is None else _BOTH if found[1] == "SendRecv" else _called(found[1])


def _elements(one: _Event) -> int | None:
    """Bytes by the number and the type of elements that an event tells; None where it does not, or of an odd type."""
    count, width = one.args.get("in msg nelems"), _width(one.args.get("dtype"))
    if width is None or not isinstance(count, int) or not lines.is_whole(count):
        return None
    return count * width if lines.is_whole(count * width) else None


def _width(kind: object) -> int | None:
    return _WIDTHS.get(str(kind).lower().removeprefix("c10::").replace("<c10::", "<"))


def _called(operation: str) -> str:
    """Return what an operation of PyTorch or a kernel of NCCL is called in our tables."""
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
    number = one.args.get("record function id")
    return number if lines.is_whole(number) else -1  # type: ignore[return-value]


def _size(one: _Event) -> int | None:
    """Bytes of the tensors that an event had as inputs; None where they or their types are not known."""
    shapes, types = one.args.get("input dims"), one.args.get("input type")
    if not isinstance(shapes, list) or not isinstance(types, list):
        return None
    sizes = [_bytes(shape, kind) for shape, kind in zip(shapes, types, strict=False) if shape]
    if one.name.startswith("c10d::"):  # whose results are arguments, too, before what they are made of
        sizes = sizes[-1:]
    known = [size for size in sizes if size is not None]
    return sum(known) if known and len(known) == len(sizes) and lines.is_whole(sum(known)) else None


def _bytes(shape: object, kind: object) -> int | None:
    """Bytes of a tensor or of a list of tensors of one type, by its shape or theirs."""
    inner = _TENSORS.fullmatch(str(kind))
    width = _width(inner[1] if inner else kind)
    if width is None or not isinstance(shape, list) or len(shape) > 64:
        return None
    if all(isinstance(part, list) for part in shape):
        parts = [_bytes(part, inner[1] if inner else kind) if part else 0 for part in shape]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None
    return math.prod(shape) * width if all(map(lines.is_whole, shape)) else None


def _tensor_sizes(path: Path, told: Told) -> Iterator[tuple[int, int]]:
    """Of each recorded function its id, and the bytes of the tensors that it takes.

    The observer ends its file when it is unregistered: that of a training that was ended before lacks its end.
    """
    text = _text(path, told)
    begin = text.find('"nodes"')
    if begin < 0:
        if text.strip():
            told("files without nodes", text=text)
        return
    for node in lines.objects(text, told, what="nodes", begin=begin):
        inputs, attributes = node.get("inputs"), node.get("attrs")
        values = inputs.get("values") if isinstance(inputs, dict) else inputs  # a list up to schema 1.0.1
        found = [one for one in attributes if isinstance(one, dict)] if isinstance(attributes, list) else []
        numbers = [node.get("rf_id"), *(one.get("value") for one in found if one.get("name") == "rf_id")]
        size = sum(_tensors(values, depth=0))
        if size and lines.is_whole(size):
            yield from ((number, size) for number in numbers if isinstance(number, int) and lines.is_whole(number))


def _tensors(values: object, *, depth: int) -> Iterator[int]:
    """Bytes of each tensor in the values of a node: [tensor, storage, offset, elements, bytes of each, device]."""
    if not isinstance(values, list) or depth > 3:
        return
    if len(values) >= 6 and isinstance(values[5], str) and all(map(lines.is_whole, values[:5])):
        yield values[3] * values[4]
        return
    for one in values:
        yield from _tensors(one, depth=depth + 1)
