"""What a condition was to do within a window, and whether it did at its times."""

from __future__ import annotations

import pytest

from orchestrator.testing import MadeWindow
from orchestrator.validity.gates import conditions
from tests.helpers import manifests

START_NS = 1_795_000_000_000_000_000


def verdict_of(**values):
    event = {"window": "w1", "event": "link leaf1-spine2 down", "begin_s": 2.0, "end_s": 4.0, **values}
    for key in ("began_ns", "ended_ns"):
        if event.get(key) is not None:
            event[key] = START_NS + round(event[key] * 1e9)
    found = manifests.made(events=[event])
    record = manifests.window("w1", start_ns=START_NS, end_ns=START_NS + 10**10)
    return list(conditions.judge(MadeWindow(manifest=found, record=record)))


@pytest.mark.parametrize(
    ("began", "ended", "passed"),
    [(2.01, 4.02, True), (2.6, 4.0, False), (2.0, 4.6, False), (None, None, False), (2.0, None, False)],
)
def test_an_event_has_to_come_to_pass_at_its_times(began, ended, passed):
    (gate,) = verdict_of(began_ns=began, ended_ns=ended)
    assert (gate.name, gate.passed, gate.required) == ("events", passed, True)
    assert "link leaf1-spine2 down" in gate.message


def test_an_event_of_another_window_is_not_judged_in_this_one():
    assert verdict_of(window="w2", began_ns=2.0, ended_ns=4.0) == []
