"""Whether watching changes what is watched: iteration time with every collector against none."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.figure import Figure, Settings
from tests.bench.paired import compared

GOAL = 1.02


def measure(settings: Settings) -> Iterator[Figure]:
    """Every collector of the quickstart on, and off."""
    return compared(
        settings, name="collectors", one=("all collectors", {}), other=("no collector", {"collect": []}), goal=GOAL
    )
