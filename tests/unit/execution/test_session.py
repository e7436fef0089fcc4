"""A run's nodes while it goes on, with real agents on this machine."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, LockedError, OrchError, TransportError
from orchestrator.core.interrupts import Interrupts
from orchestrator.core.machines.machine import own_kernel
from orchestrator.execution.actions import changes as changing
from orchestrator.execution.actions import fetching, host_reduction, processes
from orchestrator.execution.actions.changes import Changes
from orchestrator.execution.actions.fetching import fetch_run, notes
from orchestrator.execution.actions.processes import Processes
from orchestrator.execution.observers.events import EventLog
from orchestrator.execution.session import Session
from orchestrator.execution.watch import Watch
from orchestrator.parts.launch import Change, Launch, Line, PresenceCheck, Stop
from orchestrator.parts.topology import Node, Topology
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.clocks import ClockSample
from orchestrator.remote.transport.local import LocalChannel
from orchestrator.store import rundir
from tests.helpers import manifests
from tests.helpers.half_open import Cuttable

PATIENCE_S = 120.0


def wait_for(ready, *, waiting_for):
    Deadline.after(PATIENCE_S).poll(ready, every_s=0.02, waiting_for=waiting_for)


# Ready when all of them have come to the same folder, as ranks are when all have met.
MEETS = 'touch "$0/$1"; while [ "$(ls "$0" | wc -l)" -lt "$2" ]; do sleep 0.1; done; echo ready; exec sleep 600'

# Over when all of them have been asked to end, as ranks are whose framework parts from its peers.
PARTS = 'trap "touch $0/$1; while [ \\$(ls $0 | wc -l) -lt $2 ]; do sleep 0.1; done; exit 0" TERM; echo ready; '
PARTS += "while :; do sleep 0.1; done"


class Here:
    """A testbed whose nodes are this machine, each with an agent of its own; `down` ones are not reached again.

    `lines` are the last connections to them.
    """

    def __init__(self, tmp_path, names):
        nodes = tuple(Node(name=name, work=str(tmp_path / name), python=sys.executable) for name in names)
        self.topology = Topology(kind="inventory", nodes=nodes, links=())
        self.agents: dict[str, int] = {}
        self.down: set[str] = set()
        self.lines: dict[str, Cuttable] = {}
        self._made: list[Cuttable] = []

    def connect(self, node, deadline):
        if node in self.down:
            raise TransportError("no route", node="jump host gate")
        line = self.lines[node] = Cuttable()
        self._made.append(line)
        self.agents[node] = line.agent.pid
        return line

    def close(self):
        for line in self._made:
            line.end()

    def local_folder(self, node):
        return None


@pytest.fixture
def session_on(tmp_path, run_name, monkeypatch, strays):
    monkeypatch.setattr(
        AgentClient, "lock", lambda *_: None
    )  # the nodes share a machine, and would keep each other out
    made = []

    def make(*names):
        events = EventLog(tmp_path / "events.jsonl")
        session = Session(
            Here(tmp_path, names), run=run_name, events=events, watch=Watch(events), interrupts=Interrupts()
        )
        made.append(session)
        session.open(names)
        return session

    yield make
    for session in made:
        session.testbed.down.clear()
        processes.still_running(session)  # what the test left on a host that was down
        session.close()
        session.testbed.close()


def test_of_two_controllers_in_the_same_instant_one_gets_all_hosts(tmp_path, run_name, monkeypatch, strays):
    """One of them is quick to reach the first host, the other one the second: neither may keep out the other."""
    quick = {"a": "n1", "b": "n2"}
    done = {name: threading.Event() for name in (*quick, *quick.values())}
    lock = AgentClient.lock

    def each_machine_its_own(client, name, deadline):
        """Nodes share this machine; who is not quick there waits until the other one has it, or has failed."""
        node, mine = client.node.name, client._holder["run"][-1]
        if quick[mine] != node:
            other = "b" if mine == "a" else "a"
            wait_for(lambda: done[node].is_set() or done[other].is_set(), waiting_for="the other controller")
        try:
            lock(client, f"{run_name}-{node}-{name}", deadline)
        finally:
            done[node].set()

    monkeypatch.setattr(AgentClient, "lock", each_machine_its_own)
    events = EventLog(tmp_path / "events.jsonl")
    sessions = {
        name: Session(
            Here(tmp_path, ["n1", "n2"]),
            run=f"{run_name}{name}",
            events=events,
            watch=Watch(events),
            interrupts=Interrupts(),
        )
        for name in quick
    }

    def opened(name):
        try:
            sessions[name].open(["n1", "n2"])
        except LockedError as error:
            return error
        finally:
            done[name].set()
        return None

    with ThreadPoolExecutor(2) as pool:
        refused = [error for error in pool.map(opened, quick) if error is not None]
    for session in sessions.values():
        session.close()
    assert len(refused) == 1
    assert f"run {run_name}" in refused[0].message


def killed(session, *names):
    for name in names:
        os.kill(session.testbed.agents[name], signal.SIGKILL)

    def noticed():
        session.watch.settle()
        return set(names) <= set(session.watch.lost)

    wait_for(noticed, waiting_for="the loss to be noticed")


def test_more_ranks_than_are_asked_at_once_get_ready_together(session_on, tmp_path):
    session = session_on("n1", "n2")
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    count = fanout.MOST_AT_ONCE + 6
    launches = [
        Launch(
            name=f"rank{number}",
            node=f"n{1 + number % 2}",
            role="rank",
            argv=("sh", "-c", MEETS, str(meeting), str(number), str(count)),
            ready=Line("ready"),
            ready_within_s=PATIENCE_S,
        )
        for number in range(count)
    ]
    Processes(session).start(launches, what="starting ranks")
    assert len(Processes(session).up(launches)) == count
    Processes(session).stop(launches, measured_until=time.monotonic())
    assert processes.still_running(session) == []


def test_more_ranks_than_are_asked_at_once_part_together(session_on, tmp_path):
    session = session_on("n1", "n2")
    parting = tmp_path / "parting"
    parting.mkdir()
    count = fanout.MOST_AT_ONCE + 6
    launches = [
        Launch(
            name=f"rank{number}",
            node=f"n{1 + number % 2}",
            role="rank",
            argv=("sh", "-c", PARTS, str(parting), str(number), str(count)),
            ready=Line("ready"),
            ready_within_s=PATIENCE_S,
            stop=Stop(signals=((signal.SIGTERM, PATIENCE_S),)),
        )
        for number in range(count)
    ]
    Processes(session).start(launches, what="starting ranks")
    Processes(session).stop(launches, measured_until=time.monotonic())
    assert {process.status for process in session.watch.processes.values()} == {0}, "one was killed: it waited"


def test_a_lost_host_keeps_nobody_from_sweeping_the_others(session_on):
    """Two agents die, and one of their hosts with its agent: the other one is swept and brought home."""
    names = ("n1", "n2", "n3")
    session = session_on(*names)
    stays = ("sh", "-c", "setsid sleep 600 & echo $! > pid; echo ready; wait")
    launches = [Launch(name="p", node=name, role="rank", argv=stays, ready=Line("ready")) for name in names]
    Processes(session).start(launches, what="starting")
    session.testbed.down.add("n1")
    killed(session, "n1", "n2")
    Processes(session).stop(launches, measured_until=time.monotonic())
    assert processes.still_running(session) == []
    assert set(session.watch.lost) == {"n1"}
    assert "n1: processes of the run could not be ended there: jump host gate: no route" in session.watch.notes


def test_what_a_lost_host_had_is_not_taken_for_fetched(session_on, tmp_path):
    session = session_on("n1", "n2")
    session.testbed.down.add("n1")
    killed(session, "n1")
    processes.still_running(session)
    with pytest.raises(TransportError, match="files of the run are still on n1: "):
        fetch_run(session, tmp_path / "results")
    assert not (tmp_path / "n2" / session.run).exists(), "the other one was fetched, and its folder removed"


def test_without_room_for_the_files_of_all_hosts_small_ones_are_fetched(session_on, tmp_path, monkeypatch):
    """Each host's would have room by themselves."""
    session = session_on("n1", "n2")
    for client in session.clients.values():
        client.put("data", b"x" * 1000, Deadline.after(PATIENCE_S))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1600, total=2000))
        fetch_run(session, tmp_path / "results")
    assert [path.parent.name for path in (tmp_path / "results").rglob("*") if path.is_file()] == ["n1"]
    assert session.away == set()
    (left,) = session.left["n2"]
    assert (left.path, left.kept) == ("data", True)
    assert re.search(r"1 kB, and .* has room for 1.5 kB", left.why)
    assert notes("n2", [left], "R")[0].startswith("n2: data (1 kB, and")
    there = tmp_path / "n2" / f"{session.run}.n2"
    assert sorted(path.name for path in there.iterdir()) == [".orch-stayed.json", "data"], "and cleaning knows it"


