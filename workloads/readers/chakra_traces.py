"""Read what a rank of a recorded training did from a Chakra execution trace, as its protobuf files hold it.

https://github.com/mlcommons/chakra, `schema/protobuf/et_def.proto`: GlobalMetadata and then nodes, each message behind
its length. Of a node those fields are read that tell what it was, when, behind what, and what it sent; `comm_size` is
what the rank brings to the operation, in bytes. Dependencies are `data_deps`, as its feeder takes them. A trace is data
of a stranger: its size, nodes and dependencies are bounded, and what is damaged is a ConfigError that names the place.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from orchestrator.core.errors import ConfigError, UnsafePath
from orchestrator.core.paths import safepath

MOST_BYTES = 1 << 27  # of a file, unpacked
MOST_NODES = 200_000  # of a file
MOST_DEPENDENCIES = 1_000_000  # of a file
MOST_RANKS = 1 << 16  # of a group

# NodeType of the schema; others are of memory.
METADATA, COMPUTATION, SEND, RECEIVE, COLLECTIVE = 1, 4, 5, 6, 7
COLLECTIVES: Mapping[str, int] = {
    "all-reduce": 0, "reduce": 1, "all-gather": 2, "gather": 3, "scatter": 4, "broadcast": 5, "all-to-all": 6,
    "reduce-scatter": 7, "barrier": 9,
}  # fmt: skip
GROUPS = "## process_group:init ##"  # the node of PyTorch's traces that says which ranks each process group has
_OPERATIONS = {number: name for name, number in COLLECTIVES.items()} | {8: "reduce-scatter"}  # ..._BLOCK

Kind = Literal["compute", "collective", "send", "receive"]

# Fields of a node.
_NUMBER, _NAME, _KIND, _DATA_DEPS, _START, _TOOK, _INPUTS, _ATTRIBUTE = 1, 2, 3, 5, 6, 7, 8, 10
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_ALL_BITS = 0xFFFF_FFFF_FFFF_FFFF
_LONGEST_NAME = 60
_LARGEST = 1 << 40  # bytes of a message, and microseconds: twelve days
_WANTED = frozenset(
    {"is_cpu_op", "iteration", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "pg_name", "tid", "stream"}
    | {"what", "root"}
)
_INTEGERS = frozenset({7, 9, 11, 13, 27})  # of AttributeProto: (u)int32, (u)int64, bool
_ZIGZAG, _STRING = frozenset({15, 17}), 29

_Attributes = Mapping[str, "int | str"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Something that a rank did: its times in microseconds, where the trace has them; sizes in bytes."""

    number: int
    name: str
    kind: Kind
    after: tuple[int, ...]  # numbers of nodes
    start_us: int
    took_us: int
    lane: str  # of a computation: those of one follow one another
    iteration: int | None
    what: str = ""
    operation: str = ""  # of a collective
    size: int = 0
    group: str = ""  # its name; empty for all ranks
    peer: int | None = None  # of a send or receive
    root: int | None = None  # of a collective that has one
    tag: int = 0


@dataclass(frozen=True, slots=True)
class RankTrace:
    """The nodes of a rank, and the ranks of each process group by its name: none for all."""

    path: Path
    nodes: tuple[Node, ...]
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class _Damaged(ValueError):
    pass


