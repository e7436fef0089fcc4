"""What the run makes of what its agents say: which exits end it, which are noted, and what is no iteration."""

from __future__ import annotations

import json
import time

import pytest

from orchestrator.core.errors import Interrupted, LaunchError, TestbedError, TransportError
from orchestrator.execution.observers.events import EventLog
from orchestrator.execution.watch import Watch
from orchestrator.parts.launch import Launch
from orchestrator.remote.events import AgentLost, LineRead, ProcessExited


@pytest.fixture
def watch(tmp_path):
    return Watch(EventLog(tmp_path / "events.jsonl"))


def lost(node: str, why: str, *, since: float = 0.0, blamed: str | None = "") -> AgentLost:
    return AgentLost(node, TransportError(why, node=node if blamed == "" else blamed), since)


def started(watch: Watch, name="p", **more):
    launch = Launch(name=name, node="h1", role="collector", argv=("prog", "--flag"), **more)
    watch.add(launch)
    return watch.processes["h1", name]


def exited(watch: Watch, status: int, name="p"):
    watch.inbox.put(ProcessExited("h1", name, status, 1))
    watch.take(time.monotonic())


@pytest.mark.parametrize("status", [0, 1, -9])
def test_what_must_live_and_ends_ends_the_run(watch, status):
    process = started(watch)
    with pytest.raises(LaunchError, match=f"h1: p ended with status {status} before it was asked to") as caught:
        exited(watch, status)
    assert caught.value.argv == ("prog", "--flag")
    assert process.status == status


def test_what_may_fail_is_noted_once_and_the_run_goes_on(watch):
    process = started(watch, required=False)
    exited(watch, 3)
    assert watch.notes == ["h1: p ended with status 3 before it was asked to"]
    assert process.failed


@pytest.mark.parametrize("status", [0, 1, -15])
def test_what_was_asked_to_end_may_end_as_it_likes(watch, status):
    process = started(watch)
    process.stopping = True
    exited(watch, status)
    assert (process.status, process.failed, watch.notes) == (status, None, [])


def test_what_need_not_live_may_end_well(watch):
    started(watch, lives=False)
    exited(watch, 0)
    started(watch, name="q", lives=False)
    with pytest.raises(LaunchError, match="q ended with status 1"):
        exited(watch, 1, "q")


def test_nobody_knows_a_process_that_was_not_added(watch):
    exited(watch, 1, "stranger")
    watch.inbox.put(LineRead("h1", "stranger", "{", 1))
    watch.take(time.monotonic())


def test_a_lost_agent_ends_the_run_and_is_remembered(watch, tmp_path):
    watch.inbox.put(lost("h1", "its agent is gone: the channel ended"))
    with pytest.raises(TransportError, match="h1: its agent is gone: the channel ended"):
        watch.take(time.monotonic())
    assert watch.lost == {"h1": "its agent is gone: the channel ended"}
    assert json.loads((tmp_path / "events.jsonl").read_text())["event"] == "agent-lost"


def line(watch: Watch, text: str):
    watch.inbox.put(LineRead("h1", "p", text, 1))
    watch.take(time.monotonic())


def test_iterations_come_in_the_controllers_time(watch):
    started(watch, job="j")
    watch.offsets_ns["h1"] = 1000
    assert watch.jobs["j"].last == -1
    before = time.monotonic()
    line(watch, '{"iteration": 4, "start_ns": 10, "end_ns": 5000000010, "more": 1}')
    (iteration,) = watch.jobs["j"].iterations
    assert (iteration.number, iteration.start_ns, iteration.end_ns, iteration.seconds) == (4, 1010, 5000001010, 5.0)
    assert watch.jobs["j"].last == 4
    assert before <= watch.jobs["j"].heard <= time.monotonic()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "loss 3",
        "{",
        "[]",
        "3",
        "null",
        "{}",
        '{"iteration": "x", "start_ns": 1, "end_ns": 2}',
        '{"iteration": null, "start_ns": 1, "end_ns": 2}',
        '{"iteration": 1, "start_ns": NaN, "end_ns": 2}',
        '{"iteration": 1, "start_ns": Infinity, "end_ns": 2}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_iteration_ends_the_run_in_words(watch, text):
    started(watch, job="j")
    with pytest.raises(LaunchError, match="h1: p logged a line that is no iteration"):
        line(watch, text)
    assert watch.jobs["j"].iterations == []


def test_lines_of_what_is_no_rank_are_nobodys(watch):
    started(watch)
    line(watch, "garbage")


def test_events_before_a_failure_are_taken_and_those_behind_it_wait(watch):
    started(watch, job="j")
    for number in (0, 1):
        watch.inbox.put(LineRead("h1", "p", f'{{"iteration": {number}, "start_ns": 1, "end_ns": 2}}', 1))
        if number == 0:
            watch.inbox.put(lost("h1", "gone"))
    with pytest.raises(TransportError):
        watch.take(time.monotonic())
    assert watch.jobs["j"].last == 0
    watch.settle()
    assert watch.jobs["j"].last == 1