def test_what_ranks_leave_beside_files_costs_nobody_else_a_file(session_on, tmp_path):
    session = session_on("n1", "n2")
    folder = tmp_path / "n1" / f"{session.run}.n1"
    for client in session.clients.values():
        client.put("p/data", b"x", Deadline.after(PATIENCE_S))
    os.mkfifo(folder / "p/fifo")
    (folder / "p/shadow").symlink_to("/etc/shadow")
    (folder / "q").symlink_to("/etc")
    with (folder / "p/core").open("wb") as file:
        file.truncate(1 << 40)
    closed = folder / "p/closed"
    closed.mkdir()
    (closed / "kept").write_bytes(b"y")
    closed.chmod(0)
    deep = closed.parent
    for _ in range(120):
        deep = deep / "d"
        deep.mkdir()
    (deep / "far").write_bytes(b"z")
    fetch_run(session, tmp_path / "results")
    home = tmp_path / "results/hosts"
    assert sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if not path.is_dir()) == [
        "n1/p/closed/kept",
        "n1/p/data",
        "n2/p/data",
    ]
    left = {one.path.rpartition("/")[2]: (one.why, one.kept) for one in session.left["n1"]}
    assert left.pop("core") == ("a file of 1099511627776 bytes that are nearly all holes", True)
    assert left == {
        "d": ("a folder in more than 100 others", False),
        "fifo": ("a pipe", False),
        "shadow": ("a link", False),
        "q": ("a link", False),
    }
    assert (folder / "p/core").exists()
    assert not (folder / "p/fifo").exists()
    assert session.left["n2"] == ()


