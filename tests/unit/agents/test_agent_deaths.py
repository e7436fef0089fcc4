"""Whoever dies, nothing stays behind: controllers, agents, and those who hold locks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, DeadlineExceeded, LockedError, OrchError, TransportError
from orchestrator.hosts import cleaning
from orchestrator.parts.launch import Launch, Line
from orchestrator.remote.agent_client import come_back
from orchestrator.remote.events import AgentLost
from tests.helpers.machine import PATIENCE_S, gone

pytestmark = pytest.mark.usefixtures("strays")

CHILDREN = r"""
import os, signal, subprocess, sys, time
def note(kind):
    with open("pids", "a") as file: file.write(f"{kind} {os.getpid()}\n")
def wait():
    while True: time.sleep(1)
note("polite")
deaf = sys.argv[1:] != ["hears"]
if os.fork() == 0:
    for number in (signal.SIGTERM, signal.SIGHUP) if deaf else (): signal.signal(number, signal.SIG_IGN)
    note("deaf"); wait()
if os.fork() == 0:
    os.setsid(); note("setsid"); wait()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if deaf: signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note("daemon"); wait()
        os._exit(0)
    os._exit(0)
while len(open("pids").readlines()) < 4: time.sleep(.01)
print("up", flush=True)
wait()
"""

CONTROLLER = """
import json, sys, time
from orchestrator.core.deadline import Deadline
from orchestrator.parts.launch import Launch, Line
from orchestrator.remote.agent_client import AgentClient
from orchestrator.parts.topology import Node
from orchestrator.remote.transport.local import LocalChannel
work, run, children, undone, *how = sys.argv[1:]
channel = LocalChannel()
client = AgentClient(Node(name="n1", work=work), channel, run=run, holder={"run": run}, on_event=lambda event: None)
client.hello(Deadline.after(60))
client.change("rate", Deadline.after(60), undo=[["touch", undone]], apply=[["true"]])
for name in ("p", "q"):
    client.start(Launch(name=name, node="n1", role="rank", argv=(sys.executable, "-c", children, *how),
                       ready=Line("up")), Deadline.after(60))
