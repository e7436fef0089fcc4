"""Makes an input small that shows a mistake: what can go without the mistake's going, goes."""

from __future__ import annotations

import time
from collections.abc import Callable

WITHIN_S = 15.0


def shrunk(data: bytes, still: Callable[[bytes], bool]) -> bytes:
    """The smallest input found in a while for which `still` holds, by leaving out halves, quarters and so on."""
    end = time.monotonic() + WITHIN_S
    size = max(1, len(data) // 2)
    while time.monotonic() < end:
        at, before = 0, len(data)
        while at < len(data) and time.monotonic() < end:
            less = data[:at] + data[at + size :]
            if still(less):
                data = less
            else:
                at += size
        if size == 1 and len(data) == before:
            break
        size = max(1, size // 2) if len(data) == before or size > len(data) else size
    return data
