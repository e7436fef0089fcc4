"""Hosts that are reached by the program ssh, for which another program stands here."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, OrchError, TransportError
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.transport import ssh_config, ssh_program
from orchestrator.remote.transport.ssh_config import SshTarget
from tests.helpers import machine

PATIENCE_S = 60
SETTINGS = "hostname HOST.rack\nuser ada\nport 22\nstricthostkeychecking ask\n"
STRICT = "No ED25519 host key is known for h.rack and you have requested strict checking.\r\n"
CLOSED = "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 10.0.0.1 port 22\r\n"
FORWARDING = "stdio forwarding failed\r\n" + CLOSED


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """The folder of the program that stands for ssh, whose logins are none of other tests."""
    folder = tmp_path / "fake"
    folder.mkdir()
    shutil.copy(Path(__file__).parents[2] / "helpers/fake_ssh.py", folder)
    program = folder / "ssh"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {folder / "fake_ssh.py"} "$@"\n')
    program.chmod(0o755)
    (folder / "G").write_text(SETTINGS)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    masters = ssh_program._Masters()
    monkeypatch.setattr(ssh_program, "_masters", masters)
    yield folder
    masters.close()


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


def way(host: str = "h", **more) -> list[ssh_config.Hop]:
    return ssh_config.route(SshTarget(**{"name": host, "host": host, **more}), soon())


def connect(host: str = "h", *, within_s: float = PATIENCE_S, **more):
    return ssh_program.connect(way(host, **more), python=sys.executable, deadline=Deadline.after(within_s))


def behind(host: str, *jumps: str) -> list[ssh_config.Hop]:
    """A route of settings that the program here cannot tell apart."""
    return [way(name)[0] for name in (*jumps, host)]


def words(folder: Path, without: str = "-G") -> list[list[str]]:
    """What the program was started with each time, but to say its settings."""
    lines = [line.split("\0") for line in (folder / "words").read_text().splitlines()]
    return [line for line in lines if without not in line]


def test_an_agent_answers_and_the_connection_is_kept(fake, tmp_path):
    for number in range(2):
        channel = connect(user="ada", port=2222)
        client = AgentClient(
            Node(name="h", work=str(tmp_path)), channel, run=f"run-{number}", holder={}, on_event=lambda _: None
        )
        assert client.hello(soon()).uid == os.geteuid()
        client.close(soon())
    login, first, second = words(fake)
    assert "-N" in login
    assert "BatchMode=yes" in login
    assert login[login.index("-p") + 1] == "2222"
    assert first == second
    assert first[first.index("-S") + 1] == login[login.index("-S") + 1]
    assert {"ForwardAgent=no", "StrictHostKeyChecking=yes"} <= set(login)
    assert {"ControlMaster=no", "ProxyCommand=false"} <= set(first), "it may not log in by itself"


def test_it_ends_with_the_process(fake):
    connect().close()
    pid = int((fake / "h.pid").read_text())
    folder = Path(words(fake)[0][words(fake)[0].index("-S") + 1]).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    ssh_program._masters.close()
    assert machine.gone(pid)
    assert not folder.exists()
    ssh_program._masters.close()


def test_it_ends_after_kill_9(fake):
    program = (
        "import os, signal, sys\n"
        "from tests.unit.remote.test_ssh_program import connect\n"
        "connect()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=2 * PATIENCE_S)
    assert done.returncode == -signal.SIGKILL
    folder = Path(words(fake)[0][words(fake)[0].index("-S") + 1]).parent
    pid = int((fake / "h.pid").read_text())
    soon().poll(lambda: machine.gone(pid) and not folder.exists(), every_s=0.02, waiting_for="the connection's end")


def test_one_that_has_ended_is_opened_again(fake):
    connect().close()
    pid = int((fake / "h.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    soon().poll(lambda: machine.gone(pid), every_s=0.01, waiting_for="its end")
    connect().close()
    assert int((fake / "h.pid").read_text()) != pid


def test_hosts_share_the_connection_to_their_jump_host(fake):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda host: ssh_program._master_of(behind(host, "j"), soon()), ["h1", "h2", "h3", "h1"]))
    logins = [line[line.index("--") + 1] for line in words(fake) if "-N" in line]
    assert sorted(logins) == ["h1", "h2", "h3", "j"]
    assert logins[0] == "j"
    (proxy,) = {word for line in words(fake) for word in line if word.startswith("ProxyCommand=")}
    assert proxy.endswith("-W '[%h]:%p' -- j")


def test_a_percent_of_a_path_is_none_of_the_proxy_commands(fake, tmp_path, monkeypatch):
    short = Path(tempfile.mkdtemp(dir="/tmp")) / "%h"  # a socket's name has a bound, which pytest's folders may exceed
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    short.mkdir()
    master = ssh_program._master_of(way("j"), soon())
    assert "/%%h/" in master.to_next()
    assert "/%%h/" not in " ".join(master.words())
    shutil.rmtree(short.parent)


def test_all_who_wait_for_a_login_that_fails_are_told(fake):
    for number in range(1, 4):
        (fake / f"j.{number}").write_text("ssh: connect to host j port 22: No route to host\r\n")

    def fails(host: str) -> TransportError:
        with pytest.raises(TransportError) as caught:
            ssh_program._master_of(behind(host, "j"), soon())
        return caught.value

    with ThreadPoolExecutor(3) as pool:
        errors = list(pool.map(fails, ["h1", "h2", "h3"]))
    assert {(error.node, error.message) for error in errors} == {
        ("j", "cannot connect by SSH: ssh: connect to host j port 22: No route to host")
    }


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        ("ssh: connect to host h port 22: Connection refused\r\n", "cannot connect by SSH: ssh: .* refused", "ssh h t"),
        ("", "cannot connect by SSH: ssh ended without a word", "ssh h true"),
        (STRICT + "Host key verification failed.\r\n", "the host key of h.rack is not known", "accept it with: ssh h"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\r\nHost key verification failed.\r\n",
            "the host key of h.rack has changed",
            "somebody may be in between",
        ),
        (
            "Host key ED25519 SHA256:x in file /x revoked\r\nHost key verification failed.\r\n",
            "the host key of h.rack is revoked",
            "ssh h true",
        ),
        (
            "ada@h: Permission denied (publickey).\r\n",
            r"SSH login failed as ada\n",
            "see whether this works: ssh h true",
        ),
        (
            "Banner\r\nada@h: Permission denied (keyboard-interactive,gssapi-with-mic).\r\n",
            "the server asks for keyboard-interactive, and there is no terminal to ask at",
            "ControlPersist",
        ),
        ("Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures\r\n", "login failed", "ssh h"),
        (
            "ssh: Could not resolve hostname h.rack: Name or service not known\r\n",
            r"no address is known for h.rack \(HostName of h",
            "`ssh` in the inventory",
        ),
        ("Unable to negotiate with 10.0.0.1 port 22: no matching cipher found.\r\n", "no matching cipher", "ssh h"),
        ("Not allowed at this time\r\n", "cannot connect", "PerSourcePenalties"),
    ],
    ids=lambda text: text[:30],
)
def test_what_ssh_says_is_told_with_a_remedy(fake, said, message, hint):
    (fake / "h.1").write_text(said)
    with pytest.raises(TransportError, match=message) as caught:
        connect()
    assert caught.value.node == "h"
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("said", "node", "message"),
    [
        ("channel 0: open failed: administratively prohibited: no\r\n", "j", "lets no connection through"),
        ("channel 0: open failed: connect failed: Connection refused\r\n", "h", "from j, at h.rack:22: connect failed"),
        ("", "h", "cannot be reached from j, at h.rack:22: no connection"),
    ],
)
def test_a_jump_host_that_opens_no_connection(fake, said, node, message):
    (fake / "h.1").write_text(said + FORWARDING)
    with pytest.raises(TransportError, match=message) as caught:
        ssh_program._master_of(behind("h", "j"), soon())
    assert caught.value.node == node


def test_a_server_that_drops_logins_is_asked_again(fake):
    for number in range(1, 3):
        (fake / f"h.{number}").write_text(CLOSED)
    connect().close()
    assert len([line for line in words(fake) if "-N" in line]) == 3


def test_a_proxy_command_that_ends_is_told_at_once_and_one_whose_server_drops_it_is_tried_again(fake):
    (fake / "G").write_text(SETTINGS + "proxycommand x\n")
    (fake / "h.1").write_text("Connection closed by 10.0.0.9 port 22\r\n" + CLOSED)
    (fake / "h.2").write_text("no route to the vault\r\n" + CLOSED)
    with pytest.raises(TransportError, match="its ProxyCommand ended: no route to the vault"):
        connect()
    assert len([line for line in words(fake) if "-N" in line]) == 2


def test_one_that_drops_all_is_told(fake):
    for number in range(1, 10):
        (fake / f"h.{number}").write_text(CLOSED)
    with pytest.raises(OrchError, match=r"Connection closed by 10|gave up waiting") as caught:
        connect(within_s=1.0)
    assert caught.value.node == "h"


def test_a_login_that_hangs_is_given_up(fake):
    hangs = fake / "ssh"
    hangs.write_text(
        f'#!/bin/sh\ncase " $* " in *" -G "*) cat {fake}/G;; *) echo $$ > {fake}/pid; exec sleep 600;; esac\n'
    )
    with pytest.raises(DeadlineExceeded, match="h: gave up waiting for the SSH login"):
        ssh_program.connect(way(), deadline=Deadline.after(2.0))
    assert machine.gone(int((fake / "pid").read_text()))


def test_a_key_that_is_missing_is_an_error_and_not_one_key_less(fake, tmp_path):
    with pytest.raises(TransportError, match="No such file"):
        connect(key=tmp_path / "none")
    assert not words(fake)


def test_a_folder_whose_name_is_too_long(fake, tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises(TransportError, match="too long a name") as caught:
        connect()
    assert "XDG_RUNTIME_DIR" in caught.value.hint


class TestNeeded:
    """Whether settings want the program."""

    @pytest.mark.parametrize(
        "line",
        [
            "pkcs11provider /x.so",
            "knownhostscommand /bin/true",
            "revokedhostkeys /x",
            "verifyhostkeydns ask",
            "nohostauthenticationforlocalhost yes",
            "proxyusefdpass yes",
            "bindinterface lo",
        ],
    )
    def test_what_it_alone_follows(self, fake, line):
        assert not ssh_program.needed(way())
        (fake / "G").write_text(SETTINGS + line.partition(" ")[0] + " no\n")
        assert not ssh_program.needed(way())
        (fake / "G").write_text(f"{SETTINGS}{line}\n")
        assert ssh_program.needed(way())

    def test_a_connection_of_the_users_own(self, fake, tmp_path):
        path = tmp_path / "m"
        (fake / "G").write_text(f"{SETTINGS}controlpath {path}\n")
        assert not ssh_program.needed(way())
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            assert not ssh_program.needed(way()), "nobody listens there"
            listener.listen()
            assert ssh_program.needed(way())
            connect().close()
        (session,) = words(fake)
        assert session[session.index("-S") + 1] == str(path)
        assert not ssh_program.needed(way())

    def test_a_kerberos_ticket(self, fake, tmp_path):
        klist = fake / "klist"
        for status, line in ((0, "gssapiauthentication no"), (1, "gssapiauthentication yes")):
            klist.write_text(f"#!/bin/sh\nexit {status}\n")
            klist.chmod(0o755)
            (fake / "G").write_text(f"{SETTINGS}{line}\n")
            assert not ssh_program.needed(way())
        klist.write_text("#!/bin/sh\nexit 0\n")
        assert ssh_program.needed(way())
        assert not ssh_program.needed(way(key=tmp_path / "key")), "only that key is wanted"
