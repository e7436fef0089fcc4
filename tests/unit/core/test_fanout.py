"""The same for many nodes at once: results in order, every failure told, nobody waited for beyond the deadline."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, Interrupted, OrchError
from orchestrator.core.interrupts import Interrupts


def each(items, action, seconds=60.0, **more):
    return fanout.each(items, action, deadline=Deadline.after(seconds), what="asking", **more)


def test_results_come_in_the_items_order_whoever_answers_first():
    first = threading.Event()

    def answer(name):
        if name == "a":
            assert first.wait(60)
        else:
            first.set()
        return name.upper()

    assert list(each(["a", "b"], answer).items()) == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize("items", [[], ["a"]])
def test_few_are_as_good_as_many(items):
    assert each(items, str.upper) == {name: name.upper() for name in items}


def test_they_are_asked_at_once():
    together = threading.Barrier(20)
    assert len(each(range(20), lambda _: together.wait(60))) == 20


def test_those_who_wait_for_each_other_all_begin():
    """As ranks do, which are ready when all have met."""
    count = 2 * fanout.MOST_AT_ONCE + 1
    meeting = threading.Barrier(count)
    assert len(each(range(count), lambda _: meeting.wait(60), together=True)) == count


def test_more_than_may_run_at_once_all_have_their_turn():
    running, most, lock = 0, 0, threading.Lock()

    def count(number):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)
        with lock:
            running -= 1
        return number

    assert list(each(range(200), count)) == list(range(200))
    assert 1 < most <= fanout.MOST_AT_ONCE


def test_every_failure_is_told_the_first_in_the_items_order_first():
    later = threading.Event()

    def fail(name):
        if name == "a":
            later.wait(60)
            raise OrchError("broken\nmore of it", node="a")
        if name == "c":
            later.set()
            raise ValueError
        if name == "d":
            raise OrchError("full", node="d")
        return name

    with pytest.raises(OrchError) as caught:
        each("abcd", fail)
    assert caught.value.node == "a"
    assert caught.value.__notes__ == ["ValueError", "d: full"]


def test_the_deadline_names_who_is_late():
    release = threading.Event()
    with pytest.raises(DeadlineExceeded, match="gave up waiting for asking: no answer from b, d"):
        each("abcd", lambda name: name in "bd" and release.wait(600), seconds=0.2)
    assert not release.is_set()
    release.set()


def test_past_the_deadline_nothing_more_begins():
    begun, release = [], threading.Event()

    def work(number):
        begun.append(number)
        release.wait(60)

    count = fanout.MOST_AT_ONCE + 20
    with pytest.raises(DeadlineExceeded):
        each(range(count), work, seconds=0.5)
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("asking ")]
    release.set()
    for thread in workers:
        thread.join(60)
    assert len(begun) <= fanout.MOST_AT_ONCE


def test_an_interrupt_lets_what_is_under_way_end_and_begins_nothing_more():
    begun, ended = [], []
    go = threading.Event()

    def work(number):
        begun.append(number)
        go.wait(60)
        Deadline.after(60).poll(lambda: interrupts.is_unwinding, every_s=0.005, waiting_for="the signal")
        time.sleep(0.05)
        ended.append(number)

    def interrupt():
        Deadline.after(60).poll(lambda: len(begun) == fanout.MOST_AT_ONCE, every_s=0.005, waiting_for="the threads")
        os.kill(os.getpid(), signal.SIGINT)
        go.set()

    threading.Thread(target=interrupt).start()
    with Interrupts() as interrupts, pytest.raises(Interrupted):
        each(range(fanout.MOST_AT_ONCE + 20), work, seconds=60)
    assert len(ended) == len(begun)
    assert len(begun) < fanout.MOST_AT_ONCE + 20


def test_what_several_say_alike_is_said_once():
    def fail(name):
        raise OrchError("no way through" if name != "d" else "on fire", node="gate" if name != "d" else name)

    with pytest.raises(OrchError) as caught:
        each(["a", "b", "c", "d"], fail)
    assert caught.value.render() == "gate: no way through\n  also: d: on fire"


@pytest.fixture
def few_threads(monkeypatch):
    """A machine that lets one more thread start, and no other."""
    start, left = threading.Thread.start, [None]

    def start_one(thread):
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)


def test_where_no_thread_starts_the_rest_is_done_all_the_same(few_threads):
    """What is put back is put back, though slower."""
    where = each(range(4), lambda _: threading.current_thread())
    assert [thread is threading.main_thread() for thread in where.values()] == [False, True, True, True]


def test_a_failure_without_a_thread_of_its_own_is_told_like_others(few_threads):
    def refuse(name):
        raise OrchError("no", node=name)

    with pytest.raises(OrchError, match="a: no") as caught:
        each(["a", "b", "c"], refuse)
    assert caught.value.__notes__ == ["b: no", "c: no"]


def test_past_the_deadline_no_other_one_begins_without_a_thread_either(few_threads):
    with pytest.raises(DeadlineExceeded, match="no answer from b, c"):
        each(["a", "b", "c"], str.upper, seconds=0)


def test_those_who_wait_for_each_other_need_their_threads(few_threads):
    with pytest.raises(OrchError, match="no thread starts for h1 b") as caught:
        each([("h1", "a"), ("h1", "b"), ("h1", "c")], str, together=True, apart=False)
    assert "ulimit -u" in caught.value.hint


def test_those_who_are_better_done_together_can_do_without_threads(few_threads):
    assert each(["a", "b", "c"], str.upper, together=True) == {"a": "A", "b": "B", "c": "C"}
