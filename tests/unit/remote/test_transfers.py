"""Few transfers go on at a time, and agents are small enough to start behind a slow link."""

from __future__ import annotations

import threading

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded
from orchestrator.execution.session import CONNECT_S
from orchestrator.remote import transfers
from orchestrator.remote.transport.bootstrap import agent_source
from tests.helpers.machine import PATIENCE_S


def test_few_transfers_go_on_at_a_time():
    entered, leave = threading.Semaphore(0), threading.Event()

    def carry() -> None:
        with transfers.turn(Deadline.after(PATIENCE_S), node="n1"):
            entered.release()
            leave.wait(PATIENCE_S)

    threads = [threading.Thread(target=carry) for _ in range(3 * transfers.AT_ONCE)]
    for thread in threads:
        thread.start()
    for _ in range(transfers.AT_ONCE):
        assert entered.acquire(timeout=PATIENCE_S)
    with (
        pytest.raises(DeadlineExceeded, match="gave up waiting for its turn to send or fetch files") as caught,
        transfers.turn(Deadline.after(0.01), node="n2"),
    ):
        pass
    assert caught.value.node == "n2"
    assert not entered.acquire(blocking=False), "one more than there are places"
    leave.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


def test_agents_start_behind_a_slow_link_before_their_deadline():
    """Sixty-four of them over 10 Mbit/s take a small part of it."""
    assert 64 * len(agent_source()) * 8 / 10e6 < CONNECT_S / 10
