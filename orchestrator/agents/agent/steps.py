"""What answering a request is: steps that may pause, and end with a reply or a refusal."""

from __future__ import annotations

from typing import Any, Dict, Generator, Optional, Tuple, TypeVar, Union

Reply = Union[Dict[str, Any], Tuple[Dict[str, Any], bytes]]
T = TypeVar("T")
# A task yields for how many seconds it may sleep (any child's end wakes it too), or None: until the output has drained.
Steps = Generator[Optional[float], None, T]


class Refusal(Exception):
    """A request that cannot be granted, told to whoever asked."""

    def __init__(self, kind: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.more = more
