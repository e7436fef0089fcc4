"""Steps of requests: generators that may pause, and end with an answer (a named tuple) or a refusal."""

from __future__ import annotations

from typing import Any, Dict, Generator, Mapping, NamedTuple, Optional, Sequence, TypeVar

JsonObject = Dict[str, Any]  # read from a file or a process of the host: nothing is known yet of what it has
T = TypeVar("T")
# A task yields for how many seconds it may sleep (any child's end wakes it too), or None: until the output has drained.
Steps = Generator[Optional[float], None, T]


class Refusal(Exception):
    """A request that cannot be granted, with the reason for the controller."""

    def __init__(self, kind: str, message: str, **more: object) -> None:
        super().__init__(message)
        self.kind = kind
        self.more = more


class Failure(NamedTuple):
    """A command that failed; without a status where it could not be run."""

    argv: Sequence[str]
    status: Optional[int]
    tail: str


class Refused(NamedTuple):
    """The answer to a request that was refused; `holder` holds a lock, `undo_failed` is why a change still stands."""

    error: str
    kind: Optional[str] = None
    tail: Optional[str] = None
    argv: Optional[Sequence[str]] = None
    holder: Optional[Mapping[str, object]] = None
    undo_failed: Optional[Failure] = None


def as_json(value: Any) -> Any:
    """Return a message as JSON has it: each named tuple is an object."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: as_json(one) for name, one in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [as_json(one) for one in value]
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    return value
