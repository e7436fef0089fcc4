"""In which order tests are collected where tests that compute and tests that wait are run together, and which."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Protocol, TypeVar


class Placed(Protocol):
    """A test of a module."""

    path: Path


Test = TypeVar("Test", bound=Placed)


def shuffled(tests: Sequence[Test], seed: str) -> list[Test]:
    """The same tests with modules in another order, and tests within modules: an order for each seed."""
    draw = random.Random(seed)  # noqa: S311 - an order, not a secret
    modules = [list(of_one) for _, of_one in groupby(tests, key=lambda test: test.path)]
    draw.shuffle(modules)
    for module in modules:
        draw.shuffle(module)
    return [test for module in modules for test in module]


def due(name: str, turn: str) -> bool:
    """Whether a test is in the part that is due in a turn, such as "7/3": the eighth turn of three parts."""
    number, parts = map(int, turn.split("/"))
    return int.from_bytes(sha256(name.encode()).digest(), "big") % parts == number % parts


def spread(tests: Sequence[Test], waits: Callable[[Test], bool]) -> list[Test]:
    """The same tests, with modules of those that wait spread evenly between those of the others.

    Modules stay whole, since they share what they set up, and those of either kind keep their order. The processes of
    `--dist worksteal` begin with equal runs of what was collected: so each has work of both kinds from the first on.
    """
    modules = [list(of_one) for _, of_one in groupby(tests, key=lambda test: test.path)]
    places = []
    for kind in (True, False):
        chosen = [module for module in modules if waits(module[0]) is kind]
        count, before = sum(map(len, chosen)), 0
        for module in chosen:
            places.append(((before + len(module) / 2) / count, module))
            before += len(module)
    return [test for _, module in sorted(places, key=lambda place: place[0]) for test in module]
