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

Keys = tuple[str | int, ...]  # the way to a value: keys of mappings and places in lists

MOST_BYTES = 1 << 20
MOST_NODES = 20_000  # of a document with its aliases spelled out: more is a mistake or an attack
MOST_DEPTH = 32
MOST_DIGITS = 30
MOST_KEY = 200  # characters
_TOO_DEEP = f"nested more than {MOST_DEPTH} deep"
_TOO_MANY = f"with this there are more than {MOST_NODES} values, all aliases spelled out"

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
# The core schema of YAML 1.2: what YAML 1.1 takes for dates, for base 60 ("1:30"), for base 8 ("010") or for booleans
# ("no", "on") stays the text that it looks like.
_RESOLVERS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+][0-9]+)?|\.[0-9]+(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", "<<", "<"),
)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2, and with a floor."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own way

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._count = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        self._count += 1
        if self._depth > MOST_DEPTH or self._count > MOST_NODES:
            told = _TOO_DEEP if self._depth > MOST_DEPTH else _TOO_MANY
            raise yaml.composer.ComposerError(None, None, told, self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


for _name, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), list(_first))


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
        return self, _mark(self.root, at)


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
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{path}: cannot be read: {told}; accepted: a YAML file with {needs}") from None
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{path}: is larger than {MOST_BYTES >> 20} MiB; accepted: a YAML file with {needs}")
    return parse(raw, name=str(path), needs=needs)


def parse(raw: bytes, *, name: str, needs: str) -> Document:
    """Parse the bytes of a YAML file that is called `name` in messages."""
    root, data = _parsed(_text(raw, name), name)
    if root is None:
        raise ConfigError(f"{name}:1:1: the file is empty; accepted: a mapping with at least {needs}")
    if not isinstance(data, dict):
        at = f"{name}:{root.start_mark.line + 1}:{root.start_mark.column + 1}"
        raise ConfigError(f"{at}: the file holds {kind_text(data)}; accepted: a mapping with at least {needs}")
    return Document(name=name, data=data, root=root)


