"""Expand inventories of many hosts in few lines: names as node sets, `n[1-64]`, and names from a hosts file."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.core.errors import ConfigError
from orchestrator.core.opendata import YamlMapping
from orchestrator.core.paths import lookup

MOST = 4096  # hosts of an inventory
MOST_TEXT = 1 << 22  # characters of what stands below node sets, spelled out for each host
_RANGES = re.compile(r"\[([0-9][0-9,/-]*)\]")  # and no address of IPv6, which stands in such brackets too
_FILE = "@"  # before the path of a hosts file
_SLOTS = re.compile(r"(?:slots|max[_-]slots)=(\d+)\Z")
_SIZE = 1 << 20
_BETWEEN = re.compile(r"[,!&^](?![^\[\]]*\])")  # what joins node sets, outside of brackets
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")


def expanded(data: YamlMapping, folders: Sequence[Path], *, where: str) -> YamlMapping:
    """Spell out node sets and hosts files of an inventory (as data); ConfigError, at `where`, for one that is wrong.

    Values below a set are those of each host: of sets in them the first host gets the first element, and so on, and
    {name} is the host's name.
    """
    hosts = data.get("hosts")
    if not isinstance(hosts, Mapping) or not any(_is_many(str(name)) for name in hosts):
        return dict(data)
    if importlib.util.find_spec("ClusterShell") is None:
        raise ConfigError(f"{where}: node sets and hosts files need ClusterShell", hint="pip install ClusterShell")
    found: YamlMapping = {}
    for key, below in hosts.items():
        for name, one in _hosts(str(key), below, folders, where=f"{where}: hosts.{key}"):
            if name in found:
                raise ConfigError(f"{where}: hosts.{key}: a second host {name}; accepted: each host once")
            found[name] = one
            if len(found) > MOST:
                raise ConfigError(f"{where}: hosts: more than {MOST}; accepted: at most {MOST}")
    return {**data, "hosts": found}


def _is_many(name: str) -> bool:
    return name.startswith(_FILE) or _RANGES.search(name) is not None


def _hosts(key: str, below: Any, folders: Sequence[Path], *, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the hosts of one key, each with its own values of those below the key."""
    if not _is_many(key):
        yield key, below
        return
    slots: Sequence[int | None]
    if key.startswith(_FILE):
        names, slots = _of_file(key[len(_FILE) :], folders, where=where)
    else:
        names = _names(key, where=where)
        slots = [None] * len(names)
    if sum(len(text) + 1 for text in _texts(below)) * len(names) > MOST_TEXT:
        message = f"{len(names)} hosts come to more than {MOST_TEXT} characters of what stands below"
        raise ConfigError(f"{where}: {message}; accepted: less below a set, or fewer hosts")
    columns = _columns(below, names, where=where)
    for place, name in enumerate(names):
        one = _own(below, name, {text: column[place] for text, column in columns.items()})
        if slots[place] is not None and isinstance(one, dict):
            one.setdefault("slots", slots[place])
        yield name, one


def _names(text: str, *, where: str) -> list[str]:
    """Return the elements of a node set, in its order, as ClusterShell reads it."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    if (most := sum(map(_product, _BETWEEN.split(text)))) > MOST:
        raise ConfigError(f"{where}: {most} hosts; accepted: at most {MOST}")
    try:
        nodes = NodeSet(text, resolver=RESOLVER_NOGROUP)
    except NodeSetException as error:
        raise ConfigError(
            f"{where}: not a node set: {error}; accepted: such as n[1-64] or rack[1-2]-n[01-32]"
        ) from None
    return [str(node) for node in nodes]


def _ranges(text: str, *, where: str) -> list[str]:
    """Return the texts that one with ranges in brackets expands to; the last range runs fastest."""
    from ClusterShell.RangeSet import RangeSet, RangeSetException

    parts = _RANGES.split(text)
    if (size := math.prod(map(_length, parts[1::2]))) > MOST:
        raise ConfigError(f"{where}: {text} stands for {size} values; accepted: at most {MOST}")
    try:
        sets = [RangeSet(part) for part in parts[1::2]]
    except RangeSetException as error:
        raise ConfigError(f"{where}: not a range: {error}; accepted: such as [1-64], [001-064] or [1-63/2]") from None
    return [
        "".join(itertools.chain.from_iterable(itertools.zip_longest(parts[::2], values, fillvalue="")))
        for values in itertools.product(*(list(one) for one in sets))
    ]


def _product(text: str) -> int:
    """Return how many elements a node set without operators has at most, by its ranges alone: none of it is made."""
    return math.prod(map(_length, _BRACKETS.findall(text)))


def _length(ranges: str) -> int:
    """Return how many numbers ranges such as "1-63/2,70" have at most; 1 for no range, which ClusterShell refuses."""
    count = 0
    for one in ranges.split(","):
        span, _, step = one.partition("/")
        first, _, last = span.partition("-")
        try:
            count += max(1, (int(last or first) - int(first)) // max(1, int(step or 1)) + 1)
        except ValueError:
            count += 1
    return count


def _columns(below: Any, names: Sequence[str], *, where: str) -> dict[str, list[str]]:
    """Return for each text with ranges below a set its value for each host."""
    columns = {}
    for text in _texts(below):
        if _RANGES.search(text):
            columns[text] = _ranges(text, where=where)
            if len(columns[text]) != len(names):
                message = f"{text} stands for {len(columns[text])} values, and there are {len(names)} hosts"
                raise ConfigError(f"{where}: {message}; accepted: as many")
    return columns


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)


def _own(value: Any, name: str, texts: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return texts.get(value, value).replace("{name}", name)
    if isinstance(value, Mapping):
        return {key: _own(inner, name, texts) for key, inner in value.items()}
    return value


def _of_file(named: str, folders: Sequence[Path], *, where: str) -> tuple[list[str], list[int | None]]:
    """Read names and slots of a hosts file in Open MPI's format: one host a line ("n1 slots=8"), comments after `#`."""
    path = lookup.find(named, folders)
    if path is None:
        raise ConfigError(f"{where}: {lookup.nowhere(named, folders)}; accepted: {lookup.ACCEPTED}")
    names: list[str] = []
    slots: list[int | None] = []
    for number, line in enumerate(_lines(path, where=where), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        matches = [_SLOTS.match(word) for word in words[1:]]
        if not all(matches):
            message = f"{path}:{number}: what is not NAME [slots=N]: {line.strip()[:80]}"
            raise ConfigError(f"{where}: {message}; accepted: such as n1 slots=8")
        own = [int(match[1]) for match, word in zip(matches, words[1:], strict=True) if match and word[0] == "s"]
        for name in _names(words[0], where=f"{path}:{number}"):
            names.append(name)
            slots.append(own[0] if own else None)
        if len(names) > MOST:
            raise ConfigError(f"{where}: {path}:{number}: more than {MOST} hosts; accepted: at most {MOST}")
    if not names:
        raise ConfigError(f"{where}: {path} names no host; accepted: one host a line")
    return names, slots


def _lines(path: Path, *, where: str) -> list[str]:
    try:
        with path.open("rb") as file:
            text = file.read(_SIZE + 1)
        if len(text) > _SIZE:
            raise ConfigError(f"{where}: {path} is larger than {_SIZE >> 20} MiB; accepted: one host a line")
        return text.decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {path} cannot be read: {error}") from None
