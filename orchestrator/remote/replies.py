"""Decodes agents' messages to the named tuples that the agent declares, with checks of types and bounds.

The controller trusts no host: each field must be there and of its type, whole numbers within 64 bits or the bounds that
`agents.agent.bounds` declares, other numbers finite. Of text what cannot be printed or written is replaced. Fields that
are not declared are passed over; one that has a default may be missing.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated, Any, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from orchestrator.agents.agent import bounds
from orchestrator.agents.agent.steps import Refused
from orchestrator.core.errors import (
    AgentError,
    BadAnswer,
    DeadlineExceeded,
    LockedError,
    NeverStartedError,
    OrchError,
    shortened,
)
from orchestrator.core.lock import Holder, holder_text

_MOST = (1 << 63) - 1  # what tables and logs hold as a whole number
_SHOWN = 60
_HALVES = re.compile("[\ud800-\udfff]")

_UNWRITABLE = "let the user write there, or name another folder in `work` of the inventory"
_HINTS = {
    "missing": "install it on the node, or name it by its path",
    "full": "make room there, or name another folder in `work:`",
    "unwritable": _UNWRITABLE,
    "folder": _UNWRITABLE,
    "noexec": "let `work` of the node be on a file system from which programs may be started",
}

T = TypeVar("T")


def read(kind: type[T], values: object, *, of: str, node: str) -> T:
    """Return `values` as a named tuple of this `kind`; BadAnswer names the first field that is wrong.

    `of` names the message, and `node` its sender, for the error.
    """
    if not isinstance(values, Mapping):
        _refuse("it", values, "an object", of=of, node=node)
    found = {}
    for name, (hint, optional) in _fields(cast("Hashable", kind)).items():
        if name in values:
            found[name] = _value(hint, name, values[name], of=of, node=node)
        elif not optional:
            raise BadAnswer(f"its agent's answer to {of} lacks {name!r}", node=node)
    return kind(**found)


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the type of each field of a named tuple, and whether it may be missing."""
    hints = get_type_hints(kind, localns=vars(bounds), include_extras=True)
    return {name: (hint, name in kind._field_defaults) for name, hint in hints.items()}


def _value(hint: Any, name: str, value: Any, *, of: str, node: str) -> Any:
    """Return a value checked by its type; `name` is the field's name, in the message `of`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union:  # with None alone
        return None if value is None else _value(arguments[0], name, value, of=of, node=node)
    if origin in (Sequence, Mapping, tuple):
        return _several(origin, arguments, name, value, of=of, node=node)
    if origin is Annotated or hint in (int, float, bool, str, object):
        accepted = arguments[1] if origin is Annotated else hint
        found = _scalar(accepted, value)
        return _refuse(name, value, _ACCEPTED[accepted], of=of, node=node) if found is None else found
    return read(hint, value, of=f"{of}.{name}", node=node)


_ACCEPTED: dict[Any, str] = {
    int: "a whole number of 64 bits",
    **{range(least, 1 << 63): f"a whole number of 64 bits, at least {least}" for least in (0, 1)},
    float: "a number",
    bool: "true or false",
    str: "text",
    "raw": "text",
    object: "anything but null",
}


def _scalar(accepted: Any, value: Any) -> Any:
    """Return a text, a number or a truth value, None for any other; `accepted` is a key of `_ACCEPTED`."""
    whole = range(-_MOST, _MOST + 1) if accepted is int else accepted
    if isinstance(whole, range):
        return value if type(value) is int and value in whole else None
    if accepted is float:
        return float(value) if type(value) in (int, float) and abs(value) <= _MOST else None  # which NaN is not, either
    if accepted is str:
        return _clean(value) if isinstance(value, str) else None
    kind = str if accepted == "raw" else accepted
    return value if isinstance(value, kind) else None


def _several(origin: Any, types: Sequence[Any], name: str, value: Any, *, of: str, node: str) -> Any:
    """Return a list, an object with arbitrary names, or a list of as many values as there are types."""
    if origin is Mapping:
        if not isinstance(value, Mapping):
            _refuse(name, value, "an object", of=of, node=node)
        return {_clean(key): _value(types[1], key, one, of=f"{of}.{name}", node=node) for key, one in value.items()}
    if not isinstance(value, list) or (origin is tuple and len(value) != len(types)):
        _refuse(name, value, "a list" if origin is Sequence else f"a list of {len(types)}", of=of, node=node)
    each = types if origin is tuple else itertools.repeat(types[0], len(value))
    return tuple(_value(hint, name, one, of=of, node=node) for hint, one in zip(each, value, strict=True))


def _refuse(name: str, value: Any, accepted: str, *, of: str, node: str) -> NoReturn:
    shown = repr(value)[:_SHOWN] if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"
    raise BadAnswer(f"its agent's answer to {of}: {_clean(name)[:_SHOWN]} is {shown}; accepted: {accepted}", node=node)


def _clean(text: str) -> str:
    """Return text that can be written and printed: halves of surrogate pairs, which JSON can hold, are replaced."""
    return text if text.isascii() else _HALVES.sub("\N{REPLACEMENT CHARACTER}", text)


def refusal(node: str, reply: Mapping[str, object], argv: Sequence[str] | None) -> OrchError:
    """Return the error to raise for a refused request."""
    refused = read(Refused, reply, of="a request, a refusal", node=node)
    message, kind, tail = shortened(refused.error), refused.kind, refused.tail or ""
    words = refused.argv or argv
    if kind == "locked":
        said = refused.holder or {}
        known = {name: said[name] for name in Holder.__annotations__ if isinstance(said.get(name), (str, int, float))}
        holder = {name: _clean(str(word)) for name, word in known.items()}
        return LockedError(f"held by {shortened(holder_text(holder))}", node=node)
    if kind == "timeout":
        return DeadlineExceeded(message, node=node, argv=words, tail=tail)
    hint = _HINTS.get(kind or "")
    sort = NeverStartedError if kind == "unknown" else AgentError
    error = sort(message, node=node, argv=words, tail=tail, hint=hint)
    if refused.undo_failed:
        error.hint = f"the change could not be taken back either: {refused.undo_failed.tail}"
    return error