def test_a_disk_that_fills_up_meanwhile_ends_the_file_and_not_the_fetch(session_on, tmp_path, monkeypatch):
    session = session_on("n1")
    for size in (1, 10, 100):
        session.clients["n1"].put(f"data{size}", b"x" * size, Deadline.after(PATIENCE_S))
    fetch = AgentClient.fetch

    def full(client, file, home, deadline):
        if file.bytes == 10:
            (home / "data10.part").write_bytes(b"x")
            raise OSError(errno.ENOSPC, "No space left on device")
        return fetch(client, file, home, deadline)

    monkeypatch.setattr(AgentClient, "fetch", full)
    fetch_run(session, tmp_path / "results")
    assert sorted(path.name for path in (tmp_path / "results/hosts/n1").iterdir()) == ["data1", "data100"]
    assert [one.path for one in session.left["n1"]] == ["data10"]


def test_what_agents_start_dumps_no_core(session_on, tmp_path):
    session = session_on("n1")
    launch = Launch(name="p", node="n1", role="rank", argv=("sh", "-c", "ulimit -Sc; kill -SEGV $$"), ready=Line("0"))
    Processes(session).start([launch], what="starting")
    fetch_run(session, tmp_path / "results")
    assert (tmp_path / "results/hosts/n1/p/stdout").read_text() == "0\n"


def test_what_a_local_rank_leaves_beside_files_is_removed_and_told(tmp_path):
    there = tmp_path / "hosts/n1/R.n1"
    (there / "p").mkdir(parents=True)
    (there / "p/data").write_bytes(b"x")
    os.mkfifo(there / "p/fifo")
    os.mkfifo(there.parent / "before.json")
    (there / "q").symlink_to("/etc")
    with (there / "p/core").open("wb") as file:
        file.truncate(1 << 40)
    (there / "taken").mkdir()
    (there.parent / "taken").mkdir()
    (there.parent / "taken/file").touch()
    left = fetching.bring_up(there, there.parent)
    assert {(one.path, one.why) for one in left} >= {
        ("p/fifo", "a pipe"),
        ("before.json", "a pipe"),
        ("q", "a link"),
        ("taken", "Directory not empty; it is in R.n1"),
    }
    assert any(one.path == "p/core" and "are holes" in one.why for one in left)
    names = sorted(path.relative_to(there.parent).as_posix() for path in there.parent.rglob("*") if path.is_file())
    assert names == ["p/core", "p/data", "taken/file"]
    assert [one.path for one in rundir.hashed(there.parent)] == ["p/data", "taken/file"]


def test_a_host_that_does_not_say_what_it_has_keeps_nobody_from_coming_home(session_on, tmp_path, monkeypatch):
    session = session_on("n1", "n2", "n3")
    for client in session.clients.values():
        client.put("data", b"x", Deadline.after(PATIENCE_S))
    contents = AgentClient.contents

    def silent(client, deadline):
        if client.node.name == "n2":
            raise DeadlineExceeded("gave up waiting for the agent to answer 'files'", node="n2")
        return contents(client, deadline)

    with monkeypatch.context() as patch:
        patch.setattr(AgentClient, "contents", silent)
        with pytest.raises(DeadlineExceeded, match="n2: gave up"):
            fetch_run(session, tmp_path / "results")
    assert sorted(path.parent.name for path in (tmp_path / "results").rglob("data")) == ["n1", "n3"]
    assert session.away == {"n2"}
    fetch_run(session, tmp_path / "results")
    assert session.away == set()


