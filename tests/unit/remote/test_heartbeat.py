"""Who falls silent is named, and what leads to several; who is busy, or was not listened to, is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import LockedError, TransportError
from orchestrator.parts.launch import Launch
from orchestrator.parts.topology import Node
from orchestrator.remote import heartbeat
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.events import AgentLost
from orchestrator.remote.heartbeat import SILENT_S, Hearing, Monitor
from orchestrator.remote.transport import local
from orchestrator.remote.transport.bootstrap import agent_modules, packed
from tests.helpers.half_open import Cuttable
from tests.helpers.machine import PATIENCE_S

LOOK_S = 0.25


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


class Clock:
    """A monitor whose time passes as the test says, over hosts that answer or do not."""

    def __init__(self, monkeypatch, ways):
        self.now = 1000.0
        monkeypatch.setattr(heartbeat, "_now", lambda: self.now)
        self.monitor = Monitor()
        self.found = {}
        self.hosts = {name: Hearing(name, way, lambda _: None) for name, way in ways.items()}
        self.monitor._hearings += self.hosts.values()
        for host in self.hosts.values():
            host.listening = True

    def passes(self, seconds, *, silent, at_a_time=LOOK_S):
        """Time in which all but the silent ones answer; what each is told that falls silent meanwhile."""
        end = self.now + seconds
        while self.now < end:
            self.now += at_a_time
            for name, host in self.hosts.items():
                host.heard = name not in silent
            self.found.update({hearing.node: silence for hearing, silence in self.monitor._look()})
        return {name: (silence.node, silence.message) for name, silence in self.found.items()}


@pytest.fixture
def clock(monkeypatch):
    return lambda **ways: Clock(monkeypatch, ways)


def test_one_that_falls_silent_is_blamed_alone_and_in_time(clock):
    hosts = clock(h1=(), h2=(), h3=())
    assert hosts.passes(SILENT_S - 1, silent={"h2"}) == {}
    assert hosts.passes(1, silent={"h2"}) == {"h2": ("h2", "nothing was heard of it for 8 s")}
    assert SILENT_S + LOOK_S < 10, "a promise of the documentation"


def test_one_that_speaks_in_between_is_not_silent(clock):
    hosts = clock(h1=(), h2=())
    for _ in range(3):
        assert hosts.passes(SILENT_S - 1, silent={"h2"}) == {}
        assert hosts.passes(LOOK_S, silent=()) == {}


def test_a_jump_host_is_named_when_all_behind_it_fall_silent(clock):
    gate = ("jump host gate",)
    hosts = clock(g10=gate, g2=gate, h1=(), g3=("ProxyCommand x", "jump host inner"))
    hosts.passes(1, silent={"g2"})  # their last words came at different times
    told = "jump host gate, which leads to g2, g10: nothing was heard through it for 8 s"
    assert hosts.passes(SILENT_S, silent={"g2", "g10"}) == {"g10": (None, told), "g2": (None, told)}


def test_a_host_behind_a_jump_host_that_others_are_heard_through_is_blamed_itself(clock):
    gate = ("jump host gate",)
    hosts = clock(g1=gate, g2=gate, h1=())
    told = "nothing was heard of it through jump host gate for 8 s"
    assert hosts.passes(SILENT_S, silent={"g1"}) == {"g1": ("g1", told)}


def test_the_outermost_of_several_jump_hosts_that_all_are_silent_behind_is_named(clock):
    outer, inner = "jump host outer", "jump host inner"
    hosts = clock(g1=(outer,), g2=(outer, inner), g3=(outer, inner), h1=())
    assert {node for node, _ in hosts.passes(SILENT_S, silent={"g2", "g3"}).values()} == {None}
    assert hosts.found["g2"].message.startswith("jump host inner, which leads to g2, g3:")
    hosts = clock(g1=(outer,), g2=(outer, inner), g3=(outer, inner), h1=())
    hosts.passes(SILENT_S, silent={"g1", "g2", "g3"})
    assert hosts.found["g3"].message.startswith("jump host outer, which leads to g1, g2, g3:")


def test_our_own_network_is_named_when_nobody_is_heard(clock):
    hosts = clock(**{f"h{number}": () for number in range(1, 10)})
    found = hosts.passes(SILENT_S, silent=hosts.hosts)
    assert set(found.values()) == {(None, "nothing was heard of any host (h1, h2, h3, h4 and 5 more) for 8 s")}
    assert len(found) == 9


def test_a_monitor_that_was_late_forgives(clock):
    """It was stopped for a while, and so were the threads that hear: everybody gets another chance to answer."""
    hosts = clock(h1=(), h2=())
    hosts.passes(2, silent={"h1", "h2"})
    assert hosts.passes(150, silent={"h1", "h2"}, at_a_time=150) == {}
    assert hosts.passes(4, silent={"h1", "h2"}) == {}
    assert list(hosts.passes(SILENT_S, silent={"h2"})) == ["h2"]


def test_an_upload_on_a_slow_link_has_the_time_that_it_takes(clock):
    """An answer to what is sent after it is behind it."""
    hosts = clock(h1=(), h2=())
    hosts.hosts["h1"].owed = 2 << 20  # 17 s at 1 Mbit/s
    assert hosts.passes(SILENT_S + 15, silent={"h1"}) == {}
    assert list(hosts.passes(5, silent={"h1"})) == ["h1"]


def test_nobody_is_silent_to_whom_nobody_listens(clock):
    """While what was heard is being worked on, as on a disk that is full, more may wait to be heard."""
    hosts = clock(h1=(), h2=())
    hosts.hosts["h1"].listening = False
    assert hosts.passes(60, silent={"h1"}) == {}


class Far(AgentClient):
    """A client over a connection that can be cut."""

    def __init__(self, work, run, *, way=(), name="n1", **more):
        self.line = Cuttable(way=way)
        self.events = []
        self.lost = threading.Event()
        node = Node(name=name, work=str(work), python=sys.executable)
        holder = {"user": "ada", "host": "desk", "pid": 7, "run": run, "since": "noon"}
        super().__init__(node, self.line, run=run, holder=holder, on_event=self.take, **more)

    def take(self, event):
        self.events.append(event)
        if isinstance(event, AgentLost):
            self.lost.set()


@pytest.fixture
def far(tmp_path, run_name):
    made = []

    def make(**options):
        made.append(Far(tmp_path, run_name, **options))
        return made[-1]

    yield make
    for client in made:
        client.line.end()


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("how", ["cut", "stopped"])
def test_who_waits_for_a_silent_agent_is_told_and_so_is_the_run(far, how):
    client, other = far(), far(name="n2")
    client.hello(soon())
    other.hello(soon())
    if how == "cut":
        client.line.cut()
    else:
        os.kill(client.line.agent.pid, signal.SIGSTOP)
    with pytest.raises(TransportError, match=r"n1: nothing was heard of it for \d+ s"):
        client.run(["true"], soon())
    (event,) = client.events
    assert event.error.node == "n1"
    with pytest.raises(TransportError, match="n1: nothing was heard"):
        client.disk(soon())
    assert client.close(soon()) is None
    assert not other.events
    assert other.run(["echo", "here"], soon()).stdout == "here\n"


def test_a_slow_network_is_no_silence(far, tmp_path):
    """2 Mbit/s: what takes longer than silence may last goes up, and comes home."""
    client = far()
    client.hello(soon())
    client.line.slowest = 250_000.0
    size = int(client.line.slowest * (SILENT_S + 2))
    assert client.run(["wc", "-c"], soon(), stdin=bytes(size)).stdout.split() == [str(size)]
    (tmp_path / client.node.folder(client._run) / "file").write_bytes(bytes(size))
    (file,) = client.files(soon())
    client.fetch(file, tmp_path / "home", soon())
    assert (tmp_path / "home/file").stat().st_size == size
    assert not client.events


def test_an_agent_that_is_held_up_still_speaks(far, monkeypatch):
    """By a step that takes longer than silence may last, and by an undo while it puts everything down."""
    modules = agent_modules()
    slow = modules["files"].replace(
        "        free = os.statvfs", f"        time.sleep({SILENT_S + 2})\n        free = os.statvfs"
    )
    assert slow != modules["files"]
    monkeypatch.setattr(local, "agent_source", lambda: packed({**modules, "files": slow}))
    client = far()
    client.hello(soon())
    assert client.disk(soon()).total_bytes > 0
    client.change("slow", soon(), undo=[["sleep", "5.5"], ["sleep", "5.5"]], apply=[["true"]])
    client.close(soon())
    assert not client.events


@pytest.mark.parametrize("how", ["cut", "stopped"])
def test_a_new_agent_of_the_same_session_takes_over_from_one_that_is_out_of_reach(far, tmp_path, how):
    first = far(proof="secret")
    first.hello(soon())
    first.change("rate", soon(), undo=[["touch", str(tmp_path / "undone")]], apply=[["true"]])
    first.start(Launch(name="p", node="n1", role="rank", argv=("sleep", "600")), soon())
    process = first.processes(soon())[0].pid
    for proof in ("", "another"):
        with pytest.raises(LockedError):
            far(proof=proof).hello(soon())
    if how == "cut":
        first.line.cut()
    else:
        os.kill(first.line.agent.pid, signal.SIGSTOP)
    second = far(proof="secret")
    second.hello(soon())
    assert first.line.agent._process.wait(PATIENCE_S) == 0, "it put everything down itself"
    assert gone(process)
    assert (tmp_path / "undone").exists()
    assert second.processes(soon()) == []


def test_an_agent_that_hears_nothing_for_too_long_puts_everything_down(far, tmp_path):
    client = far(silence_s=4.0)
    client.hello(soon())
    client.change("rate", soon(), undo=[["touch", str(tmp_path / "undone")]], apply=[["true"]])
    client.line.cut()
    assert client.line.agent._process.wait(PATIENCE_S) == 0
    assert (tmp_path / "undone").exists()


CONTROLLER = """
import sys
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError
from orchestrator.remote.agent_client import AgentClient
from orchestrator.parts.topology import Node
from orchestrator.remote.transport.local import LocalChannel
work, run = sys.argv[1:]
def client(name, silence_s):
    made = AgentClient(Node(name=name, work=work), LocalChannel(), run=run, holder={}, on_event=lambda event: None,
                 silence_s=silence_s)
    made.hello(Deadline.after(60))
    return made
patient, hasty = client("n1", 120.0), client("n2", 6.0)
print("up", flush=True)
sys.stdin.readline()
try:
    hasty.run(["true"], Deadline.after(60))
except OrchError as error:
    print(str(error).splitlines()[0])
print(patient.run(["echo", "here"], Deadline.after(60)).stdout, end="")
for made in (patient, hasty):
    made.close(Deadline.after(60))
"""


def test_a_controller_that_was_stopped_blames_no_host(tmp_path, run_name):
    """It goes on with the agents that waited for it, and says of the others why they did not."""
    argv = [sys.executable, "-c", CONTROLLER, str(tmp_path), run_name]
    controller = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert controller.stdout.readline() == "up\n"
    controller.send_signal(signal.SIGSTOP)
    threading.Event().wait(SILENT_S + 3)
    controller.send_signal(signal.SIGCONT)
    out, _ = controller.communicate("go on\n", timeout=PATIENCE_S)
    told, here = out.splitlines()
    assert told.startswith("orch was stopped for 1"), out
    assert here == "here"
