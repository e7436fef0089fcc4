"""YAML files as data that knows where each of its values stands, and the `--set` options laid over it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from orchestrator.core import secret_looks
from orchestrator.core.errors import ConfigError, shortened
from orchestrator.experiment.yamlfiles import yamltext

Keys = tuple[str | int, ...]  # the way to a value: keys of mappings and places in lists

MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of a file: its value, and whether that is the default or was set."""

    name: str
    value: Any
    type: str
    origin: str
    help: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file: its data, and where each of its values stands."""

    name: str
    data: Any
    root: yaml.Node | None
    overrides: Mapping[Keys, str] = field(
        default_factory=dict
    )  # path -> where what stands there came from ("--set key=value")
    parts: Mapping[Keys, Document] = field(default_factory=dict)  # path -> the file whose data stands there
    layers: tuple[Document, ...] = ()  # the files that were merged into this one, itself among them, the highest first
    variables: tuple[Variable, ...] = ()  # whose values are in the data

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of the files that it is made of, the highest first."""
        return tuple(dict.fromkeys(Path(layer.name).parent for layer in self.layers or (self,)))

    def below(self, key: str) -> Document:
        """What stands at a key, as a document of its own."""
        pairs = self.root.value if isinstance(self.root, yaml.MappingNode) else []
        root = next((value for name, value in pairs if name.value == key), None)
        layers = tuple(layer.below(key) for layer in self.layers if isinstance(layer.data.get(key), dict))
        return replace(self, data=self.data[key], root=root, layers=layers)

    def value(self, at: Sequence[str | int]) -> Any:
        """What stands at a path that is there."""
        found = self.data
        for step in at:
            found = found[step]
        return found

    def place(self, at: Sequence[str | int]) -> str:
        """`file:line:column` of the key (in a list: the entry) at this path, or of the nearest one above it."""
        owner, mark = self.found(at)
        if isinstance(owner, str):
            return owner
        return f"{owner.name}:{mark.line + 1}:{mark.column + 1}" if mark else f"{owner.name}:1:1"

    def rank(self, at: Sequence[str | int]) -> tuple[str, int, int]:
        """Sorts paths by file, line and column; options come first."""
        owner, mark = self.found(at)
        if isinstance(owner, str):
            return ("", 0, 0)
        return (owner.name, mark.line, mark.column) if mark else (owner.name, 0, 0)

    def found(self, at: Sequence[str | int]) -> tuple[Document | str, yaml.Mark | None]:
        """The document (or the origin of what was laid over it) that a path is in, and where in its file."""
        for length in range(len(at), 0, -1):
            head = tuple(at[:length])
            if head in self.parts:
                return self.parts[head].found(at[length:])
            if head in self.overrides:
                return self.overrides[head], None
        owner = max(self.layers, key=lambda layer: _depth(layer.data, at), default=self)  # of equal ones the highest
        return owner, _mark(owner.root, at)


def _depth(data: Any, at: Sequence[str | int]) -> int:
    """How far a path leads into data; all the way where it ends in what no lower file is merged with."""
    for depth, step in enumerate(at):
        if not isinstance(data, dict):
            return len(at)
        if step not in data:
            return depth
        data = data[step]
    return len(at)


def _mark(root: yaml.Node | None, at: Sequence[str | int]) -> yaml.Mark | None:
    node, mark = root, root.start_mark if root else None
    for step in at:
        if isinstance(node, yaml.MappingNode):
            # Merged pairs stand before the mapping's own, which win over them.
            match = next(((k, v) for k, v in reversed(node.value) if k.value == str(step)), None)
            if match is None:
                break
            mark, node = match[0].start_mark, match[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            mark = node.start_mark
        else:
            break
    return mark


def load(path: Path, *, needs: str) -> Document:
    """Read and parse a YAML file; ConfigError with the place of the first mistake.

    `needs` tells in messages what such a file has at least.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}; accepted: a YAML file with {needs}") from None
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{path}: is larger than {MOST_BYTES >> 20} MiB; accepted: a YAML file with {needs}")
    return parse(raw, name=str(path), needs=needs)


def parse(raw: bytes, *, name: str, needs: str, most: int = yamltext.MOST_NODES) -> Document:
    """Parse the bytes of a YAML file that is called `name` in messages and has at most so many values."""
    root, data = yamltext.parsed(yamltext.decoded(raw, name), name, most=most)
    if root is None:
        raise ConfigError(f"{name}:1:1: the file is empty; accepted: a mapping with at least {needs}")
    if not isinstance(data, dict):
        at = f"{name}:{root.start_mark.line + 1}:{root.start_mark.column + 1}"
        raise ConfigError(f"{at}: the file holds {kind_text(data)}; accepted: a mapping with at least {needs}")
    return Document(name=name, data=data, root=root)


def with_overrides(document: Document, options: Sequence[str]) -> Document:
    """Apply `key.path=value` options (values in YAML) to the document's data."""
    for option in options:
        key, equals, text = option.partition("=")
        origin = f"--set {shortened(secret_looks.masked(option))}"
        if not equals or len(key) > yamltext.MOST_KEY or not all(key.split(".")):
            raise ConfigError(
                f"{origin}: not a change; accepted: a key path, '=' and a value, as in measure.iterations=50"
            )
        try:
            value = yamltext.parsed(text, "value")[1]
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from None
        document = with_value(document, steps(key), value, origin=origin)
    return document


def steps(path: str) -> Keys:
    """The way that a dotted path names."""
    return tuple(int(step) if re.fullmatch("[0-9]{1,6}", step) else step for step in path.split("."))


def with_value(document: Document, way: Keys, value: Any, *, origin: str) -> Document:
    """The document with one value replaced; mistakes in it are told as at `origin`."""
    data = _replaced(document.data, way, value, origin=origin, at=())
    overrides = {path: owner for path, owner in document.overrides.items() if path[: len(way)] != way}
    return replace(document, data=data, overrides={**overrides, way: origin})


def _replaced(data: Any, way: Keys, value: Any, *, origin: str, at: Keys) -> Any:
    if not way:
        return value
    step, rest = way[0], way[1:]
    where = dotted(at) or "the file"
    if isinstance(data, list):
        if not isinstance(step, int) or step > len(data):
            last = f"0 to {len(data) - 1}, or {len(data)} to add one" if data else "0, to add one"
            raise ConfigError(f"{origin}: {where} is a list and has no entry {step}; accepted: {last}")
        inner = data[step] if step < len(data) else None
        return [*data[:step], _replaced(inner, rest, value, origin=origin, at=(*at, step)), *data[step + 1 :]]
    if data is None or data == step:  # nothing, or a part's bare name: make room below it
        data = {} if data is None else {data: {}}
    if not isinstance(data, dict):
        raise ConfigError(f"{origin}: {where} is {kind_text(data)}; there is nothing below it")
    key = str(step)
    return {**data, key: _replaced(data.get(key), rest, value, origin=origin, at=(*at, key))}


def dotted(at: Sequence[str | int]) -> str:
    """A path as messages and `--set` write it."""
    return ".".join(str(step) for step in at)


def kind_text(value: Any) -> str:
    """What kind of thing a value is, in the words of a YAML file's author."""
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), f"a {type(value).__name__}")
