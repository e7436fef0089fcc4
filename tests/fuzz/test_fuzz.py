"""A few inputs of every target, the same each time; `python -m tests.fuzz` tries as many as one has time for."""

from __future__ import annotations

import json
import os

import pytest

from tests.fuzz.campaign import Campaign
from tests.fuzz.shrink import shrunk
from tests.fuzz.target import Target, drawn
from tests.fuzz.targets import TARGETS, operations
from tests.fuzz.trial import tried_apart
from tests.helpers.agent_messages import agent_messages

INPUTS = {"captures": 600, "sweep": 40, "ssh": 60, "query": 60, "experiment": 150, "option": 100, "operations": 40}
USUAL = 300
SEED = 1


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_our_own_errors_comes_out(name, tmp_path):
    target = TARGETS[name]
    refused = 0
    for place in range(INPUTS.get(name, USUAL)):
        data = drawn(target, SEED, place)
        try:
            target.read(data, tmp_path)
        except target.ours:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {SEED}, place {place}: {type(error).__name__} from {data[:500]!r}") from error
    assert refused < INPUTS.get(name, USUAL), "every input was refused: nothing behind the first check was tried"


def test_a_real_agent_is_asked_every_message_but_for_images():
    asked = {str(one["op"]) for one in (*operations.GOOD, *operations.RARE)}
    assert asked == agent_messages() - {"image"}  # which starts a runtime of containers


def spent(data: bytes, _folder) -> None:
    """Fails in each of the ways that a reader can."""
    if data == b"hang":
        while True:
            pass
    if data == b"memory":
        bytearray(1 << 40)
    if data == b"much":
        len(bytearray(os.urandom(1 << 20) * 100))
    if data == b"crash":
        os.abort()
    if data.startswith(b"bug"):
        raise KeyError(data)
    if data == b"ours":
        raise ValueError


def target_of(*inputs: bytes) -> Target:
    return Target(
        name="t", make=lambda source: source.choice(inputs), read=spent, ours=(ValueError,), share=1, seconds=2, mib=50
    )


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"hang", "time: more than 2 s"),
        (b"memory", "memory in tests/fuzz/test_fuzz.py:spent"),
        (b"much", "memory: more than 50 MiB"),
        (b"crash", "crash: SIGABRT"),
        (b"bug", "KeyError in tests/fuzz/test_fuzz.py:spent"),
        (b"ours", ""),
        (b"fine", ""),
    ],
)
def test_what_goes_wrong_with_an_input_is_told(data, wrong):
    assert tried_apart(target_of(data), data).wrong == wrong


def test_a_campaign_keeps_what_it_finds_small_and_goes_on_where_it_stopped(tmp_path):
    said = []
    target = target_of(b"bug" + b"x" * 50, b"crash", b"fine")
    for inputs in (20, 30):
        Campaign(target, 3, tmp_path).carry_out(inputs, said.append)
    state = json.loads((tmp_path / "t.3" / "state.json").read_text())
    assert state["inputs"] == 30
    found = {wrong: (tmp_path / "t.3" / kept["input"]).read_bytes() for wrong, kept in state["findings"].items()}
    assert found == {"KeyError in tests/fuzz/test_fuzz.py:spent": b"bug", "crash: SIGABRT": b"crash"}
    drawn_all = [drawn(target, 3, place) for place in range(30)]
    assert state["findings"]["crash: SIGABRT"]["count"] == drawn_all.count(b"crash")


def test_an_input_is_made_small():
    assert shrunk(b"x" * 500 + b"ab" + b"y" * 700, lambda data: b"ab" in data) == b"ab"