def test_settling_raises_nothing(watch):
    started(watch, job="j")
    for event in (lost("h1", "gone"), ProcessExited("h1", "p", 1, 1), LineRead("h1", "p", "{", 1)):
        watch.inbox.put(event)
    watch.settle()
    assert len(watch.inbox) == 0
    assert watch.processes["h1", "p"].failed


def test_it_waits_no_longer_than_it_was_told(watch):
    until = time.monotonic() + 0.05
    watch.take(until)  # for ever, if it did not look at the time
    assert time.monotonic() >= until


HOUR_NS = 3600 * 10**9


def told_at(watch: Watch, number: int, start_ns: int, wall_ns: int):
    text = f'{{"iteration": {number}, "start_ns": {start_ns}, "end_ns": {start_ns + 1000}}}'
    watch.inbox.put(LineRead("h1", "p", text, wall_ns))
    watch.take(time.monotonic())


def test_a_ranks_clock_that_is_set_back_ends_the_run(watch):
    started(watch, job="j")
    now = time.time_ns()
    told_at(watch, 1, now, now)
    with pytest.raises(
        TestbedError, match=r"h1: its clock was set back: iterations of p begin 3,600.0 s before"
    ) as told:
        told_at(watch, 2, now - HOUR_NS, now - HOUR_NS)
    assert told.value.node == "h1"
    assert watch.jobs["j"].last == 1


def test_a_ranks_clock_that_is_set_forward_ends_the_run(watch):
    started(watch, job="j")
    now = time.time_ns()
    watch.offsets_ns["h1"] = -HOUR_NS  # it was an hour ahead all the time
    told_at(watch, 1, now + HOUR_NS, now + HOUR_NS)
    with pytest.raises(TestbedError, match=r"h1: its clock was set forward: it is 3,600.0 s ahead of where it was"):
        told_at(watch, 2, now + 2 * HOUR_NS, now + 2 * HOUR_NS)


@pytest.mark.parametrize(("by_ns", "told"), [(HOUR_NS, "forward"), (-HOUR_NS, "back"), (-(10**9), "back")])
def test_this_machines_clock_that_is_set_ends_the_run(watch, monkeypatch, by_ns, told):
    true = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true() + by_ns)
    with pytest.raises(TestbedError, match=f"this machine's clock was set {told} by"):
        watch.take(time.monotonic())
    watch.settle()


def test_lines_that_come_late_are_no_clock_that_was_set(watch):
    """As after a cut of the control network that healed: they were read long ago."""
    started(watch, job="j")
    then = time.time_ns() - 90 * 10**9
    for number in range(3):
        told_at(watch, number, then + number, then + number)
    assert watch.jobs["j"].last == 2


def test_a_loss_is_told_before_what_follows_from_it(watch):
    """A rank's error is known at once, that a host of its peers fell silent before it only seconds later."""
    error = LaunchError("training-rank0 ended with status 1", node="h1")
    assert watch.cause(error, 100.0) is error
    watch.inbox.put(lost("h2", "nothing was heard of it for 9 s", since=99.0))
    watch.settle()
    told = watch.cause(error, 100.0)
    assert str(told).splitlines() == [
        "h2: nothing was heard of it for 9 s",
        "  also: h1: training-rank0 ended with status 1",
    ]


def test_of_several_losses_the_first_is_told_and_blames_whom_it_blamed(watch):
    watch.inbox.put(lost("h3", "gone", since=99.5))
    watch.inbox.put(lost("h2", "jump host gate, which leads to h2: nothing", since=99.0, blamed=None))
    watch.settle()
    told = watch.cause(LaunchError("training-rank0 ended with status 1", node="h1"), 100.0)
    assert (told.message, told.node) == ("jump host gate, which leads to h2: nothing", None)


@pytest.mark.parametrize(
    "error",
    [
        LaunchError("training-rank1 ended with status -9", node="h2"),  # which the host could still tell
        Interrupted("stopped by SIGINT"),
        TransportError("its agent is gone", node="h1"),
    ],
)
def test_what_does_not_follow_from_a_loss_is_told_as_it_is(watch, error):
    watch.inbox.put(lost("h2", "nothing was heard of it for 9 s", since=99.0))
    watch.settle()
    assert watch.cause(error, 100.0) is error


def test_a_loss_after_a_failure_is_not_its_cause(watch):
    watch.inbox.put(lost("h2", "gone", since=105.0))
    watch.settle()
    error = LaunchError("training-rank0 ended with status 1", node="h1")
    assert watch.cause(error, 100.0) is error