def read_trace(path: Path) -> RankTrace:
    """Return what a file says; ConfigError with file and node where it cannot be one."""
    content = _content(path)
    groups: dict[str, tuple[int, ...]] = {}
    nodes: dict[int, Node] = {}
    dependencies = 0
    for place, message in enumerate(_messages(content, path)):
        if not place:
            continue  # of the file as a whole, nothing of which is needed
        try:
            node = _node(message, groups)
        except (_Damaged, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: node {place} of the file: {error}") from None
        if node.number in nodes:
            raise ConfigError(f"{path}: node {place} of the file: its number {node.number} is that of another one")
        dependencies += len(node.after)
        if place > MOST_NODES or dependencies > MOST_DEPENDENCIES:
            raise ConfigError(f"{path}: more than {MOST_NODES} nodes, or {MOST_DEPENDENCIES} dependencies")
        nodes[node.number] = node
    if not nodes:
        raise ConfigError(f"{path}: it has no nodes, so it is no execution trace of Chakra")
    return RankTrace(path, tuple(nodes.values()), groups)


def read_groups(path: Path) -> Mapping[str, tuple[int, ...]]:
    """Return the ranks of each process group by its name from ASTRA-sim's file of them: `{"1": [0, 1], ...}`."""
    try:
        found = json.loads(_content(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: it has no groups by their names", hint='such as {"1": [0, 1], "2": [2, 3]}')
    try:
        return {name: _members(ranks) for name, ranks in found.items()}
    except _Damaged as error:
        raise ConfigError(f"{path}: {error}", hint='such as {"1": [0, 1], "2": [2, 3]}') from None


def _content(path: Path) -> bytes:
    try:
        with safepath.opened(path) as file:
            content = (gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file).read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error, UnsafePath) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path}: more than {MOST_BYTES} bytes")
    return content


def _messages(content: bytes, path: Path) -> Iterator[bytes]:
    """Yield the messages of a file."""
    at = 0
    while at < len(content):
        begin = at
        try:
            size, at = _varint(content, at)
        except _Damaged as error:
            raise ConfigError(f"{path}: byte {begin}: {error}") from None
        if size > len(content) - at:
            raise ConfigError(f"{path}: byte {begin}: a message of {size} bytes does not end in the file")
        yield content[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _ALL_BITS, at
        shift += 7
    raise _Damaged("a number that does not end")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message: a whole number, or bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == _LENGTH:
            size, at = _varint(message, at)
        elif wire in _WIDTHS:
            size = _WIDTHS[wire]
        else:
            raise _Damaged(f"field {number} is of no type that protobuf has")
        if size > len(message) - at:
            raise _Damaged(f"field {number} does not end in the message")
        if wire == _LENGTH:
            yield number, message[at : at + size]
        at += size


def _node(message: bytes, groups: dict[str, tuple[int, ...]]) -> Node:
    """Return a node; the groups that one of PyTorch's tells go into `groups`."""
    numbers: dict[int, int] = {}
    texts: dict[int, bytes] = {}
    after: list[int] = []
    attributes: dict[str, int | str] = {}
    for which, value in _fields(message):
        if which == _DATA_DEPS:
            after += _packed(value) if isinstance(value, bytes) else [value]
        elif isinstance(value, int):
            numbers[which] = value
        elif which == _ATTRIBUTE:
            attributes.update(_attribute(value))
        else:
            texts[which] = value
    name = texts.get(_NAME, b"").decode()
    start_us, took_us = numbers.get(_START, 0), numbers.get(_TOOK, 0)
    if name == GROUPS:
        groups.update(_groups(texts.get(_INPUTS, b"")))
    if max(start_us >> 20, took_us) > _LARGEST:
        raise _Damaged(f"{name[:_LONGEST_NAME]} lasts {took_us} us from {start_us} us on")
    told = {"number": numbers.get(_NUMBER, 0), "name": name[:_LONGEST_NAME], "after": tuple(after)}
    return _typed(numbers.get(_KIND, 0), attributes, told, start_us=start_us, took_us=took_us)


def _typed(kind: int, attributes: _Attributes, told: Mapping[str, object], *, start_us: int, took_us: int) -> Node:
    where = {
        **told,
        "start_us": start_us,
        "took_us": took_us,
        "iteration": _whole(attributes, "iteration"),
        "what": str(attributes.get("what", ""))[:_LONGEST_NAME],
    }
    on_cpu = bool(attributes.get("is_cpu_op", False))
    if kind not in (SEND, RECEIVE, COLLECTIVE) or on_cpu:  # of a communication what the processor does to begin it
        stream = attributes.get("stream", attributes.get("tid", ""))
        lane = "memory" if kind in (2, 3) else f"{'cpu' if on_cpu else 'gpu'} {stream}"
        return Node(kind="compute", lane=lane, **where)  # type: ignore[arg-type]
    size = _whole(attributes, "comm_size")
    sent = {
        **where,
        "lane": "",
        "size": size or 0,
        "group": str(attributes.get("pg_name", "")),
        "tag": _whole(attributes, "comm_tag") or 0,
    }
    if kind == COLLECTIVE:
        operation = _OPERATIONS.get(_whole(attributes, "comm_type") or 0)
        if operation is None:
            raise _Damaged(f"its comm_type {attributes['comm_type']} is no collective of the schema")
        if size is None and operation != "barrier":
            raise _Damaged(f"it is a collective ({operation}) without a comm_size")
        root = _whole(attributes, "root")
        return Node(kind="collective", operation=operation, root=root, **sent)  # type: ignore[arg-type]
    if size is None:
        raise _Damaged("it sends or receives without a comm_size")
    peer = _whole(attributes, "comm_dst" if kind == SEND else "comm_src")
    return Node(kind="send" if kind == SEND else "receive", peer=peer, **sent)  # type: ignore[arg-type]


def _whole(attributes: _Attributes, name: str) -> int | None:
    """Return a count or a rank; None where it is not told."""
    value = attributes.get(name)
    if value is None:
        return None
    if isinstance(value, str) or not 0 <= value <= _LARGEST:
        raise _Damaged(f"its {name} is {value!r}, which is no count")
    return value


def _packed(value: bytes) -> list[int]:
    found, at = [], 0
    while at < len(value):
        one, at = _varint(value, at)
        found.append(one)
        if len(found) > MOST_DEPENDENCIES:
            raise _Damaged(f"it has more than {MOST_DEPENDENCIES} dependencies")
    return found


def _attribute(message: bytes) -> dict[str, int | str]:
    """Return the name and value of an attribute that is wanted, else nothing."""
    name = ""
    found: int | str | None = None
    for number, value in _fields(message):
        if isinstance(value, bytes):
            if number == 1:
                name = value.decode()
                if name not in _WANTED:
                    return {}
            elif number == _STRING:
                found = value.decode()
        elif number in _INTEGERS:
            found = value - (1 << 64) if value >> 63 else value
        elif number in _ZIGZAG:
            found = (value >> 1) ^ -(value & 1)
    return {} if found is None or name not in _WANTED else {name: found}


def _groups(inputs: bytes) -> dict[str, tuple[int, ...]]:
    """Return the groups of PyTorch's node that tells them: a list with one text, which is JSON, in IOInfo's values."""
    values = next((value.decode() for number, value in _fields(inputs) if number == 1 and isinstance(value, bytes)), "")
    text = values[values.find("[{") : values.rfind("}]") + 2]
    try:
        found = json.loads(text)
        return {str(one["pg_name"]): _members(one["ranks"]) for one in found}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _Damaged("it names no process groups that can be read") from None


def _members(ranks: object) -> tuple[int, ...]:
    if not isinstance(ranks, list) or len(ranks) > MOST_RANKS:
        raise _Damaged(f"a group has no list of at most {MOST_RANKS} ranks")
    if any(type(rank) is not int or not 0 <= rank < MOST_RANKS for rank in ranks) or len(set(ranks)) < len(ranks):
        raise _Damaged("a group's ranks are not different ones")
    return tuple(sorted(ranks))
