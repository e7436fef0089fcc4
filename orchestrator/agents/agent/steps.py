"""What answering a request is: steps that may pause, and end with a reply or a refusal."""

from __future__ import annotations

from typing import Any, Dict, Generator, Optional, TypeVar

JsonObject = Dict[str, Any]  # read from a file or a process of the host: nothing is known yet of what it has
T = TypeVar("T")
# A task yields for how many seconds it may sleep (any child's end wakes it too), or None: until the output has drained.
Steps = Generator[Optional[float], None, T]


class Refusal(Exception):
    """A request that cannot be granted, told to whoever asked."""

    def __init__(self, kind: str, message: str, **more: object) -> None:
        super().__init__(message)
        self.kind = kind
        self.more = more
