"""Fill in the variables of a file, and apply `--set KEY.PATH=VALUE` options.

`vars:` in a file has names for values that change from use to use, with types and defaults, set by `--set NAME=VALUE`.
`$name` or `${name}` stands for the value in any text of the file but its keys: alone for the value itself, within text
for its text. `$$` is a dollar sign. In a file without `vars` a dollar sign is nothing special.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from orchestrator.core import secret_looks
from orchestrator.core.errors import ConfigError, shortened
from orchestrator.core.opendata import AxisValues
from orchestrator.core.units import quantity
from orchestrator.core.where import text_of
from orchestrator.experiment import documents, yamltext
from orchestrator.experiment.documents import Document, Keys, Variable

VARS = "vars"
QUANTITIES = ("rate", "size", "duration", "share")


def _measures(kind: str, value: Any) -> bool:
    """Return whether a value is the text of a quantity of this kind."""
    found = quantity(value) if isinstance(value, str) else None
    return found is not None and found[0] == kind


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    **{kind: partial(_measures, kind) for kind in QUANTITIES},
}
TYPES = tuple(_TYPES)
# Keys of files, which `--set` means by these names: a test holds them to the models.
RESERVED = frozenset(
    {
        *("name", "testbed", "local_run", "conditions", "workload", "jobs", "traffic", "windows", "collect", "measure"),
        *(
            "captures",
            "repetitions",
            "seed",
            "validity",
            "experiment",
            "axes",
            "zip",
            "exclude",
            "mode",
            "settle",
            "lost",
            "recheck",
            "until",
            "budget",
            "ssh",
        ),
        *(
            "order",
            "windows_per_run",
            "title",
            "shows",
            "at",
            "authors_code",
            "calibrate",
            "sweeps",
            "printed",
            "figures",
        ),
        *("limits", "contradictions", "link", "mtu"),
        *("defaults", "hosts", "switch", "fabric", "attempts", "draws", "quarantine", "include", "vars"),
    }
)
NO_AXES: AxisValues = MappingProxyType({})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[^}]*)\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """The declaration of one variable in `vars`."""

    type: str
    default: Any = None
    help: str = ""


def names(document: Document) -> frozenset[str]:
    """Return the names of the variables that a document declares."""
    said = document.data.get(VARS) if isinstance(document.data, dict) else None
    return frozenset(said) if isinstance(said, dict) else frozenset()


def filled(document: Document, options: Sequence[str] = (), axes: AxisValues = NO_AXES) -> tuple[Document, list[str]]:
    """Fill in a document's variables; return it with the `--set` options that set no variable.

    `axes` are values of variables that are axes of a sweep; they are not among the document's variables then.
    ConfigError with the place of a variable that is declared wrongly, has no value, or is not declared.
    """
    if not isinstance(document.data, dict) or VARS not in document.data:
        return document, list(options)
    declared = _declared(document)
    given = {name: option for option in options if (name := option.partition("=")[0]) in declared and "=" in option}
    for name in axes.keys() & given.keys():
        raise ConfigError(f"--set {name}: is an axis of this sweep; accepted: other values in the file, or --where")
    values = {name: _value(document, name, about, given.get(name), axes) for name, about in declared.items()}
    for name, one in values.items():
        text = one.value if isinstance(one.value, str) else ""
        if secret_looks.looks_secret(name, text) or secret_looks.value_looks_secret(text):
            accepted = "env_from of the workload, and {env:NAME} in the argv of a command"
            raise _wrong(document, (name,), "this looks like a secret, and variables are recorded", accepted)
    rest = [option for option in options if option.partition("=")[0] not in given]
    data = {key: value for key, value in document.data.items() if key != VARS}
    filling = _Filling(document, values)
    data = {key: filling.in_place(value, (key,)) for key, value in data.items()}
    own = (value for name, value in values.items() if name not in axes)
    return replace(document, data=data, variables=(*document.variables, *own)), rest


def _declared(document: Document) -> dict[str, _Declared]:
    said = document.data[VARS]
    if not isinstance(said, dict):
        raise _wrong(document, (), f"holds {documents.kind_text(said)}", "a mapping of names and values")
    found = {}
    for name, about in said.items():
        if not _NAME.fullmatch(name) or name in RESERVED:
            taken = "is a key of files" if name in RESERVED else "is no name of a variable"
            raise _wrong(document, (name,), taken, "small letters, digits and '_', and no key of a file")
        found[name] = _of(document, name, about)
    return found


def _of(document: Document, name: str, about: Any) -> _Declared:
    """Read one variable, from its default alone or from a mapping of type, default and help."""
    if about is None:
        raise _wrong(document, (name,), "is null", "its default, or {type: TYPE} for what --set has to give")
    if not isinstance(about, dict):
        about = {"default": about}
    unknown = [key for key in about if key not in ("type", "default", "help")]
    if unknown:
        raise _wrong(document, (name, unknown[0]), "unknown key", "type, default, help")
    if nulls := [key for key, value in about.items() if value is None]:
        raise _wrong(document, (name, nulls[0]), "is null", f"a value, or no {nulls[0]}")
    default = about.get("default")
    kind = about.get("type", _type_of(default))
    if not isinstance(kind, str) or kind not in _TYPES:
        raise _wrong(document, (name,), f"type {shortened(repr(kind))} is not known", f"one of {', '.join(TYPES)}")
    if default is not None and not _TYPES[kind](default):
        raise _wrong(
            document, (name,), f"its default {shortened(repr(default))} is no {kind}", f"a value of type {kind}"
        )
    return _Declared(type=kind, default=default, help=str(about.get("help", "")))


def _type_of(value: Any) -> str:
    if isinstance(value, str):
        measured = quantity(value)
        return "text" if measured is None else measured[0]
    if value is None:
        return "text"
    return next((kind for kind in ("boolean", "integer", "number", "list") if _TYPES[kind](value)), "a mapping")


def _value(document: Document, name: str, about: _Declared, option: str | None, axes: AxisValues) -> Variable:
    if name in axes:
        if not _TYPES[about.type](axes[name]):
            message = f"axes.{name}: {shortened(text_of(axes[name]))} is no {about.type}"
            raise ConfigError(f"{message}; accepted: values of type {about.type}, as {_at(document, name)} says")
        return Variable(name=name, value=axes[name], type=about.type, origin="axis", help=about.help)
    if option is None:
        if about.default is None:
            hint = f"--set {name}=VALUE; accepted: a value of type {about.type}"
            raise ConfigError(f"{document.place((VARS, name))}: vars.{name}: has no value and no default", hint=hint)
        return Variable(name=name, value=about.default, type=about.type, origin="default", help=about.help)
    origin = f"--set {shortened(secret_looks.masked(option))}"
    text = option.partition("=")[2]
    value = text if about.type == "text" else yamltext.parsed(text, origin)[1]
    if not _TYPES[about.type](value):
        raise ConfigError(f"{origin}: is no {about.type}; accepted: a {about.type}, as {_at(document, name)} says")
    return Variable(name=name, value=value, type=about.type, origin="--set", help=about.help)


def _at(document: Document, name: str) -> str:
    return f"vars.{name} at {document.place((VARS, name))}"


class _Filling:
    """Fills in values of variables, and counts the values that result."""

    def __init__(self, document: Document, values: Mapping[str, Variable]) -> None:
        self._document = document
        self._values = values
        self._texts = {name: text_of(one.value) for name, one in values.items()}
        self._counts = {name: yamltext.count(one.value) for name, one in values.items()}
        self._characters = documents.MOST_BYTES
        self._nodes = yamltext.MOST_NODES

    def in_place(self, value: Any, at: Keys) -> Any:
        if isinstance(value, dict):
            return {key: self.in_place(inner, (*at, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.in_place(inner, (*at, place)) for place, inner in enumerate(value)]
        if not isinstance(value, str) or "$" not in value:
            return value

        def text(match: re.Match[str]) -> str:
            return "$" if match["dollar"] else self._texts[self._meant(match, at).name]

        whole = _REFERENCE.fullmatch(value)
        if whole is not None and not whole["dollar"]:
            return self._meant(whole, at).value
        return _REFERENCE.sub(text, value)

    def _meant(self, match: re.Match[str], at: Keys) -> Variable:
        found = _meant(self._document, match, at, self._values)
        self._characters -= len(self._texts[found.name])
        self._nodes -= self._counts[found.name]
        if self._characters < 0 or self._nodes < 0:
            most = f"{documents.MOST_BYTES} characters and {yamltext.MOST_NODES} values"
            where = f"{self._document.place(at)}: {documents.dotted(at)}"
            raise ConfigError(f"{where}: with this the variables come to too much; accepted: {most} in all places")
        return found


def _meant(document: Document, match: re.Match[str], at: Keys, values: Mapping[str, Variable]) -> Variable:
    name = match["bare"] or match["braced"] or ""
    if name not in values:
        close = difflib.get_close_matches(name, values, n=1)
        similar = f"; did you mean {close[0]}?" if close else ""
        where = f"{document.place(at)}: {documents.dotted(at)}"
        raise ConfigError(
            f"{where}: no variable is called {shortened(name)}{similar}; accepted: {', '.join(values)}, and $$ for a $"
        )
    return values[name]


def _wrong(document: Document, at: Keys, message: str, accepted: str) -> ConfigError:
    way = (VARS, *at)
    return ConfigError(f"{document.place(way)}: {documents.dotted(way)}: {message}; accepted: {accepted}")


def with_overrides(document: Document, options: Sequence[str]) -> Document:
    """Apply `key.path=value` options (values in YAML) to a document's data."""
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
    """Split a dotted path into its steps; numbers are indices of lists."""
    return tuple(int(step) if re.fullmatch("[0-9]{1,6}", step) else step for step in path.split("."))