def test_a_host_that_is_reached_again_is_swept_and_brought_home(session_on, tmp_path):
    session = session_on("n1", "n2")
    stays = Launch(name="p", node="n2", role="rank", argv=("sh", "-c", "echo ready; sleep 600"), ready=Line("ready"))
    Processes(session).start([stays], what="starting")
    killed(session, "n2")
    assert processes.still_running(session) == []
    assert session.watch.lost == {}
    fetch_run(session, tmp_path / "results")
    assert (tmp_path / "results/hosts/n2/p/stdout").read_text() == "ready\n"


def test_a_host_that_was_rebooted_is_brought_home_and_nothing_is_undone_there(session_on, tmp_path):
    """The reboot has taken its changes back; what stands there now is somebody else's."""
    session = session_on("n1")
    undone, within = tmp_path / "undone", Deadline.after(PATIENCE_S)
    session.clients["n1"].change("rate", within, undo=[["touch", str(undone)]], apply=[["true"]])
    session.clients["n1"].put("data", b"x", within)
    killed(session, "n1")
    marker = tmp_path / "n1" / f"{session.run}.n1" / ".orch-run.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "boot": "another"}))
    assert processes.still_running(session) == []
    fetch_run(session, tmp_path / "results")
    assert (tmp_path / "results/hosts/n1/data").read_bytes() == b"x"
    assert not undone.exists()


def limit(node, file):
    """A change of what a file says, from old to new."""
    file.write_text("old\n")

    def said(word):
        return [("sh", "-c", f"echo {word} > {file}")]

    return Change(
        node=node,
        name=f"limit of {node}",
        kind="rate",
        read=("cat", str(file)),
        parse=str.strip,
        apply=lambda _: said("new"),
        undo=said,
        expect=lambda _: "new",
        presence=lambda _: PresenceCheck(read=("cat", str(file)), pattern="^new$"),
    )


def test_a_change_whose_state_cannot_be_read_any_more_is_told_by_its_name(session_on, tmp_path, monkeypatch):
    session = session_on("n1")
    file = tmp_path / "limit"
    changes = Changes(session)
    changes.apply([limit("n1", file)])
    file.unlink()
    os.mkfifo(file)  # on which `cat` waits for ever
    with monkeypatch.context() as patch:
        patch.setattr(changing, "CALL_S", 0.5)
        with pytest.raises(OrchError, match=r"n1: limit of n1 could not be taken back: "):
            changes.undo()
    file.unlink()
    file.write_text("new\n")


def test_putting_back_waits_for_no_host_that_is_silent(session_on, tmp_path):
    """The others are put back and go on without it; once it can be reached its agent gives way to a new one."""
    session = session_on("n1", "n2", "n3")
    files = {name: tmp_path / f"{name}.limit" for name in session.clients}
    changes = Changes(session)
    changes.apply([limit(name, file) for name, file in files.items()])
    launch = Launch(name="p", node="n1", role="rank", argv=("sleep", "600"))
    Processes(session).start([launch], what="starting")
    session.testbed.lines["n1"].cut()
    session.interrupts.unwinding()
    with pytest.raises(TransportError, match="n1: nothing was heard of it"):
        changes.undo()
    assert {name: file.read_text() for name, file in files.items()} == {"n1": "new\n", "n2": "old\n", "n3": "old\n"}
    assert set(session.machines()) == {"n2", "n3"}
    assert Processes(session).up([launch]) == []

    assert processes.still_running(session) == []
    assert session.watch.lost == {}
    assert files["n1"].read_text() == "old\n"
    fetch_run(session, tmp_path / "results")
    assert (tmp_path / "results/hosts/n1/p/stdout").exists()


def test_steps_of_putting_back_skip_a_host_whose_loss_nobody_has_taken_note_of(session_on):
    session = session_on("n1", "n2")
    session.interrupts.unwinding()
    session.testbed.lines["n1"].agent.close()
    Deadline.after(PATIENCE_S).poll(lambda: len(session.watch.inbox) > 0, every_s=0.02, waiting_for="the loss")
    assert list(session.machines()) == ["n2"]