def _text(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # `start` counts from behind a byte order mark, which counts as no column either.
        body = raw.removeprefix(b"\xef\xbb\xbf")
        before = body[: error.start].decode("utf-8")
        utf16 = " (this looks like UTF-16)" if body[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise ConfigError(
            f"{name}:{_line_column(before)}: not UTF-8: byte 0x{body[error.start]:02x}{utf16}; accepted: text in UTF-8"
        ) from None


def _line_column(before: str) -> str:
    """Where a text is that has so much before it; lines end as YAML ends them."""
    lines = re.split(r"\r\n|[\r\n\x85\u2028\u2029]", before)
    return f"{len(lines)}:{len(lines[-1]) + 1}"


def _parsed(text: str, name: str) -> tuple[yaml.Node | None, Any]:
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None, None
            _refuse_oddities(root, name, loader)
            return root, loader.construct_document(root)  # which also spells out the merge keys below `root`
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        where = _line_column(text[: error.position])
        raise ConfigError(
            f"{name}:{where}: the character U+{ord(text[error.position]):04X} has no place here"
        ) from None
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{name}:{_told(error)}") from None


def _told(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
    if error.problem in (_TOO_DEEP, _TOO_MANY):
        return f"{where}: {error.problem}"
    if error.problem == "but found another document":
        return f"{where}: a second document begins here; accepted: one a file"
    if "'\\t'" in (error.problem or ""):
        return f"{where}: not YAML: a tab; accepted: spaces to indent with"
    began = error.context_mark
    since = f" (begun at {began.line + 1}:{began.column + 1})" if began and began is not mark else ""
    context = f"{error.context}{since}: " if error.context else ""
    return f"{where}: not YAML: {shortened(context + (error.problem or 'it ends too early'))}"


def _refuse_oddities(root: yaml.Node, name: str, loader: _Loader) -> None:
    """Duplicate keys, keys that are no text, foreign tags, and aliases that contain themselves or multiply."""
    count = 0
    # A node, those above it, and the entry of the file that it belongs to (an alias has no place of its own).
    stack: list[tuple[yaml.Node, tuple[int, ...], yaml.Mark]] = [(root, (), root.start_mark)]
    while stack:
        node, above, entry = stack.pop()
        count += 1
        if id(node) in above:
            raise _odd(name, node.start_mark, "the anchor contains itself")
        if len(above) >= MOST_DEPTH:
            raise _odd(name, node.start_mark, _TOO_DEEP)
        if count > MOST_NODES:
            raise _odd(name, entry, _TOO_MANY)
        inside = (*above, id(node))
        _refuse_scalar(node, name, loader)
        if isinstance(node, yaml.MappingNode):
            _refuse_keys(node, name)
            below = [(child, inside, entry if above else pair[0].start_mark) for pair in node.value for child in pair]
            stack.extend(reversed(below))
        elif isinstance(node, yaml.SequenceNode):
            stack.extend((child, inside, entry) for child in reversed(node.value))


def _odd(name: str, mark: yaml.Mark, message: str) -> ConfigError:
    return ConfigError(f"{name}:{mark.line + 1}:{mark.column + 1}: {shortened(message)}")


def _refuse_scalar(node: yaml.Node, name: str, loader: _Loader) -> None:
    """Values whose tag is not what they look like, and what no number or text can be."""
    plain = _TAG + ("map" if isinstance(node, yaml.MappingNode) else "seq")
    if isinstance(node, yaml.ScalarNode):
        plain = loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
        if plain == _TAG + "int" and node.tag == plain and len(node.value) > MOST_DIGITS:
            raise _odd(name, node.start_mark, f"a number of {len(node.value)} digits; accepted: at most {MOST_DIGITS}")
        if any("\ud800" <= character <= "\udfff" for character in node.value):
            raise _odd(name, node.start_mark, "half of a surrogate pair is no character")
    if node.tag not in (plain, _TAG + "str"):
        told = node.tag.replace(_TAG, "!!")[:MOST_KEY]
        raise _odd(name, node.start_mark, f"the tag {told} has no place here; accepted: plain values")


def _refuse_keys(node: yaml.MappingNode, name: str) -> None:
    first: dict[str, yaml.Mark] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _odd(name, key.start_mark, f"a key is {_node_text(key)}; accepted: a plain word")
        if len(key.value) > MOST_KEY:
            raise _odd(name, key.start_mark, f"a key of {len(key.value)} characters; accepted: at most {MOST_KEY}")
        if key.tag == _MERGE:
            entries = value.value if isinstance(value, yaml.SequenceNode) else [value]
            if not all(isinstance(entry, yaml.MappingNode) for entry in entries):
                raise _odd(name, value.start_mark, "<<: accepted: a mapping (an alias of one), or a list of them")
            continue
        if key.tag != _TAG + "str":
            said = key.value or "nothing"
            raise _odd(name, key.start_mark, f"{said}: a key that is no text; accepted: a word, or it in quotes")
        if key.value in first:
            raise _odd(name, key.start_mark, f"{key.value}: stands twice; first at line {first[key.value].line + 1}")
        first[key.value] = key.start_mark


def _node_text(node: yaml.Node) -> str:
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"


def with_overrides(document: Document, options: Sequence[str]) -> Document:
    """Apply `key.path=value` options (values in YAML) to the document's data."""
    for option in options:
        key, equals, text = option.partition("=")
        origin = f"--set {shortened(secret_looks.masked(option))}"
        if not equals or len(key) > MOST_KEY or not all(key.split(".")):
            raise ConfigError(
                f"{origin}: not a change; accepted: a key path, '=' and a value, as in measure.iterations=50"
            )
        try:
            value = _parsed(text, "value")[1]
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
