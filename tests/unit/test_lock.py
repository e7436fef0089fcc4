"""The lock of this machine: held by one, told to the others, free when its holder dies however it dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from orchestrator.core import lock
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import LockedError

HOLDER = {"user": "ada", "host": "desk", "pid": 7, "run": "r1", "since": "noon"}


@pytest.fixture
def name():
    return f"test-{os.getpid()}-{os.urandom(4).hex()}"


def test_whoever_holds_it_is_named_and_then_it_is_free(name):
    with lock.machine(name, HOLDER):
        for _ in range(3):  # it answers more than once
            with pytest.raises(LockedError) as caught, lock.machine(name, {}):
                pytest.fail("two hold it")
        assert f"{name.replace('-', ' ')} of this machine is taken by ada@desk, process 7, run r1, since noon" in str(
            caught.value
        )
        assert "--wait" in str(caught.value.hint)
    with lock.machine(name, HOLDER):
        pass


def test_another_lock_is_another_lock(name):
    with lock.machine(name, HOLDER), lock.machine(f"{name}-x", HOLDER):
        pass


def test_a_local_testbed_has_the_machines_lock_unless_another_is_named(monkeypatch):
    monkeypatch.delenv(lock.OTHER_TESTBED, raising=False)
    assert lock.local_testbed() == "local-testbed"
    monkeypatch.setenv(lock.OTHER_TESTBED, "gw1")
    assert lock.local_testbed() == "local-testbed-gw1"


def test_it_is_given_back_when_what_it_guards_fails(name):
    with pytest.raises(KeyError), lock.machine(name, HOLDER):
        raise KeyError
    with lock.machine(name, HOLDER):
        pass


def test_it_is_free_when_its_holder_was_killed(name):
    program = (
        "import sys, time; from orchestrator.core import lock\n"
        "with lock.machine(sys.argv[1], {'user': 'eve', 'pid': 1}): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program, name], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=r"taken by eve@\?, process 1"), lock.machine(name, HOLDER):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with lock.machine(name, HOLDER):
        pass


def test_a_holder_that_was_stopped_is_somebody_unknown(name, monkeypatch):
    monkeypatch.setattr(lock, "ANSWER_S", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"\0orch-lock-{name}")
        silent.listen()
        with pytest.raises(LockedError, match="another orch, which does not say"), lock.machine(name, HOLDER):
            pass


@pytest.mark.parametrize("said", [b"", b"no json", b"[1]", b"\xff\xfe"])
def test_whoever_answers_nonsense_is_somebody_unknown(name, said):
    import threading

    with socket.socket(socket.AF_UNIX) as strange:
        strange.bind(f"\0orch-lock-{name}")
        strange.listen()

        def answer():
            peer, _ = strange.accept()
            with peer:
                peer.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(LockedError, match="another orch"), lock.machine(name, HOLDER):
            pass
        thread.join(60)


def test_who_asks_and_goes_away_does_not_silence_it(name):
    with lock.machine(name, {**HOLDER, "run": "r" * 3_000_000}):  # more than a socket takes at once
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as asks:
                asks.connect(f"\0orch-lock-{name}")
        Deadline.after(60).poll(lambda: _answers(name), every_s=0.01, waiting_for="an answer")


def _answers(name):
    with pytest.raises(LockedError) as caught, lock.machine(name, {}):
        pass
    return "ada@desk" in str(caught.value)
