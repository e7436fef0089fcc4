"""Parse YAML text as plain data: YAML 1.2 scalars, limited depth, no duplicate keys; mistakes with their place."""

from __future__ import annotations

import re
from typing import Any

import yaml

from orchestrator.core.errors import ConfigError, shortened

MOST_NODES = 20_000  # of a document with its aliases spelled out: more is a mistake or an attack
MOST_DEPTH = 32
MOST_DIGITS = 30
MOST_KEY = 200  # characters
_TOO_DEEP = f"nested more than {MOST_DEPTH} deep"
_TOO_MANY = "with this there are more than {} values, all aliases spelled out"

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
    """SafeLoader with the scalars of YAML 1.2, and a limit of depth."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own way

    def __init__(self, text: str, most: int) -> None:
        super().__init__(text)
        self.most = most
        self._depth = 0
        self._count = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        self._count += 1
        if self._depth > MOST_DEPTH or self._count > self.most:
            message = _TOO_DEEP if self._depth > MOST_DEPTH else _TOO_MANY.format(self.most)
            raise yaml.composer.ComposerError(None, None, message, self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


for _name, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), list(_first))


def decoded(raw: bytes, name: str) -> str:
    """Decode the text of a file, which has to be UTF-8; ConfigError with the place of the first byte that is not."""
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
    """Return line and column after a given text; lines end as in YAML."""
    lines = re.split(r"\r\n|[\r\n\x85\u2028\u2029]", before)
    return f"{len(lines)}:{len(lines[-1]) + 1}"


def parsed(text: str, name: str, *, most: int = MOST_NODES) -> tuple[yaml.Node | None, Any]:
    """Parse a text into nodes and data; it is called `name` in messages; ConfigError with the place of a mistake.

    More than `most` values, with aliases expanded, are a mistake.
    """
    try:
        loader = _Loader(text, most)
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
        raise ConfigError(f"{name}:{_error_text(error)}") from None


def count(value: Any) -> int:
    """Count the values of plain data, itself among them."""
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


def _error_text(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
    if error.problem == _TOO_DEEP or (error.problem or "").startswith(_TOO_MANY.partition("{")[0]):
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
    """Raise for duplicate keys, keys that are no text, foreign tags, and aliases that contain themselves or grow."""
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
        if count > loader.most:
            raise _odd(name, entry, _TOO_MANY.format(loader.most))
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
    """Raise for scalars whose tag contradicts their text, numbers that are too long, and halves of surrogate pairs."""
    plain = _TAG + ("map" if isinstance(node, yaml.MappingNode) else "seq")
    if isinstance(node, yaml.ScalarNode):
        plain = loader.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
        if plain == _TAG + "int" and node.tag == plain and len(node.value) > MOST_DIGITS:
            raise _odd(name, node.start_mark, f"a number of {len(node.value)} digits; accepted: at most {MOST_DIGITS}")
        if any("\ud800" <= character <= "\udfff" for character in node.value):
            raise _odd(name, node.start_mark, "half of a surrogate pair is no character")
    if node.tag not in (plain, _TAG + "str"):
        tag = node.tag.replace(_TAG, "!!")[:MOST_KEY]
        raise _odd(name, node.start_mark, f"the tag {tag} has no place here; accepted: plain values")


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
