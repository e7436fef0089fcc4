"""Agents over SSH, against a real server on this machine's loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.agents.agent.files import RunFile
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, TransportError
from orchestrator.parts.launch import Launch
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.events import AgentLost
from orchestrator.remote.transport import ssh
from orchestrator.remote.transport.bootstrap import agent_source
from orchestrator.remote.transport.ssh_config import SshTarget
from orchestrator.testbed.inventory import Inventory, InventoryTestbed
from tests.helpers import machine
from tests.helpers.sshd_help import USER, keygen, site

pytestmark = [pytest.mark.testbed, pytest.mark.rights]


def soon() -> Deadline:
    return Deadline.after(60)


@dataclass(frozen=True)
class Server:
    folder: Path
    port: int
    host_key: str

    @property
    def target(self) -> SshTarget:
        return SshTarget(
            name="n1", host="127.0.0.1", user=USER, port=self.port, key=self.folder / "user", config=self.config()
        )

    def config(self, text: str = "", *, known: str | None = "") -> Path:
        """An SSH configuration whose known_hosts file has the server's key, `known`, or nothing."""
        hosts = self.folder / "known_hosts"
        if known is not None:
            hosts.write_text(f"[127.0.0.1]:{self.port} {known or self.host_key}\n")
        else:
            hosts.write_text("")
        config = self.folder / "config"
        config.write_text(text + f"\nHost *\n  UserKnownHostsFile {hosts}\n  IdentityFile {self.folder / 'user'}\n")
        return config


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    place = site(tmp_path_factory.mktemp("sshd"))
    keygen(place.folder / "stranger")
    with place.sshd("host") as port:
        yield Server(place.folder, port, place.public("host"))


@contextlib.contextmanager
def connected_client(channel: ssh.SshChannel, work: Path, **options) -> Iterator[AgentClient]:
    options = {"run": f"ssh-{time.time_ns()}", "on_event": lambda _: None, **options}
    client = AgentClient(Node(name="n1", work=str(work)), channel, holder={}, **options)
    try:
        yield client
    finally:
        client.close(soon())


def greets(channel: ssh.SshChannel, work: Path) -> bool:
    with connected_client(channel, work) as client:
        return client.hello(soon()).uid == os.geteuid()


def connect(target: SshTarget, **options) -> ssh.SshChannel:
    return ssh.connect(target, **{"python": sys.executable, "deadline": soon(), **options})


def test_an_agent_answers_and_its_data_comes_home(server, tmp_path):
    with connected_client(connect(server.target), tmp_path) as client:
        client.hello(soon())
        client.put("data", os.urandom(3_000_000), soon())
        client.fetch(RunFile("data", 3_000_000), tmp_path / "home", soon())
        assert (tmp_path / "home/data").read_bytes() == next(tmp_path.glob("ssh-*/data")).read_bytes()
        assert client.clock(10, soon()).uncertainty_ns < 20e6


def test_a_socket_and_a_host_key_may_be_given(server, tmp_path):
    sock = socket.create_connection(("127.0.0.1", server.port))
    target = replace(server.target, host="h1.testbed")
    server.config(known=None)
    channel = connect(target, sock=sock, host_key=server.host_key)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert greets(channel, tmp_path)
    assert sock.fileno() == -1


def test_a_given_host_key_must_match(server, tmp_path):
    stranger = (server.folder / "stranger.pub").read_text()
    with pytest.raises(TransportError, match="has changed"):
        connect(server.target, host_key=stranger)
    with pytest.raises(TransportError, match="not a public host key"):
        connect(server.target, host_key="ssh-ed25519 !")


def test_an_unknown_host_key_is_refused_with_the_command_that_accepts_it(server):
    target = replace(server.target, config=server.config(known=None))
    with pytest.raises(TransportError, match=r"host key of .* is not known") as caught:
        connect(target)
    words = caught.value.hint.partition("with: ")[2].split()
    accept = [words[0], "-o", "StrictHostKeyChecking=accept-new", "-o", "BatchMode=yes", *words[1:]]
    subprocess.run(accept, check=True, capture_output=True, timeout=120)
    connect(target).close()


def test_a_changed_host_key_is_refused(server):
    target = replace(server.target, config=server.config(known=(server.folder / "stranger.pub").read_text()))
    with pytest.raises(TransportError, match="has changed") as caught:
        connect(target)
    known_hosts = server.folder / "known_hosts"
    assert f"ssh-keygen -f {known_hosts} -R '[127.0.0.1]:{server.port}'" in caught.value.hint


def test_a_key_that_is_not_let_in_says_how_to_try_by_hand(server):
    with pytest.raises(TransportError, match="login failed") as caught:
        connect(replace(server.target, key=server.folder / "stranger"))
    assert f"-p {server.port}" in caught.value.hint
    assert caught.value.node == "n1"


