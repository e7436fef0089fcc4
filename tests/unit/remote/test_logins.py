"""Logins that are turned away, and how many are tried at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded
from orchestrator.remote.transport import logins
from orchestrator.remote.transport.ssh_config import Hop, SshSettings, SshTarget

PATIENCE_S = 60


def hop(**more) -> Hop:
    return Hop(SshTarget(name="n1", host="h"), SshSettings(**{"hostname": "h", "user": "u", "port": 22, **more}))


@pytest.fixture(autouse=True)
def _no_gates(monkeypatch):
    monkeypatch.setattr(logins, "_gates", {})


def test_one_that_was_dropped_comes_again():
    answers = iter([logins.DroppedError(), logins.DroppedError(), None])

    def attempt() -> str:
        if (error := next(answers)) is not None:
            raise error
        return "in"

    assert logins.patiently(hop(), attempt, Deadline.after(PATIENCE_S)) == "in"


def test_it_comes_until_the_deadline():
    tries = []

    def attempt() -> None:
        tries.append(1)
        raise logins.DroppedError

    with pytest.raises(logins.DroppedError):
        logins.patiently(hop(), attempt, Deadline.after(0.5))
    assert len(tries) > 1


@pytest.mark.parametrize("settings", [{}, {"proxycommand": "ssh gate -W %h:%p"}], ids=["a host", "a command"])
def test_few_at_a_time(settings):
    running, most, lock = 0, 0, threading.Lock()
    full = threading.Event()

    def attempt() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == logins.AT_ONCE:
                full.set()
        assert full.wait(PATIENCE_S)
        with lock:
            running -= 1

    def login(number: int) -> None:
        of = {"hostname": f"h{number}"} if settings else {}
        logins.patiently(hop(**settings, **of), attempt, Deadline.after(PATIENCE_S))

    with ThreadPoolExecutor(30) as pool:
        list(pool.map(login, range(30)))
    assert most == logins.AT_ONCE


def test_a_turn_that_never_comes(monkeypatch):
    monkeypatch.setattr(logins, "AT_ONCE", 1)

    def attempt() -> None:
        with pytest.raises(DeadlineExceeded, match="n1: gave up waiting for its turn"):
            logins.patiently(hop(), lambda: None, Deadline.after(0.1))
        logins.patiently(hop(hostname="other"), lambda: None, Deadline.after(PATIENCE_S))

    logins.patiently(hop(), attempt, Deadline.after(PATIENCE_S))
