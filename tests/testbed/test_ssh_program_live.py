"""Agents over the program ssh, against real servers: jump hosts, connections of the user's own, a second factor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.agents.agent.files import RunFile
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TransportError
from orchestrator.parts.launch import Launch
from orchestrator.parts.protocols import Channel
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.events import AgentLost
from orchestrator.remote.transport import ssh, ssh_program
from orchestrator.remote.transport.local import ProcessChannel
from orchestrator.testbed.inventory import Inventory, InventoryTestbed
from tests.helpers import kerberos, machine
from tests.helpers.processes import ended
from tests.helpers.sshd_help import PATIENCE_S, USER, Site, keygen, site
from tests.helpers.terminals import on_a_terminal

pytestmark = [pytest.mark.testbed, pytest.mark.rights]

# As root, in a mount namespace whose PAM asks for a code: pam_exec(8) hands it to a script.
ASKING = """\
auth required pam_exec.so quiet type=auth expose_authtok {folder}/code
auth required pam_permit.so
account required pam_permit.so
session required pam_permit.so
"""
CODE = "#!/bin/sh\n[ \"$(tr -d '\\0')\" = 123456 ]\n"
FACTORS = ("UsePAM yes", "KbdInteractiveAuthentication yes", "AuthenticationMethods publickey,keyboard-interactive")
# Reaches two hosts behind a jump host, is told Ctrl-C, and asks both agents again.
AT_A_TERMINAL = """
import signal, sys, time
from pathlib import Path
from tests.helpers.sshd_help import Site
from tests.testbed.test_ssh_program_live import agent, soon
from orchestrator.remote.transport import ssh

folder = Path(sys.argv[1])
interrupted = []
signal.signal(signal.SIGINT, lambda *_: interrupted.append(True))
target = Site(folder).target
with agent(ssh.reach(target("a", jump="gate"), program=False, python=sys.executable, deadline=soon()), folder) as a, \\
     agent(ssh.reach(target("b", jump="gate"), program=False, python=sys.executable, deadline=soon()), folder) as b:
    print("both greeted", flush=True)
    soon().poll(lambda: bool(interrupted), every_s=0.02, waiting_for="Ctrl-C")
    for client in (a, b):
        print(client.run(["echo", "still here"], soon()).stdout, flush=True)