def test_a_key_file_that_is_missing(server):
    with pytest.raises(TransportError, match="No such file"):
        connect(replace(server.target, key=server.folder / "nothing"))


def test_nobody_listens():
    port = machine.free_port()
    with pytest.raises(TransportError, match=r"Unable to connect|refused"):
        connect(SshTarget(name="n1", host="127.0.0.1", port=port))
    with pytest.raises(TransportError, match="no address is known"):
        connect(SshTarget(name="n1", host="no-such-host.invalid"))


def test_somebody_else_listens():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = SshTarget(name="n1", host="127.0.0.1", port=silent.getsockname()[1])
        with pytest.raises(DeadlineExceeded, match="n1"):
            connect(target, deadline=Deadline.after(0.3))


def test_aliases_proxies_and_includes_of_the_configuration(server, tmp_path):
    (server.folder / "more").write_text(f"Host rack-*\n  HostName 127.0.0.1\n  Port {server.port}\n  User {USER}\n")
    proxy = f"{sys.executable} {server.folder / 'proxy.py'} %h %p"
    (server.folder / "proxy.py").write_text(
        "import os, socket, sys, threading\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n    while data := os.read(0, 65536): s.sendall(data)\n    s.shutdown(1)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(65536): os.write(1, data)\n"
    )
    config = server.config(f"Include {server.folder}/mor*\nHost rack-proxy\n  ProxyCommand {proxy}\n")
    for alias in ("rack-1", "rack-proxy"):
        assert greets(connect(SshTarget(name="n1", host=alias, config=config)), tmp_path)
    config = server.config(f"Include {server.folder}/mor*\nHost rack-proxy\n  ProxyCommand false\n")
    with pytest.raises(TransportError, match="cannot connect"):
        connect(SshTarget(name="n1", host="rack-proxy", config=config))


def test_jumps_verify_keys_too(server, tmp_path):
    target = replace(server.target, host="localhost", jump=f"{USER}@127.0.0.1:{server.port}")
    known = (server.folder / "known_hosts").read_text()
    (server.folder / "known_hosts").write_text(known + known.replace("127.0.0.1", "localhost"))
    assert greets(connect(target), tmp_path)
    (server.folder / "known_hosts").write_text(known.replace("127.0.0.1", "localhost"))
    with pytest.raises(TransportError, match=r"host key of \[127.0.0.1\]"):
        connect(target)


@pytest.mark.parametrize("late_s", [0.0, 0.5], ids=["source-first", "end-first"])
def test_a_missing_python_says_so(server, tmp_path, monkeypatch, late_s):
    """Also when the shell has said it and is gone before the agent's source is sent."""

    def source() -> bytes:
        time.sleep(late_s)
        return agent_source()

    monkeypatch.setattr(ssh, "agent_source", source)
    channel = connect(server.target, python="/no/python")
    with (
        pytest.raises(TransportError, match="channel to the agent ended") as caught,
        connected_client(channel, tmp_path) as client,
    ):
        client.hello(soon())
    assert "python" in caught.value.hint
    assert "/no/python" in caught.value.tail


def test_a_cut_connection_ends_the_agent_and_is_noticed(server, tmp_path):
    events = []
    channel = connect(server.target)
    with connected_client(channel, tmp_path, on_event=events.append) as client:
        agent = client.hello(soon()).pid
        client.start(Launch(name="p", node="n1", role="rank", argv=("sleep", "600")), soon())
        pid = client.processes(soon())[0].pid
        parent = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(session(parent), signal.SIGKILL)  # the server's side of this connection
        Deadline.after(60).poll(
            lambda: machine.gone(pid) and machine.gone(agent), every_s=0.02, waiting_for="the agent to end"
        )
        Deadline.after(60).poll(lambda: bool(events), every_s=0.01, waiting_for="the news")
    assert isinstance(events[0], AgentLost)


def session(pid: int) -> int:
    """The sshd process at or above `pid`."""
    while "sshd" not in Path(f"/proc/{pid}/comm").read_text():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def test_an_inventory_leads_there(server, tmp_path):
    inventory = Inventory.model_validate(
        {
            "link": "1gbit",
            "defaults": {"user": USER, "port": server.port, "config": str(server.config()), "python": sys.executable},
            "hosts": {
                "h1": {
                    "ssh": "127.0.0.1",
                    "key": str(server.folder / "user"),
                    "data": {"address": "10.0.0.1/24", "device": "lo"},
                }
            },
        }
    )
    testbed = InventoryTestbed(inventory)
    testbed.open(tmp_path, soon())
    try:
        assert greets(testbed.connect("h1", soon()), tmp_path)
        assert testbed.local_folder("h1") is None
    finally:
        testbed.close()
        testbed.close()