print(channel.pid, flush=True)
time.sleep(600)
"""


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


def pids_of(folder: Path) -> dict[str, int]:
    entries = (line.split() for line in (folder / "pids").read_text().splitlines())
    return {kind: int(pid) for kind, pid in entries}


@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, ()), (signal.SIGTERM, ("hears",))])
def test_a_dead_controller_takes_everything_along_and_changes_are_undone(tmp_path, run_name, number, how):
    undone = tmp_path / "undone"
    argv = [sys.executable, "-c", CONTROLLER, str(tmp_path), run_name, CHILDREN, str(undone), *how]
    controller = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    agent = int(controller.stdout.readline())
    controller.stdout.close()
    pids = [pid for name in ("p", "q") for pid in pids_of(tmp_path / f"{run_name}.n1" / name).values()]
    assert len(pids) == 8
    assert not any(map(gone, pids))
    controller.send_signal(number)
    controller.wait()
    soon().poll(lambda: all(map(gone, [*pids, agent])), every_s=0.02, waiting_for="all to be gone")
    assert undone.exists()
    assert (tmp_path / f"{run_name}.n1" / "p/stdout").read_text() == "up\n"  # the data stays


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_agent_that_is_asked_to_end_puts_everything_down(connect_agent, tmp_path, number):
    client = connect_agent()
    undone = tmp_path / "undone"
    client.change("rate", soon(), undo=[["touch", str(undone)]], apply=[["true"]])
    client.start(Launch(name="p", node="n1", role="rank", argv=("sleep", "600")), soon())
    pid = client.processes(soon())[0].pid
    os.kill(client.channel.pid, number)
    event = client.await_event(lambda event: isinstance(event, AgentLost))
    assert "ended" in event.reason
    assert gone(pid)
    assert undone.exists()
    with pytest.raises(TransportError, match="channel to the agent ended"):
        client.files(soon())


def killed_agent(connect_agent, tmp_path, *, children=True):
    """The pids that an agent leaves when it is killed, and what its change would touch when undone."""
    client = connect_agent()
    for key in ("one", "two"):
        undo = [["sh", "-c", f"echo {key} >> {tmp_path / 'undone'}"]]
        client.change(key, soon(), undo=undo, apply=[["true"]])
    pids = {}
    if children:
        argv = (sys.executable, "-c", CHILDREN)
        client.start(Launch(name="p", node="n1", role="rank", argv=argv, ready=Line("up")), soon())
        pids = pids_of(Path(client.node.folder(client._run)) / "p")
    os.kill(client.channel.pid, signal.SIGKILL)
    client.await_event(lambda event: isinstance(event, AgentLost))
    return pids


def test_a_new_agent_sweeps_what_a_killed_one_left(connect_agent, tmp_path, run_name):
    pids = killed_agent(connect_agent, tmp_path)
    soon().poll(lambda: gone(pids["polite"]), every_s=0.01, waiting_for="the direct child to die")
    assert not gone(pids["daemon"])
    living = connect_agent(run=run_name + "-living")
    living.start(Launch(name="p", node="n1", role="rank", argv=("sleep", "600")), soon())

    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=True)
    assert all(map(gone, pids.values()))
    assert {process.run for process in swept.killed} == {run_name}
    assert {process.pid for process in swept.killed} == {pids["deaf"], pids["setsid"], pids["daemon"]}
    assert swept.undone == ("two", "one")
    assert (tmp_path / "undone").read_text() == "two\none\n"
    assert swept.alive == (run_name + "-living",)
    assert swept.kept == (str(tmp_path / "work" / f"{run_name}.n1"),)
    assert len(living.processes(soon())) == 1

    again = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=False)
    assert (again.killed, again.undone) == ((), ())
    assert again.removed == swept.kept
    assert [path.name for path in (tmp_path / "work").iterdir()] == [run_name + "-living.n1"]


@pytest.mark.parametrize("during", ["change", "undo"])
def test_a_change_that_a_killed_agent_left_half_made_is_taken_back_as_far_as_it_is_there(
    connect_agent, tmp_path, during
):
    """Of two rules the second is not there yet, or the first no more: that keeps neither from being removed."""
    client = connect_agent()
    one, two = tmp_path / "one", tmp_path / "two"
    stuck = ["sh", "-c", f"touch {tmp_path / 'stuck'}; sleep 600"]
    if during == "change":
        asked = {"apply": [["touch", str(one)], stuck], "undo": [["rm", str(two)], ["rm", str(one)]]}
    else:
        asked = {"apply": [["touch", str(one)]], "undo": [["rm", str(two)], stuck, ["rm", str(one)]]}
        asked["apply"].append(["touch", str(two)])

    def ask() -> None:
        with contextlib.suppress(OrchError):
            client.change("rules", soon(), **asked)
            client.undo("rules", soon())

    thread = threading.Thread(target=ask)
    thread.start()
    soon().poll((tmp_path / "stuck").exists, every_s=0.01, waiting_for="the middle of it")
    os.kill(client.channel.pid, signal.SIGKILL)
    thread.join()
    (tmp_path / "stuck").unlink()
    asked["undo"][:] = [argv for argv in asked["undo"] if argv is not stuck]
    journal = Path(client.node.folder(client._run)) / "undo.jsonl"
    journal.write_text(journal.read_text().replace("sleep 600", "true"))  # what held it up is over
    swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=False)
    assert (swept.undone, swept.failed) == (("rules",), ())
    assert not one.exists()
    assert not two.exists()
    assert swept.kept == ()


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_run_that_comes_back_takes_back_what_its_killed_agent_could_not(connect_agent, tmp_path, run_name, rebooted):
    killed_agent(connect_agent, tmp_path, children=False)
    marker = tmp_path / "work" / f"{run_name}.n1" / ".orch-run.json"
    if rebooted:
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "boot": "another"}) + "\n")
    client = connect_agent()
    swept = client.sweep(soon(), keep_data=True)
    assert swept.undone == (() if rebooted else ("two", "one"))
    assert (tmp_path / "undone").exists() is not rebooted
    client.remove(soon())


def test_a_change_in_doubt_whose_undo_cannot_be_run_stays(connect_agent, tmp_path):
    client = connect_agent()
    undo = [["orch-no-such-program"], ["touch", str(tmp_path / "undone")]]
    with contextlib.suppress(OrchError):
        client.change("rules", soon(), undo=undo, apply=[["false"]])
    with pytest.raises(AgentError, match="1 changes could not be taken back") as caught:
        client.close(soon())
    assert "no program named" in caught.value.tail
    assert (tmp_path / "undone").exists(), "the other one is tried all the same"


def test_a_run_that_comes_back_waits_for_its_agent_that_is_still_ending(connect_agent):
    first = connect_agent()
    script = "trap '' TERM; echo up; sleep 600"
    deaf = Launch(name="p", node="n1", role="rank", argv=("sh", "-c", script), ready=Line("up"))
    first.start(deaf, soon())
    first.channel._socket.shutdown(socket.SHUT_WR)  # as when the network between them is cut
    client = come_back(lambda: connect_agent(hello=False), soon())
    assert client.processes(soon()) == []


def test_who_comes_back_hears_once_whose_agent_is_still_there(connect_agent, run_name):
    connect_agent()  # its controller is not heard of, but the agent does not know yet
    heard = []
    with pytest.raises(LockedError, match=f"held by .*, run {run_name}, since"):
        come_back(lambda: connect_agent(hello=False), soon(), patience_s=3.0, waiting=heard.append)
    assert [error.node for error in heard] == ["n1"]


def test_the_same_run_comes_back_to_a_node_and_sweeps_its_own(connect_agent, tmp_path):
    pids = killed_agent(connect_agent, tmp_path)
    client = connect_agent()
    assert {process.pid for process in client.processes(soon())} == {pids["deaf"], pids["setsid"], pids["daemon"]}
    client.sweep(soon(), keep_data=True)
    assert all(map(gone, pids.values()))
    client.close(soon())
    assert (tmp_path / "undone").read_text() == "two\none\n"


def test_a_journal_of_another_boot_or_network_namespace_is_left_alone(connect_agent, tmp_path, run_name):
    killed_agent(connect_agent, tmp_path, children=False)
    marker = tmp_path / "work" / f"{run_name}.n1" / ".orch-run.json"
    about = json.loads(marker.read_text())
    for key in ("boot", "netns"):
        marker.write_text(json.dumps({**about, key: "other"}))
        swept = connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=True)
        assert swept.undone == ()
    assert not (tmp_path / "undone").exists()


def test_a_folder_that_is_no_runs_is_never_removed(connect_agent, tmp_path):
    mine = tmp_path / "work/thesis"
    mine.mkdir(parents=True)
    (mine / "undo.jsonl").write_text('{"id": "x", "undo": [["touch", "%s"]]}\n' % (tmp_path / "undone"))
    connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=False)
    assert mine.exists()
    assert not (tmp_path / "undone").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
def test_a_journal_that_somebody_else_planted_is_not_run(connect_agent, tmp_path, run_name):
    killed_agent(connect_agent, tmp_path, children=False)
    folder = tmp_path / "work" / f"{run_name}.n1"
    os.chown(folder / "undo.jsonl", 65534, 65534)
    assert connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=True).undone == ()
    os.chown(folder, 65534, 65534)
    assert connect_agent(hello=False, run="sweep").sweep(soon(), keep_data=False).removed == ()
    assert folder.exists()


def test_a_lock_names_its_holder_and_falls_with_it(connect_agent, run_name):
    first, second = connect_agent(), connect_agent(run=run_name + "-2")
    lock = f"testbed-{run_name}"
    first.lock(lock, soon())
    first.lock(lock, soon())  # it has it already
    with pytest.raises(LockedError, match=f"held by ada@desk, process 7, run {run_name}, since noon"):
        second.lock(lock, soon())
    os.kill(first.channel.pid, signal.SIGKILL)
    first.await_event(lambda event: isinstance(event, AgentLost))
    second.lock(lock, soon())


def test_a_lock_whose_agent_is_stopped_is_held_by_somebody_unknown(connect_agent, run_name):
    first, second = connect_agent(), connect_agent(run=run_name + "-2")
    first.lock(run_name, soon())
    os.kill(first.channel.pid, signal.SIGSTOP)
    try:
        with pytest.raises(LockedError, match="does not say"):
            second.lock(run_name, soon())
    finally:
        os.kill(first.channel.pid, signal.SIGCONT)


SQUATTER = """
import os, socket, sys
if os.geteuid() == 0:
    os.setuid(65534)