def with_value(document: Document, way: Keys, value: Any, *, origin: str) -> Document:
    """Replace one value of a document; mistakes in it are reported at `origin`."""
    data = _replaced(document.data, way, value, origin=origin, at=())
    overrides = {path: owner for path, owner in document.overrides.items() if path[: len(way)] != way}
    return replace(document, data=data, overrides={**overrides, way: origin})


def _replaced(data: Any, way: Keys, value: Any, *, origin: str, at: Keys) -> Any:
    if not way:
        return value
    step, rest = way[0], way[1:]
    where = documents.dotted(at) or "the file"
    if isinstance(data, list):
        if not isinstance(step, int) or step > len(data):
            last = f"0 to {len(data) - 1}, or {len(data)} to add one" if data else "0, to add one"
            raise ConfigError(f"{origin}: {where} is a list and has no entry {step}; accepted: {last}")
        inner = data[step] if step < len(data) else None
        return [*data[:step], _replaced(inner, rest, value, origin=origin, at=(*at, step)), *data[step + 1 :]]
    if data is None or data == step:  # nothing, or a part's bare name: make room below it
        data = {} if data is None else {data: {}}
    if not isinstance(data, dict):
        raise ConfigError(f"{origin}: {where} is {documents.kind_text(data)}; there is nothing below it")
    key = str(step)
    return {**data, key: _replaced(data.get(key), rest, value, origin=origin, at=(*at, key))}
