"""Validate a document against a model: every mistake with its place in the file, and the accepted values."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from orchestrator.core.errors import ConfigError, shortened
from orchestrator.core.paths import lookup
from orchestrator.core.units import Mistake
from orchestrator.experiment import old_names
from orchestrator.experiment.documents import Document, Keys, dotted, kind_text
from orchestrator.parts import registry

M = TypeVar("M", bound=BaseModel)

_BOUNDS = {  # kind of error: what is said of the value, and what would do, with pydantic's context
    "greater_than_equal": (" too small", "{ge} or more"),
    "greater_than": (" too small", "more than {gt}"),
    "less_than_equal": (" too large", "at most {le}"),
    "less_than": (" too large", "less than {lt}"),
    "string_too_short": (" too short", "at least {min_length} characters"),
    "string_too_long": (" too long", "at most {max_length} characters"),
    "string_pattern_mismatch": (" not what belongs here", "text that matches {pattern}"),
    "too_short": ("", "at least {min_length}"),
    "too_long": ("", "at most {max_length}"),
}
_KINDS = {  # beginning of the kind of error: what would do
    "int": "a whole number",
    "finite_number": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text (in quotes)",
    "path": "a path",
    "tuple": "a list",
    "list": "a list",
}
_MAPPINGS = ("model_type", "dict_type", "model_attributes_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """One of pydantic's errors, reworded."""

    at: Keys
    union: Keys | None  # where a choice between several types stands, if this is about one of them
    branch: str
    kind: str
    message: str
    accepted: str
    misfit: bool  # it is about the wrong kind of thing, not about a value of the right kind


def validate(document: Document, model: type[M], *, folders: Sequence[Path] | None = None) -> M:
    """Check a document against a model; one ConfigError tells every mistake, each with its place.

    Files that it names are looked up in `folders`; without any they are taken as they are named.
    """
    try:
        return model.model_validate(document.data, context=None if folders is None else lookup.context(*folders))
    except ValidationError as error:
        raise ConfigError("\n".join(_explained(document, model, error.errors(include_url=False)))) from None


def _explained(document: Document, model: type[BaseModel], errors: Sequence[ErrorDetails]) -> list[str]:
    """Write a line for every mistake, in the order of the file: `place: path: message; accepted: values`."""
    said = [_say(document, model, error) for error in errors]
    kept = [entry for entry in said if entry.union is None]
    for union in dict.fromkeys(entry.union for entry in said if entry.union is not None):
        kept += _chosen([entry for entry in said if entry.union == union], union)
    kept = [
        entry
        for entry in kept
        # A list whose entries are wrong is not too short besides.
        if entry.kind != "too_short" or not any(_below(other.at, entry.at) for other in kept)
    ]
    ordered = sorted(kept, key=lambda entry: (document.rank(entry.at), dotted(entry.at)))
    return list(dict.fromkeys(_line(document, entry) for entry in ordered))


def _line(document: Document, said: _Said) -> str:
    accepted = f"; accepted: {said.accepted}" if said.accepted else ""
    return f"{document.place(said.at)}: {shortened(dotted(said.at)) or 'the file'}: {shortened(said.message)}{accepted}"


def _below(lower: Keys, upper: Keys) -> bool:
    return len(lower) > len(upper) and lower[: len(upper)] == upper


def _chosen(said: Sequence[_Said], union: Keys) -> list[_Said]:
    """Select, of the errors of each alternative of a union, those of the alternative that was meant."""
    meant = {entry.branch for entry in said} - {entry.branch for entry in said if entry.misfit and entry.at == union}
    fitting = [entry for entry in said if entry.branch in meant]
    if len(meant) == 1:
        return fitting
    candidates = [entry for entry in fitting or said if entry.at == union]
    accepted = ", or ".join(dict.fromkeys(entry.accepted for entry in candidates if entry.accepted))
    first = candidates[0] if candidates else said[0]
    return [
        _Said(
            at=first.at,
            union=None,
            branch="",
            kind=first.kind,
            message=first.message,
            accepted=accepted,
            misfit=first.misfit,
        )
    ]


def _say(document: Document, model: type[BaseModel], error: ErrorDetails) -> _Said:
    kind = error["type"]
    at, union, branch = _located(document.data, error["loc"], kind)
    mistake = error.get("ctx", {}).get("error")
    if isinstance(mistake, Mistake):
        at = (*at, *mistake.at)
    message, accepted = _words(model, at, error)
    misfit = kind.endswith(("_type", "_parsing", "_from_float")) or kind == "finite_number"
    return _Said(at=at, union=union, branch=branch, kind=kind, message=message, accepted=accepted, misfit=misfit)


def _located(data: Any, loc: Sequence[str | int], kind: str) -> tuple[Keys, Keys | None, str]:
    """Return the path of an error in the file, without pydantic's steps for types of a union and for keys."""
    at: list[str | int] = []
    union: Keys | None = None
    branch = ""
    here = data
    for place, step in enumerate(loc):
        if _has(here, step):
            here = here[step]
        elif here == step or (kind == "missing" and place == len(loc) - 1):  # a bare name, or what should be there
            here = {}
        else:
            if step != "[key]" and place < len(loc) - (kind == "missing"):
                union, branch = tuple(at), str(step)
            continue
        at.append(step)
    return tuple(at), union, branch


