"""From YAML to a checked experiment; every mistake is told as file:line:column, path, what is wrong, what would do."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from orchestrator.errors import ConfigError
from orchestrator.experiment import Experiment, names_of
from orchestrator.experiment import model as experiment_model
from orchestrator.testbed.inventory import Inventory

M = TypeVar("M", bound=BaseModel)
Path_ = tuple[str | int, ...]

MOST_NODES = 20_000  # of a document with its aliases spelled out: more is a mistake or an attack


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file: its data, and where each of its values stands."""

    name: str
    data: Any
    root: yaml.Node | None
    overrides: Mapping[Path_, str] = field(default_factory=dict)  # path -> the --set option that put it there
    parts: Mapping[Path_, Document] = field(default_factory=dict)  # path -> the file whose data stands there

    def place(self, loc: Sequence[str | int]) -> str:
        """`file:line:column` of the value at this path, or of the nearest one above it."""
        for length in range(len(loc), 0, -1):
            head = tuple(loc[:length])
            if head in self.parts:
                return self.parts[head].place(loc[length:])
            if head in self.overrides:
                return f"--set {self.overrides[head]}"
        mark = _mark(self.root, loc)
        return f"{self.name}:{mark.line + 1}:{mark.column + 1}" if mark else f"{self.name}:1:1"


