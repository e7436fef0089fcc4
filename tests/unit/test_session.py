"""A run's nodes while it goes on, with real agents on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from orchestrator import fanout
from orchestrator.deadline import Deadline
from orchestrator.errors import StoreError, TransportError
from orchestrator.events import EventLog
from orchestrator.interrupts import Interrupts
from orchestrator.launch import Launch, Line
from orchestrator.leash import Leash
from orchestrator.session import Session
from orchestrator.topology import Node, Topology
from orchestrator.transport.local import LocalChannel
from orchestrator.watch import Watch

PATIENCE_S = 120.0

# Ready when all of them have come to the same folder, as ranks are when all have met.
MEETS = 'touch "$0/$1"; while [ "$(ls "$0" | wc -l)" -lt "$2" ]; do sleep 0.1; done; echo ready; exec sleep 600'


class Here:
    """A testbed whose nodes are this machine, each with an agent of its own; `down` ones are not reached again."""

    def __init__(self, tmp_path, names):
        nodes = tuple(Node(name=name, work=str(tmp_path / name), python=sys.executable) for name in names)
        self.topology = Topology(kind="inventory", nodes=nodes, links=())
        self.agents: dict[str, int] = {}
        self.down: set[str] = set()

    def connect(self, node, deadline):
        if node in self.down:
            raise TransportError("no route", node=node)
        channel = LocalChannel(sys.executable)
        self.agents[node] = channel.pid
        return channel

    def home_of(self, node):
        return None


@pytest.fixture
def session_on(tmp_path, run_name, monkeypatch, strays):
    monkeypatch.setattr(Leash, "lock", lambda *_: None)  # the nodes share a machine, and would keep each other out
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
        session.residue()  # what the test left on a host that was down
        session.close()


def killed(session, *names):
    for name in names:
        os.kill(session.testbed.agents[name], signal.SIGKILL)

    def noticed():
        session.watch.settle()
        return set(names) <= set(session.watch.lost)

    Deadline.after(PATIENCE_S).poll(noticed, every_s=0.02, waiting_for="the loss to be noticed")


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
    session.start(launches, what="starting ranks")
    assert len(session.up(launches)) == count
    session.stop(launches, measured_until=time.monotonic())
    assert session.residue() == []


def test_a_lost_host_keeps_nobody_from_sweeping_the_others(session_on):
    """Two agents die, and one of their hosts with its agent: the other one is swept and brought home."""
    names = ("n1", "n2", "n3")
    session = session_on(*names)
    stays = ("sh", "-c", "setsid sleep 600 & echo $! > pid; echo ready; wait")
    launches = [Launch(name="p", node=name, role="rank", argv=stays, ready=Line("ready")) for name in names]
    session.start(launches, what="starting")
    session.testbed.down.add("n1")
    killed(session, "n1", "n2")
    session.stop(launches, measured_until=time.monotonic())
    assert session.residue() == []
    assert set(session.watch.lost) == {"n1"}
    assert any("n1: what runs there could not be put down" in note for note in session.watch.notes)


def test_what_a_lost_host_had_is_not_taken_for_fetched(session_on, tmp_path):
    session = session_on("n1", "n2")
    session.testbed.down.add("n1")
    killed(session, "n1")
    session.residue()
    with pytest.raises(TransportError, match="what n1 had of the run is not home"):
        session.fetch(tmp_path / "results")
    assert not (tmp_path / "n2" / session.run).exists(), "the other one was fetched, and its folder removed"


def test_without_room_for_the_files_of_all_hosts_none_is_fetched(session_on, tmp_path, monkeypatch):
    """Each host's would have room by themselves."""
    session = session_on("n1", "n2")
    for leash in session.leashes.values():
        leash.put("data", b"x" * 1000, Deadline.after(PATIENCE_S))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1500))
        with pytest.raises(StoreError, match=r"the files of n1, n2 are 2000 bytes, and .* has room for 1500"):
            session.fetch(tmp_path / "results")
    assert [path for path in (tmp_path / "results").rglob("*") if path.is_file()] == []
    assert session.away == {"n1", "n2"}
    session.fetch(tmp_path / "results")
    assert (tmp_path / "results/hosts/n2/data").read_bytes() == b"x" * 1000
    assert session.away == set()


def test_a_host_that_is_reached_again_is_swept_and_brought_home(session_on, tmp_path):
    session = session_on("n1", "n2")
    stays = Launch(name="p", node="n2", role="rank", argv=("sh", "-c", "echo ready; sleep 600"), ready=Line("ready"))
    session.start([stays], what="starting")
    killed(session, "n2")
    assert session.residue() == []
    assert session.watch.lost == {}
    session.fetch(tmp_path / "results")
    assert (tmp_path / "results/hosts/n2/p/stdout").read_text() == "ready\n"


def test_a_host_that_was_rebooted_is_brought_home_and_nothing_is_undone_there(session_on, tmp_path):
    """The reboot has taken its changes back; what stands there now is somebody else's."""
    session = session_on("n1")
    undone, within = tmp_path / "undone", Deadline.after(PATIENCE_S)
    session.leashes["n1"].change("rate", within, undo=[["touch", str(undone)]], apply=[["true"]])
    session.leashes["n1"].put("data", b"x", within)
    killed(session, "n1")
    marker = tmp_path / "n1" / f"{session.run}.n1" / ".orch-run.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "boot": "another"}))
    assert session.residue() == []
    session.fetch(tmp_path / "results")
    assert (tmp_path / "results/hosts/n1/data").read_bytes() == b"x"
    assert not undone.exists()