def test_nothing_is_missed_of_a_host_that_never_greeted(session_on, tmp_path, monkeypatch):
    """What answers there is no agent of ours: no folder of the run is left on it."""
    stranger = tmp_path / "stranger"
    stranger.write_text(f"#!{sys.executable}\nprint('Welcome!' * 20000)\n")
    stranger.chmod(0o755)
    session = session_on("n1")
    monkeypatch.setattr(Here, "connect", lambda *_: LocalChannel(str(stranger)))
    session.testbed.topology = replace(session.testbed.topology, nodes=(Node(name="n2", work=str(tmp_path / "n2")),))
    with pytest.raises(OrchError, match="no agent of ours"):
        session.open(["n2"])
    session.watch.settle()
    assert set(session.watch.lost) == {"n2"}
    fetch_run(session, tmp_path / "results")


class Pinged:
    """A node's client, of which only the clock is asked: each answer takes until the next one could overlap it."""

    def __init__(self, log, name, answers):
        self.node = SimpleNamespace(name=name)
        self._log, self._answers = log, list(answers)

    def clock(self, samples, deadline):
        self._log.append(f"{self.node.name} begins")
        time.sleep(0.002)
        self._log.append(f"{self.node.name} ends")
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def test_clocks_of_other_kernels_are_pinged_one_at_a_time_and_the_best_ping_counts(tmp_path):
    log = []
    session = Session(
        SimpleNamespace(topology=None),
        run="r",
        events=EventLog(tmp_path / "s.jsonl"),
        watch=Watch(EventLog(tmp_path / "w.jsonl")),
        interrupts=Interrupts(),
    )
    good, slow = ClockSample(500, 40), ClockSample(90_000, 90_000)
    session.clients.update(
        h1=Pinged(log, "h1", [slow]),
        h2=Pinged(log, "h2", [slow, good, slow]),
        h3=Pinged(log, "h3", [slow]),
        h4=Pinged(log, "h4", [slow]),
    )
    session.kernels.update(h1=own_kernel(), h2="far", h3="far", h4="further")
    found = session.clocks()
    assert found["h1"] == ClockSample(0, 0)
    assert (found["h2"], found["h3"]) == (good, good)
    assert {line.split()[0] for line in log} == {"h2", "h4"}
    assert len(log) >= 4 * 8  # more than once each
    assert all(end == begin.replace("begins", "ends") for begin, end in zip(log[::2], log[1::2], strict=True))


# Captures that hosts reduce

READS_FOR_EVER = """
import subprocess, sys
print("captures are read as they close", flush=True)
subprocess.run(["sleep", "600"])
"""


def test_the_second_ctrl_c_ends_what_hosts_make_of_their_captures(session_on, tmp_path, monkeypatch):
    """And what reads them as they close; the captures stay, and the run can be recovered."""
    session = session_on("n1", "n2")
    monkeypatch.setattr(host_reduction, "packed_code", READS_FOR_EVER.encode)
    rails = [{"address": "10.0.0.1", "prefix": 24, "device": "eth0"}]
    nodes = [{"name": name, "kind": "host", "rails": rails} for name in session.clients]
    manifest = manifests.made(
        topology={"kind": "inventory", "nodes": nodes, "links": []},
        launches=[manifests.launch("dump", name, part="collector.tcpdump", role="collector") for name in ("n1", "n2")],
    )
    for client in session.clients.values():
        client.put("dump/capture.pcap", b"x" * 100, Deadline.after(PATIENCE_S))
    host_reduction.read_as_they_close(session, manifest)
    session.interrupts.unwinding()
    said: list[str] = []

    def press() -> None:
        for _ in range(2):
            time.sleep(3.0)
            session.interrupts._on_signal(signal.SIGINT, None)

    threading.Thread(target=press, daemon=True).start()
    left = host_reduction.reduce_run(session, manifest, said.append)
    assert said == ["hosts reduce their captures: Ctrl-C ends that, `orch recover r1` has it done later"]
    assert {node: (one.later, [file.path for file in one.files]) for node, one in left.items()} == {
        node: (True, ["dump/capture.pcap"]) for node in ("n1", "n2")
    }
    assert processes.still_running(session) == []
    stayed, troubles = host_reduction.recorded(left, tmp_path / "hosts")
    assert [one.node for one in stayed] == ["n1", "n2"]
    assert troubles[0].endswith("were not reduced: Ctrl-C ended that; `orch recover r1` has it do so")
    fetch_run(session, tmp_path / "results", stays=lambda _, path: path.startswith("dump/"))
    assert (tmp_path / "n1" / f"{session.run}.n1" / "dump/capture.pcap").exists()
