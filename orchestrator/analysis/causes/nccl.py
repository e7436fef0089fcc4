"""Read what NCCL and PyTorch wrote of collectives on GPUs: which rank was last, which collective hangs, bus bandwidth.

Files of two programs are known, in any folder:

- PyTorch's flight recorder as JSON (`torch._C._distributed_c10d._dump_nccl_trace_json()`), one file a rank whose name
  ends in the rank's number. What it dumps by itself is a pickle, which would run code when read: it is passed over.
- NCCL Inspector (`ext-profiler/inspector` of NCCL 2.28), JSON objects one after another.

They are of the training that is looked at, and untrusted: bounded, and checked field by field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from orchestrator.core.errors import ConfigError
from orchestrator.core.opendata import JsonObject
from orchestrator.core.screen import terminal
from orchestrator.core.units import bytes_text, span_text

MOST_FILES = 4096
MOST_BYTES = 1 << 26  # of a file: of a longer one the first part is read
MOST_OPERATIONS = 2_000_000
LEAST_WAIT_S = 1e-4  # a rank that is last by less is not late: kernels begin a little apart

_SUFFIXES = (".json", ".jsonl", ".log")
_RANK = re.compile(r"(\d+)(?:\.\w+)?$")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What a rank did of a collective: the `number`-th of its group; seconds and bit rate are NaN where not told."""

    group: str
    number: int
    kind: str
    rank: int
    host: str = ""
    size: int = 0
    seconds: float = math.nan
    begun_ns: int = 0
    bus_bytes_s: float = math.nan
    done: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A rank that others wait for: in how many of the collectives that were compared, and for how long (median)."""

    rank: int
    host: str
    times: int
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """The first collective of a group that some rank has not finished: who is in it, and who never began it."""

    group: str
    number: int
    kind: str
    waiting: tuple[int, ...]
    absent: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """What the files of a folder say; `compared` collectives have times of every rank that is known of their group.

    `bus` is the bus bandwidth of each rank (median), in bytes/s.
    """

    files: int
    ranks: int
    compared: int
    late: tuple[Late, ...]
    stuck: tuple[Stuck, ...]
    longest: Operation | None
    bus: dict[int, float] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def read(folder: Path) -> Collectives:
    """Read the files of a folder and of those in it; ConfigError where it holds none that is known."""
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix in _SUFFIXES and path.is_file()][
        : MOST_FILES + 1
    ]
    left_out = [f"files after the first {MOST_FILES}"] if len(paths) > MOST_FILES else []
    found: list[Operation] = []
    files = 0
    for path in paths[:MOST_FILES]:
        try:
            of_file = list(_operations(path))
        except (OSError, ValueError, RecursionError) as error:
            left_out.append(f"{path.name}: {terminal.line(str(error))[:100]}")
            continue
        files += bool(of_file)
        found += of_file
        if len(found) > MOST_OPERATIONS:
            left_out.append(f"files after {path.name}: more than {MOST_OPERATIONS} operations")
            break
    if not found:
        why = f"; left out: {left_out[0]}" if left_out else ""
        raise ConfigError(
            f"--nccl {folder}: no operation of NCCL in it{why}; accepted: JSON of NCCL Inspector, or of PyTorch's "
            "flight recorder in files whose names end in the rank"
        )
    return _summed(found, files, tuple(left_out))


def _operations(path: Path) -> Iterator[Operation]:
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    whole, text = len(data) <= MOST_BYTES, data[:MOST_BYTES].decode("utf-8", "replace")
    at = _after_space(text, 0)
    while at < len(text):
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
        except ValueError:
            if not whole:
                return  # its last object is cut
            raise
        at = _after_space(text, at)
        if isinstance(value, dict) and isinstance(value.get("entries"), list):
            yield from _of_recorder(value["entries"], path)
        elif isinstance(value, dict) and isinstance(value.get("coll_perf"), dict):
            yield _of_inspector(value)


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _of_recorder(entries: Sequence[object], path: Path) -> Iterator[Operation]:
    named = _RANK.search(path.name)
    if named is None:
        raise ValueError("its name does not end in a rank")
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("is_p2p") is True:
            continue
        group = entry.get("process_group")
        took = entry.get("duration_ms")
        yield Operation(
            group=_text(group[0] if isinstance(group, list) and group else entry.get("pg_id")),
            number=_number(entry, "collective_seq_id"),
            kind=_text(entry.get("profiling_name")).removeprefix("nccl:"),
            rank=int(named[1][:9]),
            seconds=took / 1e3 if isinstance(took, int | float) and took > 0 else math.nan,
            begun_ns=_number(entry, "time_created_ns"),
            done=entry.get("state") == "completed",
        )


def _of_inspector(value: JsonObject) -> Operation:
    header, about = (value[name] if isinstance(value.get(name), dict) else {} for name in ("header", "metadata"))
    said = value["coll_perf"]
    bus = said.get("coll_busbw_gbs")
    return Operation(
        group=_text(header.get("id")),
        number=_number(said, "coll_sn"),
        kind=_text(said.get("coll")),
        rank=_number(header, "rank"),
        host=_text(about.get("hostname")),
        size=_number(said, "coll_msg_size_bytes"),
        seconds=_number(said, "coll_exec_time_us") / 1e6 or math.nan,
        bus_bytes_s=1e9 * bus if isinstance(bus, int | float) and bus > 0 else math.nan,
    )


def _number(value: JsonObject, name: str) -> int:
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 63:
        raise ValueError(f"{name} is no number from 0")
    return found


def _text(value: object) -> str:
    return terminal.line(str(value if value is not None else ""))[:80]


def _summed(found: Sequence[Operation], files: int, left_out: tuple[str, ...]) -> Collectives:
    each: dict[tuple[str, int], dict[int, Operation]] = {}
    members: dict[str, set[int]] = {}
    for one in found:
        each.setdefault((one.group, one.number), {})[one.rank] = one
        members.setdefault(one.group, set()).add(one.rank)
    waits: dict[int, list[float]] = {}
    compared = 0
    for (group, _), by_rank in each.items():
        if len(by_rank) < 2 or by_rank.keys() != members[group] or not all(one.done for one in by_rank.values()):
            continue
        compared += 1
        last, wait = _last(list(by_rank.values()))
        if wait >= LEAST_WAIT_S:
            waits.setdefault(last, []).append(wait)
    hosts = {one.rank: one.host for one in found}
    late = [
        Late(rank=rank, host=hosts[rank], times=len(several), wait_s=median(several)) for rank, several in waits.items()
    ]
    timed = [one for one in found if not math.isnan(one.seconds)]
    bus: dict[int, list[float]] = {}
    for one in found:
        if not math.isnan(one.bus_bytes_s):
            bus.setdefault(one.rank, []).append(one.bus_bytes_s)
    return Collectives(
        files=files,
        ranks=len({one.rank for one in found}),
        compared=compared,
        late=tuple(sorted(late, key=lambda one: (-one.times, one.rank))),
        stuck=tuple(_stuck(each, members)),
        longest=max(timed, key=lambda one: one.seconds, default=None),
        bus={rank: median(several) for rank, several in sorted(bus.items())},
        left_out=left_out,
    )


def _last(ranks: Sequence[Operation]) -> tuple[int, float]:
    """Return the rank that joined a collective last, and how long half of the others waited for it, or longer.

    All leave a collective at about the same time, so that the last one spends the least time in it, whatever its clock.
    Where durations are missing, it is who began last by the hosts' clocks.
    """
    if not any(math.isnan(one.seconds) for one in ranks):
        last = min(ranks, key=lambda one: one.seconds)
        return last.rank, median(one.seconds for one in ranks if one is not last) - last.seconds
    last = max(ranks, key=lambda one: one.begun_ns)
    return last.rank, (last.begun_ns - median(one.begun_ns for one in ranks if one is not last)) / 1e9


def _stuck(each: dict[tuple[str, int], dict[int, Operation]], members: dict[str, set[int]]) -> Iterator[Stuck]:
    """Yield the first unfinished collective of each group."""
    first: dict[str, int] = {}
    for (group, number), by_rank in each.items():
        if not all(one.done for one in by_rank.values()):
            first[group] = min(number, first.get(group, number))
    for group, number in sorted(first.items()):
        by_rank = each[group, number]
        yield Stuck(
            group=group,
            number=number,
            kind=next(iter(by_rank.values())).kind,
            waiting=tuple(sorted(rank for rank, one in by_rank.items() if not one.done)),
            absent=tuple(sorted(members[group] - by_rank.keys())),
        )


def text(found: Collectives) -> list[str]:
    """Return it in a few lines, most urgent first."""
    return list(_lines(found))


def _lines(found: Collectives) -> Iterator[str]:
    yield f"nccl     {found.compared} collectives of {found.ranks} ranks could be compared, in {found.files} files"
    for one in found.stuck:
        never = f"; {_ranks(one.absent)} never began it" if one.absent else ""
        yield f"stuck    {one.kind} {one.number} of group {one.group}: {_ranks(one.waiting)} did not finish it{never}"
    for late in found.late[:1]:
        where = f" on {late.host}" if late.host else ""
        often = f"in {late.times} of {found.compared} collectives"
        yield f"last     rank {late.rank}{where} {often}; others waited {span_text(late.wait_s)} for it (median)"
    if found.compared and not found.late:
        yield f"last     nobody: ranks join within {span_text(LEAST_WAIT_S)} of each other"
    if (longest := found.longest) is not None:
        size = f" of {bytes_text(longest.size)}" if longest.size else ""
        took = f"{span_text(longest.seconds)} on rank {longest.rank}"
        yield f"longest  {longest.kind} {longest.number}{size}: {took}"
    if found.bus:
        least, most = (pick(found.bus, key=lambda rank: found.bus[rank]) for pick in (min, max))
        yield (
            f"busbw    {bytes_text(median(found.bus.values()))}/s (median of ranks); rank {least} "
            f"{bytes_text(found.bus[least])}/s, rank {most} {bytes_text(found.bus[most])}/s: the last to join sees most"
        )
    for why in found.left_out[:3]:
        yield f"left out {why}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
