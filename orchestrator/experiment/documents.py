"""Read YAML files with their includes, as data with the file, line and column of each value.

`include:` lays other files under a file, so that what several experiments share is written once. Data of the files are
merged as JSON Merge Patch does it (RFC 7396): mappings key by key, of anything else the higher one as a whole, and null
takes a key away. Highest is the file itself, then the last of its includes; what an include includes lies below that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from orchestrator.core.errors import ConfigError, shortened
from orchestrator.core.paths import safepath
from orchestrator.experiment import yamltext

Keys = tuple[str | int, ...]  # the way to a value: keys of mappings and places in lists

MOST_BYTES = 1 << 20  # of a file
INCLUDE = "include"
MOST_FILES = 32  # that are laid under each other
_ACCEPTED = "a path from this file's folder, or a list of them"


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
    """A YAML file: its data, and the place of each value."""

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
        """Return the folders of the files that it is made of, the highest first."""
        return tuple(dict.fromkeys(Path(layer.name).parent for layer in self.layers or (self,)))

    def below(self, key: str) -> Document:
        """Return the value at a key, as a document of its own."""
        pairs = self.root.value if isinstance(self.root, yaml.MappingNode) else []
        root = next((value for name, value in pairs if name.value == key), None)
        layers = tuple(layer.below(key) for layer in self.layers if isinstance(layer.data.get(key), dict))
        return replace(self, data=self.data[key], root=root, layers=layers)

    def value(self, at: Sequence[str | int]) -> Any:
        """Return the value at a path that exists."""
        found = self.data
        for step in at:
            found = found[step]
        return found

    def place(self, at: Sequence[str | int]) -> str:
        """Return `file:line:column` of the key (in a list: the entry) at this path, or of the nearest one above it."""
        owner, mark = self.owner(at)
        if isinstance(owner, str):
            return owner
        return f"{owner.name}:{mark.line + 1}:{mark.column + 1}" if mark else f"{owner.name}:1:1"

    def rank(self, at: Sequence[str | int]) -> tuple[str, int, int]:
        """Return a key that sorts paths by file, line and column; options come first."""
        owner, mark = self.owner(at)
        if isinstance(owner, str):
            return ("", 0, 0)
        return (owner.name, mark.line, mark.column) if mark else (owner.name, 0, 0)

    def owner(self, at: Sequence[str | int]) -> tuple[Document | str, yaml.Mark | None]:
        """Find the document (or the origin of a value laid over it) that has a path, and the path in its file."""
        for length in range(len(at), 0, -1):
            head = tuple(at[:length])
            if head in self.parts:
                return self.parts[head].owner(at[length:])
            if head in self.overrides:
                return self.overrides[head], None
        owner = max(self.layers, key=lambda layer: _depth(layer.data, at), default=self)  # of equal ones the highest
        return owner, _mark(owner.root, at)


def _depth(data: Any, at: Sequence[str | int]) -> int:
    """Return how many steps of a path exist in data.

    Where it meets a value that lower files are not merged with, all of its steps count.
    """
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
    """Read a file and all that it includes; ConfigError with the place of the first mistake."""
    own = _load_one(path, needs=needs)
    if INCLUDE not in own.data:
        return own
    layers: list[Document] = []
    for layer in _layers(own, path, ()):
        if len(layers) == MOST_FILES:
            raise ConfigError(
                f"{own.place((INCLUDE,))}: include: more than {MOST_FILES} files; accepted: at most {MOST_FILES}"
            )
        layers.append(layer)
    merged: Any = {}
    for layer in reversed(layers):
        merged = patched(merged, layer.data)
    return replace(own, data=merged, layers=tuple(layers))


def patched(low: Any, high: Any) -> Any:
    """Return the second value laid over the first (RFC 7396, section 2)."""
    if not isinstance(high, dict):
        return high
    found = dict(low) if isinstance(low, dict) else {}
    for key, value in high.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = patched(found.get(key), value)
    return found


def _layers(own: Document, path: Path, above: Sequence[Path]) -> Iterator[Document]:
    """Yield a file and its includes, without their `include` keys, the highest first; `above` are the files above it.

    Each is read when it is asked for.
    """
    chain = [*above, path.resolve()]
    named = own.data.get(INCLUDE, ())
    named = [named] if isinstance(named, str) else named
    if not isinstance(named, list | tuple) or not all(isinstance(one, str) for one in named):
        raise ConfigError(f"{own.place((INCLUDE,))}: include: holds {kind_text(own.data[INCLUDE])}; {_ACCEPTED}")
    yield replace(own, data={key: value for key, value in own.data.items() if key != INCLUDE})
    for place in reversed(range(len(named))):
        at = (INCLUDE, place) if isinstance(own.data[INCLUDE], list) else (INCLUDE,)
        where = f"{own.place(at)}: {dotted(at)}"
        other = _beside(named[place], path, where)
        if other.resolve() in chain:
            circle = " -> ".join(str(file) for file in [*chain[chain.index(other.resolve()) :], other.resolve()])
            raise ConfigError(f"{where}: goes in a circle: {circle}; accepted: a file that does not include this one")
        if len(chain) >= MOST_FILES:
            raise ConfigError(f"{where}: {len(chain)} files include each other; accepted: fewer than {MOST_FILES}")
        yield from _layers(_load_one(other, needs="keys of an experiment"), other, chain)


def _beside(named: str, path: Path, where: str) -> Path:
    """Return the path of an included file, in the including file's folder unless the path itself leads out of it."""
    folder = path.parent
    try:
        given = Path(named).expanduser()
    except RuntimeError:  # no such user's home
        given = Path(named)
    found = folder / given
    if not safepath.is_there(found):
        raise ConfigError(f"{where}: no file {shortened(str(found))}; accepted: {_ACCEPTED}")
    says_so = given.is_absolute() or ".." in given.parts
    if not says_so and not found.resolve().is_relative_to(folder.resolve()):
        raise ConfigError(
            f"{where}: {found} is a link to {found.resolve()}; accepted: that path itself, if it is meant"
        )
    return found


def _load_one(path: Path, *, needs: str) -> Document:
    """Read and parse a YAML file; ConfigError with the place of the first mistake.

    `needs` names in messages the keys that such a file needs.
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


def dotted(at: Sequence[str | int]) -> str:
    """Write a path as messages and `--set` do."""
    return ".".join(str(step) for step in at)


def kind_text(value: Any) -> str:
    """Name the kind of a value, in the words of a YAML file's author."""
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), f"a {type(value).__name__}")
