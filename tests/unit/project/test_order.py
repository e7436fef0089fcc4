"""The order of tests that wait and tests that compute."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.helpers.order import due, shuffled, spread


@dataclass(frozen=True)
class One:
    path: Path
    number: int


def module(name: str, count: int) -> list[One]:
    return [One(Path(name), number) for number in range(count)]


def waits(test: One) -> bool:
    return test.path.name.startswith("live")


def test_what_waits_is_spread_over_what_computes() -> None:
    tests = [*module("live1", 2), *module("live2", 2), *(one for name in "abcd" for one in module(name, 10))]
    names = list(dict.fromkeys(test.path.name for test in spread(tests, waits)))
    assert names == ["a", "live1", "b", "c", "live2", "d"]


def test_every_test_is_there_once_and_modules_stay_whole() -> None:
    tests = [*module("a", 3), *module("live1", 7), *module("b", 1), *module("live2", 1)]
    after = spread(tests, waits)
    assert sorted(after, key=tests.index) == tests
    assert sum(here.path != there.path for here, there in pairwise(after)) == 3


def test_an_order_is_that_of_its_seed_and_leaves_no_test_out() -> None:
    tests = [*module("a", 9), *module("b", 9), *module("c", 9)]
    orders = {seed: shuffled(tests, seed) for seed in ("1", "2")}
    assert orders["1"] == shuffled(tests, "1") != orders["2"]
    assert orders["1"] != tests
    for after in orders.values():
        assert sorted(after, key=tests.index) == tests
        assert sum(here.path != there.path for here, there in pairwise(after)) == 2


def test_tests_of_one_kind_stay_as_they_are() -> None:
    for name in ("a", "live"):
        tests = [*module(f"{name}2", 3), *module(f"{name}1", 2)]
        assert spread(tests, waits) == tests
    assert spread([], waits) == []


def test_each_variant_is_due_in_one_of_three_turns() -> None:
    names = [f"tests/testbed/test_x.py::test_y[{number}]" for number in range(300)]
    parts = [{name for name in names if due(name, f"{turn}/3")} for turn in range(7, 10)]
    assert all(70 < len(one) < 130 for one in parts)
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(names)
    assert all(due(name, "5/1") for name in names)
