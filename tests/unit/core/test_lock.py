"""The lock of this machine: held by one, told to the others, free when its holder dies however it dies."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from orchestrator.core import lock
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import LockedError, StoreError, UnsafePath
from tests.helpers.processes import ended

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
    with ended([sys.executable, "-c", program, name], stdout=subprocess.PIPE, text=True) as holder:
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
    with lock.machine(name, {**HOLDER, "run": "r" * 3_000_000}):  # of which others are told the beginning
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as asks:
                asks.connect(f"\0orch-lock-{name}")
        Deadline.after(60).poll(lambda: _answers(name), every_s=0.01, waiting_for="an answer")


def _answers(name):
    with pytest.raises(LockedError) as caught, lock.machine(name, {}):
        pass
    return "ada@desk" in str(caught.value)


# Other users of the machine

NOBODY = 65534
DRIP = "while True: peer.sendall(b'x'); time.sleep(0.2)"
FLOOD = "while True: peer.sendall(b'x' * 65536)"
FORGE = (
    "peer.sendall(json.dumps({'user': 'root', 'run': 'r1\\nerror: h1 is on fire\\x1b[2J', 'stranger': 'ada'}).encode())"
)
SQUATTER = """
import json, os, socket, sys, time
if os.geteuid() == 0:
    os.setuid(65534)
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(chr(0) + sys.argv[1])
    listener.listen()
    print("held", flush=True)
    while True:
        peer, _ = listener.accept()
        try:
            with peer:
                ANSWER
        except OSError:
            pass
"""


@contextmanager
def squatting(name, answer):
    """Another user, where this one may start one, who has a name and answers so."""
    argv = [sys.executable, "-c", SQUATTER.replace("ANSWER", answer), name]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process.pid
        finally:
            process.kill()


def refused(name):
    """What whoever wants a lock is told, and after how many seconds."""
    began = time.monotonic()
    with pytest.raises(LockedError) as told, lock.machine(name, HOLDER):
        pass
    return told.value.message, time.monotonic() - began


@pytest.mark.parametrize("answer", [DRIP, FLOOD, "time.sleep(600)"])
def test_whatever_a_squatter_says_it_holds_nobody_up(name, answer):
    with squatting(f"orch-lock-{name}", answer):
        _, took_s = refused(name)
    assert took_s < 30  # of a busy machine; a byte at a time it took for ever


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes root")
def test_a_squatter_is_named_by_what_the_kernel_knows_and_forges_no_line(name):
    with squatting(f"orch-lock-{name}", FORGE) as pid:
        message, _ = refused(name)
    assert (
        f"taken by user nobody (process {pid}), who is not you; it says that it is root@?, process ?, run r1" in message
    )
    assert "\n" not in message
    assert r"r1\u000aerror: h1 is on fire\u001b[2J" in message
    assert "ada" not in message


# Locks of a folder of results


def test_a_folder_has_one_holder_who_is_named(tmp_path):
    with lock.within(tmp_path, "recovery-of-r1", HOLDER):
        told = "the recovery of r1 is taken by ada@desk, process 7, run r1, since noon"
        for _ in range(2):
            with pytest.raises(LockedError, match=told), lock.within(tmp_path, "recovery-of-r1", {}):
                pytest.fail("two hold it")
        with lock.within(tmp_path, "recovery-of-r2", {}):
            pass
    assert list(tmp_path.iterdir()) == []
    with lock.within(tmp_path, "recovery-of-r1", HOLDER):
        pass


def test_a_folder_is_free_when_its_holder_was_killed(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from orchestrator.core import lock\n"
        "with lock.within(Path(sys.argv[1]), 'sweep', {'user': 'eve'}): print('held', flush=True); time.sleep(600)"
    )
    with ended([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match="taken by eve@"), lock.within(tmp_path, "sweep", HOLDER):
            pass
        holder.kill()
        holder.wait()
    with lock.within(tmp_path, "sweep", HOLDER):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("folder", "file"), [(0o755, 0o600), (0o775, 0o660), (0o1777, 0o666)])
def test_who_may_not_write_in_a_folder_cannot_hold_its_lock(tmp_path, folder, file):
    tmp_path.chmod(folder)
    with lock.within(tmp_path, "sweep", HOLDER):
        (made,) = tmp_path.iterdir()
        assert stat.S_IMODE(made.stat().st_mode) == file


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()])
def test_what_has_the_name_of_a_folders_lock_holds_nobody_up(tmp_path, make):
    make(tmp_path / ".sweep.lock")
    with suppress(StoreError), lock.within(tmp_path, "sweep", HOLDER):
        pass


def test_a_name_with_a_way_in_it_is_no_lock(tmp_path):
    with pytest.raises(UnsafePath), lock.within(tmp_path, "recovery-of-../x", HOLDER):
        pass