"""


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


def host(name: str, port: int, *lines: str) -> str:
    return "\n".join([f"Host {name}", "HostName 127.0.0.1", f"Port {port}", *lines])


@pytest.fixture
def place(tmp_path, monkeypatch) -> Iterator[Site]:
    """A site whose connections are none of other tests."""
    masters = ssh_program._Masters()
    monkeypatch.setattr(ssh_program, "_masters", masters)
    yield site(tmp_path)
    masters.close()


@contextmanager
def two(place: Site, *gates: str, pam: Path | None = None) -> Iterator[None]:
    """Hosts `a` and `b` behind `gate`, whose configuration has these lines."""
    with place.sshd("a") as a, place.sshd("b") as b, place.sshd("gate", *gates, pam=pam) as gate:
        ports = {"a": a, "b": b, "gate": gate}
        known = "".join(f"[127.0.0.1]:{port} {place.public(name)}\n" for name, port in ports.items())
        place.write(*(host(name, port) for name, port in ports.items()), known=known)
        yield


@contextmanager
def agent(channel: Channel, work: Path, **options) -> Iterator[AgentClient]:
    options = {"run": f"program-{time.time_ns()}", "on_event": lambda _: None, **options}
    client = AgentClient(Node(name="n1", work=str(work)), channel, holder={}, **options)
    try:
        client.hello(soon())
        yield client
    finally:
        client.close(soon())


def reach(target, *, program: bool = True) -> Channel:
    return ssh.reach(target, program=program, python=sys.executable, deadline=soon())


def accepted(place: Site, name: str) -> int:
    """How many logins a server has accepted."""
    return (place.folder / f"{name}.log").read_text().count("Accepted ")


def test_an_inventory_leads_through_a_jump_host_that_is_logged_in_to_once(place, tmp_path):
    data = {"a": "10.0.0.1/24", "b": "10.0.0.2/24"}
    hosts = {name: {"ssh": name, "data": {"address": address, "device": "lo"}} for name, address in data.items()}
    defaults = {"config": str(place.config), "jump": "gate", "python": sys.executable}
    inventory = Inventory.model_validate({"link": "1gbit", "ssh": "program", "defaults": defaults, "hosts": hosts})
    testbed = InventoryTestbed(inventory)
    with two(place):
        for number, name in enumerate(("a", "b", "a")):
            with agent(testbed.connect(name, soon()), tmp_path / "work") as client:
                client.put("data", os.urandom(500_000), soon())
                home = tmp_path / f"home-{number}"
                client.fetch(RunFile("data", 500_000), home, soon())
                assert (home / "data").stat().st_size == 500_000
        testbed.close()
        assert [accepted(place, name) for name in ("a", "b", "gate")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("option", "known", "reached"),
    [
        ("StrictHostKeyChecking ask", "{name} {key}", True),
        ("StrictHostKeyChecking no", "", True),
        ("StrictHostKeyChecking ask", "", False),
        ("StrictHostKeyChecking no", "{name} {other}", False),
    ],
    ids=["known", "new", "unknown", "changed"],
)
def test_the_same_keys_are_trusted_as_over_paramiko(place, tmp_path, option, known, reached):
    keygen(place.folder / "stranger")
    with place.sshd("h") as port:
        words = {"name": f"[127.0.0.1]:{port}", "key": place.public("h"), "other": place.public("stranger")}
        for program in (False, True):
            place.write(host("h", port), known=known.format(**words) + "\n", options=(option,))
            if reached:
                with agent(reach(place.target("h"), program=program), tmp_path):
                    continue
            with pytest.raises(TransportError, match="has changed" if known else "is not known"):
                reach(place.target("h"), program=program)


def test_what_it_alone_follows_is_followed(place, tmp_path):
    """A server whose key is revoked by a list that paramiko does not read."""
    keygen(place.folder / "stranger")
    with place.sshd("h") as port:
        for name, reached in (("stranger", True), ("h", False)):
            revoked = f"RevokedHostKeys {place.folder / name}.pub"
            place.write(host("h", port, revoked), known=f"[127.0.0.1]:{port} {place.public('h')}\n")
            ssh_program._masters.close()
            if reached:
                with agent(reach(place.target("h"), program=False), tmp_path):
                    continue
            with pytest.raises(TransportError, match="is revoked"):
                reach(place.target("h"), program=False)


def test_a_connection_of_the_users_own_is_used_and_left_open(place, tmp_path):
    path = place.folder / "m"
    with place.sshd("h") as port:
        known = f"[127.0.0.1]:{port} {place.public('h')}\n"
        place.write(host("h", port, f"ControlPath {path}"), known=known)
        with ended(["ssh", "-F", place.config, "-M", "-N", "h"], stdin=subprocess.DEVNULL) as own:
            soon().poll(path.exists, every_s=0.02, waiting_for="the user's own connection")
            (place.folder / "authorized").write_text("")  # nobody else is let in
            channel = reach(place.target("h"), program=False)
            with agent(channel, tmp_path):
                assert isinstance(channel, ProcessChannel)
            assert own.poll() is None
            assert accepted(place, "h") == 1
        with pytest.raises(TransportError, match="login failed"):
            reach(place.target("h"))


def test_a_jump_host_that_forwards_nothing_is_blamed(place):
    with two(place, "AllowTcpForwarding no"), pytest.raises(TransportError, match="lets no connection") as caught:
        reach(place.target("a", jump="gate"))
    assert caught.value.node == "jump host gate"
    ssh_program._masters.close()
    with two(place), pytest.raises(TransportError, match=r"from jump host gate.*refused") as caught:
        reach(place.target("a", jump="gate", port=1))
    assert caught.value.node == "a"


def test_a_server_that_lets_one_session_through_a_connection_is_told(place, tmp_path):
    with place.sshd("h", "MaxSessions 1") as port:
        place.write(host("h", port), known=f"[127.0.0.1]:{port} {place.public('h')}\n")
        with agent(reach(place.target("h")), tmp_path):
            second = AgentClient(
                Node(name="n2"), reach(place.target("h")), run="second", holder={}, on_event=lambda _: None
            )
            with pytest.raises(TransportError, match="its agent did not start") as caught:
                second.hello(soon())
            second.close(soon())
            assert "MaxSessions" in caught.value.hint


def test_a_cut_connection_ends_the_agent_and_is_noticed(place, tmp_path):
    events = []
    with place.sshd("h") as port:
        place.write(host("h", port), known=f"[127.0.0.1]:{port} {place.public('h')}\n")
        with agent(reach(place.target("h")), tmp_path, on_event=events.append) as client:
            client.start(Launch(name="p", node="n1", role="rank", argv=("sleep", "600")), soon())
            pid = client.processes(soon())[0].pid
            (master,) = ssh_program._masters._processes
            master.kill()
            soon().poll(lambda: machine.gone(pid), every_s=0.02, waiting_for="the agent to end")
            soon().poll(lambda: bool(events), every_s=0.01, waiting_for="the news")
    assert isinstance(events[0], AgentLost)


def test_nothing_is_left_of_a_controller_that_was_killed(place, tmp_path):
    program = (
        "import os, sys; from tests.testbed.test_ssh_program_live import *\n"
        "target = Site(Path(sys.argv[1])).target\n"
        "node, channel = Node(name='n1', work=sys.argv[2]), reach(target('a', jump='gate'))\n"
        "client = AgentClient(node, channel, run='killed', holder={}, on_event=lambda _: None)\n"
        "print(client.hello(soon()).pid, *(one.pid for one in ssh_program._masters._processes), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with two(place):
        argv = [sys.executable, "-c", program, place.folder, tmp_path]
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, timeout=2 * PATIENCE_S)
        assert done.returncode == -signal.SIGKILL
        pids = [int(word) for word in done.stdout.split()]
        assert len(pids) == 3
        soon().poll(lambda: all(map(machine.gone, pids)), every_s=0.02, waiting_for="their end")


@pytest.mark.skipif(kerberos.MISSING is not None, reason=f"{kerberos.MISSING} is not installed")
def test_a_kerberos_ticket_logs_in_where_no_key_does(place, tmp_path, monkeypatch):
    with kerberos.realm(tmp_path / "realm") as environment:
        lines = ("GSSAPIAuthentication yes", "GSSAPIStrictAcceptorCheck no")
        with place.sshd("h", *lines, env=environment) as port:
            known = f"[localhost]:{port} {place.public('h')}\n"
            place.write(f"Host h\nHostName localhost\nPort {port}\nGSSAPIAuthentication yes", known=known)
            (place.folder / "authorized").write_text("")
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            with pytest.raises(TransportError, match=r"login failed.*no ticket is here"):
                reach(place.target("h"), program=False)
            subprocess.run(["kinit", "-k", "-t", tmp_path / "realm/user.keytab", USER], check=True)
            with agent(reach(place.target("h"), program=False), tmp_path):
                assert "Accepted gssapi-with-mic" in (place.folder / "h.log").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a PAM of its own")
class TestSecondFactor:
    """A jump host that takes the key, and then asks for a code."""

    @pytest.fixture
    def asking(self, place) -> Iterator[Site]:
        folder = place.folder / "pam.d"
        folder.mkdir()
        (folder / "sshd").write_text(ASKING.format(folder=place.folder))
        (place.folder / "code").write_text(CODE)
        (place.folder / "code").chmod(0o755)
        with two(place, *FACTORS, pam=folder):
            yield place

    def test_without_a_terminal_it_is_refused_by_name(self, asking):
        with pytest.raises(TransportError, match="asks for keyboard-interactive, and there is no terminal") as caught:
            reach(asking.target("a", jump="gate"), program=False)
        assert caught.value.node == "jump host gate"
        assert "ControlPersist" in caught.value.hint

    @pytest.mark.parametrize(("code", "let_in"), [("123456", True), ("654321", False)])
    def test_at_a_terminal_it_is_asked_once_and_outlives_ctrl_c(self, asking, code, let_in):
        log = asking.folder / "terminal"
        argv = [sys.executable, "-c", AT_A_TERMINAL, str(asking.folder)]
        with on_a_terminal(argv, log) as (process, terminal):

            def says(text: str) -> None:
                soon().poll(
                    lambda: text in log.read_text() or process.poll() is not None, every_s=0.02, waiting_for=text
                )
                assert text in log.read_text()

            says("jump host gate: ssh logs in as")
            says("Password: ")
            os.write(terminal.master, f"{code}\n".encode())
            if let_in:
                says("both greeted")
                os.write(terminal.master, b"\x03")
                says("still here\n\nstill here")
            process.wait(PATIENCE_S)
        assert log.read_text().count("Password: ") == 1
        assert code not in log.read_text()
        if not let_in:
            assert "SSH login failed as" in log.read_text()