def _mark(root: yaml.Node | None, loc: Sequence[str | int]) -> yaml.Mark | None:
    node, mark = root, root.start_mark if root else None
    for step in loc:
        if isinstance(node, yaml.MappingNode):
            match = next(((k, v) for k, v in node.value if k.value == str(step)), None)
            if match is None:
                break
            mark, node = match[0].start_mark, match[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            mark = node.start_mark
        else:
            break
    return mark


def load_document(path: Path) -> Document:
    """Read and parse a YAML file; ConfigError with the place of the first mistake."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_document(raw, name=str(path))


def parse_document(raw: bytes, *, name: str) -> Document:
    """Parse the bytes of a YAML file that is called `name` in messages."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigError(f"{name}:{line}:{column}: not UTF-8: byte 0x{raw[error.start]:02x}") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise ConfigError(f"{name}:1:1: the file is empty; an experiment has at least {_REQUIRED}")
        _refuse_oddities(root, name)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        tab = " (indent with spaces, not tabs)" if "\\t" in (error.problem or "") else ""
        raise ConfigError(f"{name}:{where}: not YAML: {error.problem or error.context}{tab}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}:1:1: not YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:  # a value that looks like a date or a number and is none
        raise ConfigError(f"{name}:1:1: not YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{name}:1:1: holds {_kind(data)}; a mapping with at least {_REQUIRED} belongs here")
    return Document(name=name, data=data, root=root)


_REQUIRED = "name, testbed, workload and measure"


def _refuse_oddities(root: yaml.Node, name: str) -> None:
    """Duplicate keys, keys that are no text, aliases that contain themselves or multiply beyond reason."""
    count = 0
    stack: list[tuple[yaml.Node, tuple[int, ...]]] = [(root, ())]
    while stack:
        node, above = stack.pop()
        count += 1
        at = f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
        if id(node) in above:
            raise ConfigError(f"{at}: the anchor contains itself")
        if count > MOST_NODES:
            raise ConfigError(f"{at}: more than {MOST_NODES} values with all aliases spelled out")
        inside = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            _refuse_duplicates(node, name)
            stack.extend((child, inside) for pair in node.value for child in pair)
        elif isinstance(node, yaml.SequenceNode):
            stack.extend((child, inside) for child in node.value)


def _refuse_duplicates(node: yaml.MappingNode, name: str) -> None:
    first: dict[str, yaml.Mark] = {}
    for key, _ in node.value:
        at = f"{name}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{at}: a key must be a plain word")
        if key.value in first:
            raise ConfigError(f"{at}: {key.value}: stands twice; first at line {first[key.value].line + 1}")
        if key.tag != "tag:yaml.org,2002:merge":
            first[key.value] = key.start_mark


def with_overrides(document: Document, options: Sequence[str]) -> Document:
    """Apply `key.path=value` options (values in YAML) to the document's data."""
    data, overrides = document.data, dict(document.overrides)
    for option in options:
        key, equals, text = option.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {option}: a key path, '=' and a value belong here, as in measure.iterations=50")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise ConfigError(f"--set {option}: the value is not YAML") from None
        path: Path_ = tuple(int(step) if step.isdigit() else step for step in key.split("."))
        data = _replaced(data, path, value, option=option, at=())
        overrides[path] = option
    return Document(name=document.name, data=data, root=document.root, overrides=overrides, parts=document.parts)


def _replaced(data: Any, path: Path_, value: Any, *, option: str, at: Path_) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(data, list) and isinstance(step, int):
        if step > len(data):
            raise ConfigError(f"--set {option}: {_dotted(at) or 'the file'} has only {len(data)} entries")
        inner = data[step] if step < len(data) else None
        return [*data[:step], _replaced(inner, rest, value, option=option, at=(*at, step)), *data[step + 1 :]]
    if data is None or isinstance(data, str):  # a bare name or nothing: make room below it
        data = {} if data is None else {data: {}}
    if not isinstance(data, dict):
        raise ConfigError(f"--set {option}: {_dotted(at)} is {_kind(data)}; there is nothing below it")
    key = str(step)
    return {**data, key: _replaced(data.get(key), rest, value, option=option, at=(*at, key))}


def validate(document: Document, model: type[M]) -> M:
    """Check a document against a model; one ConfigError tells every mistake, each with its place."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        lines = sorted({_explain(document, model, item) for item in error.errors(include_url=False)})
        raise ConfigError("\n".join(lines)) from None


def _explain(document: Document, model: type[BaseModel], error: Any) -> str:
    loc: Path_ = tuple(error["loc"])
    kind, message = error["type"], error["msg"]
    accepted = ""
    if kind == "extra_forbidden":
        known = _keys_at(model, loc[:-1])
        close = difflib.get_close_matches(str(loc[-1]), known, n=1)
        message = "unknown key" + (f"; did you mean {close[0]}?" if close else "")
        accepted = f"; accepted: {', '.join(known)}" if known else ""
    elif kind == "missing":
        message = "missing"
        return f"{document.place(loc[:-1])}: {_dotted(loc)}: {message}"
    elif kind in ("model_type", "dict_type", "model_attributes_type"):
        known = _keys_at(model, loc)
        message = f"holds {_kind(error['input'])}"
        accepted = "; accepted: a mapping" + (f" of {', '.join(known)}" if known else "")
    elif kind == "value_error":
        message = str(error["ctx"]["error"]) if "error" in error.get("ctx", {}) else message
        if isinstance(error["input"], str | int | float):
            message = f"{error['input']!r} is {message}" if message.startswith("not a") else message
    else:
        message = f"{message[0].lower()}{message[1:]}, not {_short(error['input'])}"
    return f"{document.place(loc)}: {_dotted(loc) or 'the file'}: {message}{accepted}"


def _keys_at(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """The keys that the model at this path takes; empty where it is no mapping of fixed keys."""
    kind: Any = model
    for step in loc:
        kind = _step(kind, step)
        if kind is None:
            return []
    inner = next(_models_in(kind), None)
    return names_of(inner) if inner else []


def _models_in(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    elif typing.get_origin(kind) in (typing.Union, types.UnionType, typing.Annotated):
        for inner in typing.get_args(kind):
            yield from _models_in(inner)


def _step(kind: Any, step: str | int) -> Any:
    for model in _models_in(kind):
        for name, info in model.model_fields.items():
            if (info.alias or name) == step:
                return info.annotation
    arguments = [kind, *typing.get_args(kind)]
    for candidate in arguments:
        origin, inner = typing.get_origin(candidate), typing.get_args(candidate)
        if origin in (tuple, list) and isinstance(step, int):
            return inner[0]
        if origin is dict:
            return inner[1]
    return None


def _dotted(loc: Sequence[str | int]) -> str:
    return ".".join(str(step) for step in loc)


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), f"a {type(value).__name__}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def load_inventory(path: Path) -> tuple[Inventory, Document]:
    """Read an inventory file."""
    document = load_document(path)
    return validate(document, Inventory), document


def load_experiment(path: Path, options: Sequence[str] = ()) -> tuple[Experiment, Document]:
    """Read an experiment file with its `--set` options, and the inventory file that it names."""
    document = with_overrides(load_document(path), options)
    testbed = document.data.get("testbed")
    named = testbed.get("inventory") if isinstance(testbed, dict) else None
    if isinstance(named, str):
        inventory = load_document(_beside(named, path, document))
        validate(inventory, Inventory)
        data = {**document.data, "testbed": {**testbed, "inventory": inventory.data}}
        document = Document(
            name=document.name,
            data=data,
            root=document.root,
            overrides=document.overrides,
            parts={("testbed", "inventory"): inventory},
        )
    return validate(document, experiment_model()), document


def _beside(named: str, experiment: Path, document: Document) -> Path:
    """An inventory's path: as it is, or beside the experiment file."""
    tried = dict.fromkeys([Path(named), experiment.parent / named])
    for candidate in tried:
        if candidate.is_file():
            return candidate
    at = document.place(("testbed", "inventory"))
    raise ConfigError(f"{at}: testbed.inventory: no file {' nor '.join(map(str, tried))}")