def _has(data: Any, step: str | int) -> bool:
    if isinstance(data, list):
        return isinstance(step, int) and step < len(data)
    return isinstance(data, dict) and step in data


def _words(model: type[BaseModel], at: Keys, error: ErrorDetails) -> tuple[str, str]:
    """Return what is wrong, and what would be accepted."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind in ("extra_forbidden", "missing", *_MAPPINGS):
        return _words_on_keys(model, at, kind, value)
    if kind == "value_error":
        return _own_words(context["error"], value)
    if kind == "literal_error":
        return _words_on_choices(model, at, value, context["expected"])
    if kind in _BOUNDS:
        what, accepted = _BOUNDS[kind]
        counted = f"has {context['actual_length']} entries" if "actual_length" in context else f"{short(value)} is"
        return f"{counted}{what}", accepted.format(**context)
    for beginning, accepted in _KINDS.items():
        if kind.startswith(beginning):
            what = kind_text(value) if isinstance(value, dict | list) or value is None else short(value)
            return f"holds {what}", accepted
    return f"{error['msg'][0].lower()}{error['msg'][1:]}, not {short(value)}", ""


def _words_on_keys(model: type[BaseModel], at: Keys, kind: str, value: Any) -> tuple[str, str]:
    if kind == "missing":
        keys, (purpose, example) = _keys_at(model, at), _described(model, at)
        accepted = f"a mapping of {', '.join(keys)}" if keys else ""
        return f"missing ({purpose})" if purpose else "missing", accepted + example
    if kind == "extra_forbidden":
        known = _keys_at(model, at[:-1])
        new = old_names.key_now(at)
        if new in known:
            return f"is called {new} now", new
        broken = next((one for one in registry.unusable() if one.name == at[-1]), None)
        if broken is not None and len(at) > 1:
            return f"is the {broken}", "one of " + ", ".join(known)
        return "unknown key" + _similar(str(at[-1]), known), ", ".join(known)
    known = _keys_at(model, at)
    return f"holds {kind_text(value)}", "a mapping" + (f" of {', '.join(known)}" if known else "")


def _words_on_choices(model: type[BaseModel], at: Keys, value: Any, expected: str) -> tuple[str, str]:
    if new := old_names.word_now(at, value):
        return f"{short(value)} is called {new} now", new
    known = [str(choice) for choice in typing.get_args(_literal(model, at))]
    return f"{short(value)} is not known" + _similar(str(value), known), expected


def _own_words(error: Exception, value: Any) -> tuple[str, str]:
    message = error.message if isinstance(error, Mistake) else str(error)
    if message.startswith("not a") and isinstance(value, str | int | float):
        message = f"{short(value)} is {message}"
    return message, error.accepted if isinstance(error, Mistake) else ""


def _similar(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _described(model: type[BaseModel], at: Keys) -> tuple[str, str]:
    """Describe a missing value, by the description of its field and the example of its type."""
    field = _field_at(model, at)
    if field is None:
        return "", ""
    text = (field.description or "").split("\n\n")[0].replace("\n", " ").removesuffix(".")
    examples = [
        schema["examples"][0]
        for extra in field.metadata
        if isinstance(schema := getattr(extra, "json_schema", None), dict) and "examples" in schema
    ]
    begins = text if text[1:2].isupper() else text[:1].lower() + text[1:]  # MTU stays as it is
    return begins, f"such as {examples[0]}" if examples and "such as" not in text else ""


def _keys_at(model: type[BaseModel], at: Sequence[str | int]) -> list[str]:
    """Return the keys that the model at this path takes; empty where it is no mapping of fixed keys."""
    kind: Any = model
    for step in at:
        kind = _step(kind, step)
        if kind is None:
            return []
    inner = next(_models_in(kind), None)
    return [field.alias or name for name, field in inner.model_fields.items()] if inner else []


def _field_at(model: type[BaseModel], at: Keys) -> FieldInfo | None:
    kind: Any = model
    for step in at[:-1]:
        kind = _step(kind, step)
    return next((found for inner in _models_in(kind) if (found := _field(inner, at[-1]))), None) if at else None


def _literal(model: type[BaseModel], at: Keys) -> Any:
    """Return the type of a field that lists its possible values."""
    field = _field_at(model, at)
    kind = field.annotation if field else None
    return next((inner for inner in typing.get_args(kind) if typing.get_origin(inner) is typing.Literal), kind)


def _models_in(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    elif typing.get_origin(kind) in (typing.Union, types.UnionType, typing.Annotated):
        for inner in typing.get_args(kind):
            yield from _models_in(inner)


def _field(model: type[BaseModel], key: str | int) -> FieldInfo | None:
    return next((field for name, field in model.model_fields.items() if (field.alias or name) == key), None)


def _step(kind: Any, step: str | int) -> Any:
    for model in _models_in(kind):
        field = _field(model, step)
        if field is not None:
            return field.annotation
    for candidate in [kind, *typing.get_args(kind)]:
        origin, inner = typing.get_origin(candidate), typing.get_args(candidate)
        if origin in (tuple, list) and isinstance(step, int):
            return inner[0]
        if origin is dict:
            return inner[1]
    return None


def short(value: Any) -> str:
    """Write a value as a message shows it."""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
