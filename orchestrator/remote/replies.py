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
    kind, bound = arguments if origin is Annotated else (hint, None)
    if kind in _ACCEPTED:
        found = _scalar(kind, bound, value)
        return _refuse(name, value, _accepted(kind, bound), of=of, node=node) if found is None else found
    return read(hint, value, of=f"{of}.{name}", node=node)


_ACCEPTED: dict[Any, str] = {
    int: "a whole number of 64 bits",
    float: "a number",
    bool: "true or false",
    str: "text",
    object: "anything but null",
}


def _accepted(kind: Any, bound: Any) -> str:
    """Return what is accepted of a kind within a bound, in words."""
    if not isinstance(bound, range):
        return _ACCEPTED[kind]
    most = "" if bound.stop > _MOST else f", at most {bound[-1]}"
    return f"{_ACCEPTED[kind]}, at least {bound.start}{most}"


def _scalar(kind: Any, bound: Any, value: Any) -> Any:
    """Return a text, a number or a truth value of a kind in `_ACCEPTED` within its bound; None for any other.

    The bound of a number is a range, from its start to its last one; that of a text that is taken letter by letter is
    "raw".
    """
    if kind in (int, float):
        least, most = (bound.start, bound[-1]) if isinstance(bound, range) else (-_MOST, _MOST)
        if type(value) is not int and (kind is int or type(value) is not float):
            return None
        return kind(value) if least <= value <= most else None  # which NaN is not, either
    if not isinstance(value, kind):
        return None
    return _clean(value) if kind is str and bound != "raw" else value


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
