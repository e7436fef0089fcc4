"""Ctrl-C: the first ends what is being done, the second ends the grace of putting things back."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from orchestrator.agents.agent.launches import Ended
from orchestrator.core.errors import Interrupted
from orchestrator.core.interrupts import Interrupts
from orchestrator.execution.actions.processes import Processes
from orchestrator.execution.observers.events import EventLog
from orchestrator.execution.watch import Watch
from orchestrator.parts.launch import Launch
from tests.helpers.processes import ended

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def strike(number):
    os.kill(os.getpid(), number)
    time.sleep(0)  # a handler runs between two instructions


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_raises_and_the_next_ones_hurry(number):
    with Interrupts() as interrupts:
        assert (interrupts.is_unwinding, interrupts.grace) == (False, 1.0)
        with pytest.raises(Interrupted, match=f"stopped by {number.name}") as caught:
            strike(number)
        assert caught.value.exit_code == 130
        assert (interrupts.is_unwinding, interrupts.grace) == (True, 1.0)
        strike(signal.SIGTERM)
        assert interrupts.hurry
        assert interrupts.grace == 0.0
        strike(number)


def test_while_things_are_put_back_the_first_one_only_hurries():
    with Interrupts() as interrupts:
        interrupts.unwinding()
        strike(signal.SIGINT)
        assert interrupts.hurry


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with contextlib.suppress(KeyError), Interrupts():
        raise KeyError
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_rest_ends_in_time_or_with_a_second_signal():
    with Interrupts() as interrupts:
        until = time.monotonic() + 0.05
        interrupts.rest(until)
        assert time.monotonic() >= until
        interrupts.rest(until - 3600)
        interrupts.unwinding()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        interrupts.rest(until + 3600)
        assert time.monotonic() < until + 3600


PROGRAM = """
import time
from orchestrator.agents.agent.launches import Ended
from orchestrator.core.errors import Interrupted
from orchestrator.core.interrupts import Interrupts
with Interrupts() as interrupts:
    try:
        print("working", flush=True)
        time.sleep(600)
    except Interrupted as error:
        print(error, flush=True)
        interrupts.rest(time.monotonic() + 600)
        print("put back with grace", interrupts.grace, flush=True)
"""


def test_a_process_that_is_struck_twice_puts_back_at_once():
    with ended([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stopped by SIGINT\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "put back with grace 0.0\n"
        assert process.wait() == 0


def test_no_file_is_tried_in_the_temporary_folder_once_signals_raise(tmp_path):
    """One that is raised between a file's making and its removal leaves the file."""
    code = """
import sys, tempfile
from orchestrator.core.interrupts import Interrupts
with Interrupts():
    sys.addaudithook(lambda event, arguments: event == "open" and sys.exit(f"opens {arguments[0]}"))
    print(tempfile.gettempdir())
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert (done.stdout.strip(), done.stderr) == (str(tmp_path), "")


def test_a_thread_that_is_being_started_is_not_forgotten(monkeypatch, capfd):
    """`Thread.start` takes any Exception for one of the system, and forgets the thread, whose own start then fails."""
    name = "_start_new_thread" if hasattr(threading, "_start_new_thread") else "_start_joinable_thread"
    start = getattr(threading, name)

    def struck(*args, **kwargs):
        begun = start(*args, **kwargs)
        strike(signal.SIGINT)
        return begun

    monkeypatch.setattr(threading, name, struck)
    done = threading.Event()
    before = signal.getsignal(signal.SIGALRM)
    with Interrupts() as interrupts:
        with pytest.raises(Interrupted, match="stopped by SIGINT"):  # noqa: PT012 - it comes after the start
            threading.Thread(target=done.set).start()
            time.sleep(5)
        assert done.wait(5)
        strike(signal.SIGINT)
        assert interrupts.hurry
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert "Traceback" not in capfd.readouterr().err


def test_what_a_second_signal_killed_is_told_once(tmp_path):
    """Each process by itself would be a line that says that it failed."""
    launches = [
        Launch(name=f"tcpdump.h{number}", node=f"h{number}", role="collector", argv=("x",)) for number in (1, 2, 3)
    ]
    events = EventLog(tmp_path / "events.jsonl")
    watch = Watch(events)
    stopped = Ended(
        status=-9, killed=True, was_over=False, ended_ns=1, user_s=0.0, system_s=0.0, max_rss_bytes=1, tail=""
    )
    client = SimpleNamespace(stop=lambda *_, **__: stopped)
    hurried = SimpleNamespace(hurry=True, grace=0.0, rest=lambda _: None)
    session = SimpleNamespace(
        watch=watch,
        events=events,
        interrupts=hurried,
        note_losses=lambda: None,
        clients=dict.fromkeys((launch.node for launch in launches), client),
    )
    for launch in launches:
        watch.add(launch)
        watch.processes[launch.node, launch.name].asked = True
    processes = Processes(session)
    processes.stop(launches, measured_until=0.0)
    assert watch.notes == []
    (told,) = processes.cut_short()
    assert told.endswith("may be missing: tcpdump.h1..tcpdump.h3")


def test_a_status_that_a_launch_does_not_accept_when_it_is_asked_to_end_is_told(tmp_path):
    events = EventLog(tmp_path / "events.jsonl")
    watch = Watch(events)
    launch = Launch(name="p", node="h1", role="rank", argv=("x",))
    watch.add(launch)
    watch.processes["h1", "p"].asked = True
    ended = Ended(5, killed=False, was_over=False, ended_ns=1, user_s=0.0, system_s=0.0, max_rss_bytes=1, tail="")
    patient = SimpleNamespace(hurry=False, grace=1.0, rest=lambda _: None)
    session = SimpleNamespace(
        watch=watch,
        events=events,
        interrupts=patient,
        note_losses=lambda: None,
        clients={"h1": SimpleNamespace(stop=lambda *_, **__: ended)},
    )
    Processes(session).stop([launch], measured_until=0.0)
    assert watch.processes["h1", "p"].failed == "p ended with status 5 when it was asked to end"
    assert watch.notes == ["h1: p ended with status 5 when it was asked to end"]