listener = socket.socket(socket.AF_UNIX)
listener.bind(chr(0) + sys.argv[1])
listener.listen()
print("held", flush=True)
while True:
    peer, _ = listener.accept()
    try:
        while True:
            peer.sendall(b"x" * 65536)
    except OSError:
        peer.close()
"""


@contextlib.contextmanager
def squatting(name):
    """Another user of the host who has a name and floods whoever asks."""
    with subprocess.Popen([sys.executable, "-c", SQUATTER, name], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"held\n"
            yield process.pid
        finally:
            process.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes root")
def test_another_user_who_squats_a_lock_of_the_host_is_named(connect_agent, run_name):
    client = connect_agent()
    with squatting(f"orch-lock-testbed-{run_name}") as pid, pytest.raises(LockedError) as told:
        client.lock(f"testbed-{run_name}", soon())
    assert told.value.message == f"held by user nobody (process {pid}), who is not you"
    assert client.run(["echo", "here"], soon()).stdout == "here\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes root")
def test_another_user_who_squats_a_runs_name_keeps_no_agent_out(connect_agent, run_name):
    with squatting(f"orch-run-{run_name}/n1"):
        client = connect_agent()
        twin = connect_agent(hello=False)
        with pytest.raises(LockedError, match="held by ada@desk, process 7"):
            twin.hello(soon())
        assert client.run(["echo", "here"], soon()).stdout == "here\n"


def test_two_agents_cannot_work_in_one_folder(connect_agent, run_name):
    first = connect_agent()
    twin = connect_agent(hello=False)
    with pytest.raises(LockedError):
        twin.hello(soon())
    other = connect_agent(hello=False, name="n2")
    with pytest.raises(LockedError):
        other.hello(soon(), folder=first.node.folder(run_name))


def test_an_idle_client_keeps_its_agent(connect_agent):
    client = connect_agent(silence_s=4.0)
    with pytest.raises(DeadlineExceeded):
        Deadline.after(5).poll(lambda: bool(client.events), every_s=0.05, waiting_for="nothing")
    assert client.run(["echo", "here"], soon()).stdout == "here\n"


def test_closing_waits_for_nothing_and_is_final(connect_agent):
    client = connect_agent()
    client.start(Launch(name="p", node="n1", role="rank", argv=("sleep", "600")), soon())
    pid = client.processes(soon())[0].pid
    client.close(soon())
    assert gone(pid)
    assert gone(client.channel.pid)
    assert not any(isinstance(event, AgentLost) for event in client.events)
    client.close(soon())


@pytest.mark.parametrize("swept_with_data", [True, False])
def test_captures_that_stay_are_told_of_and_removed_where_that_is_asked_for(
    connect_agent, tmp_path, run_name, swept_with_data
):
    """Whoever loses the results knows of them from the hosts alone."""
    work = tmp_path / "work"
    client = connect_agent()
    folder = work / f"{run_name}.n1"
    (folder / "tcpdump.n1").mkdir()
    (folder / "tcpdump.n1/capture.pcap").write_bytes(b"123456789")
    (folder / "tcpdump.n1/stderr").write_text("x")
    client.remove(soon(), keep=["tcpdump.n1/capture.pcap"])
    client.close(soon())

    again = connect_agent(hello=False, run="sweep")
    swept = again.sweep(soon(), keep_data=not swept_with_data)
    (one,) = swept.stayed
    assert (one.folder, one.run, one.files, one.bytes, one.removed) == (str(folder), run_name, 1, 9, False)
    assert 0.0 <= one.age_s < 3600.0
    assert (swept.removed, swept.kept, swept.failed) == ((), (), ())
    assert (folder / "tcpdump.n1/capture.pcap").exists()

    (line,) = cleaning._good(swept)
    assert line.startswith(f"left captures of run {run_name} that stayed for 0.0 days: 1 file, 9 bytes, in {folder} (")

    assert [one.removed for one in again.sweep(soon(), keep_data=True, stayed_s=3600.0).stayed] == [False]
    assert [one.removed for one in again.sweep(soon(), keep_data=True, stayed_s=0.0).stayed] == [True]
    assert not folder.exists()
    assert again.sweep(soon(), keep_data=True).stayed == ()


def test_what_stays_is_not_lost_with_the_agent_that_was_to_remove_it(connect_agent, tmp_path, run_name):
    client = connect_agent()
    capture = tmp_path / "work" / f"{run_name}.n1" / "capture.pcap"
    capture.write_bytes(b"1")
    client.remove(soon(), keep=["capture.pcap"])
    client.close(soon())
    client = connect_agent()
    assert [file.path for file in client.files(soon())] == ["capture.pcap"], "the marker is no file of the run"
    other = connect_agent(hello=False, run="sweep")
    assert other.sweep(soon(), keep_data=False, stayed_s=0.0).stayed == (), "somebody works in it"
    os.kill(client.channel.pid, signal.SIGKILL)
    soon().poll(lambda: gone(client.channel.pid), every_s=0.01, waiting_for="the agent to die")
    swept = other.sweep(soon(), keep_data=False)
    assert ([one.run for one in swept.stayed], swept.removed, capture.exists()) == ([run_name], (), True)
