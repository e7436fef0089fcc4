"""What a host says where no agent greets, and what its start-up files do: a real sshd, and shells of all kinds."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, TransportError
from orchestrator.parts.launch import Requirement
from orchestrator.parts.topology import Node
from orchestrator.remote import connection
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.transport import ssh
from orchestrator.remote.transport.ssh_config import SshTarget
from tests.helpers.sshd_help import PATIENCE_S, USER, site

pytestmark = pytest.mark.testbed

FISH = "#!/bin/sh\ncat > /dev/null\necho 'fish: Unknown command' >&2\n"  # says nothing until its input ends


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


@pytest.fixture
def place(tmp_path):
    return site(tmp_path)


def host(name: str, port: int, *lines: str) -> str:
    return "\n".join([f"Host {name}", "HostName 127.0.0.1", f"Port {port}", *lines])


@contextlib.contextmanager
def reached(place, *lines: str, python: str = sys.executable, within_s: float = PATIENCE_S):
    """A client on the host of an sshd with these lines in its configuration, before its greeting."""
    with place.sshd("h", *lines) as port:
        place.write(host("h", port), known=f"[127.0.0.1]:{port} {place.public('h')}\n")
        channel = ssh.connect(place.target("h"), python=python, deadline=Deadline.after(within_s))
        node = Node(name="h", work=str(place.folder / "work"), python=python)
        client = AgentClient(node, channel, run=f"c{time.time_ns()}", holder={}, on_event=lambda _: None)
        try:
            yield client
        finally:
            client.close(soon())


def refusal(place, *lines: str, within_s: float = PATIENCE_S, **how) -> OrchError:
    """What is told of a host whose sshd has these lines."""
    with pytest.raises(OrchError) as caught, reached(place, *lines, within_s=within_s, **how) as client:
        client.hello(Deadline.after(within_s))
    assert caught.value.node == "h"
    return caught.value


def shell(place, name: str, start: str) -> str:
    """A ForceCommand that does what a login shell with this start-up file does."""
    path = place.folder / f"{name}-start"
    path.write_text(f'#!/bin/sh\n{start}\nexec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n')
    path.chmod(0o755)
    return f"ForceCommand {path}"


@pytest.mark.parametrize(
    ("start", "said", "remedy"),
    [
        ("echo 'Use the login node instead'; exit", "Use the login node instead", "python"),
        ("echo 'This account is currently not available.'; exit 1", "account is currently not", "chsh -s"),
        ("echo 'WARNING: Your password has expired.' >&2; exit 1", "password has expired", "change the user's"),
        ("echo 'sh: 0: Cannot fork' >&2; exit 2", "Cannot fork", "ulimit -u"),
        ("echo 'x.sh: 1: cannot create f: No space left on device' >&2; exit 1", "No space left", "make room"),
        ("echo 'rbash: python3: restricted: cannot specify' >&2; exit 1", "restricted", "not restricted"),
        ("module load cuda || exit 3", "module: ", "see what this prints"),
        ("exec sh", "a shell reads what Python should read", "start another shell"),
        ("read -r line", "Traceback", "reads standard input"),
        ("cat > /dev/null; sleep 0", "", "see what this prints, and whether it ends: ssh"),
        ("echo out; echo err >&2; exit 9", "out\nerr", "see what this prints"),
        ("exit 1", "", "see what this prints"),
    ],
)
def test_what_a_start_up_file_said_is_told_with_what_would_mend_it(place, monkeypatch, start, said, remedy):
    if start.startswith("cat "):  # which ends with its input: the others end by themselves, however late
        monkeypatch.setattr(connection, "GREETING_S", 2.0)
    error = refusal(place, shell(place, "s", start))
    assert error.message.startswith("its agent did not start: ")
    assert said in error.tail
    assert remedy in (error.hint or "")


def test_a_shell_that_waits_for_the_end_of_its_input_is_given_up_with_a_command_to_try(place, monkeypatch):
    monkeypatch.setattr(connection, "GREETING_S", 2.0)
    (place.folder / "fish").write_text(FISH)
    (place.folder / "fish").chmod(0o755)
    began = time.monotonic()
    error = refusal(place, shell(place, "s", f"echo welcome to h; exec {place.folder}/fish"), within_s=600)
    assert time.monotonic() - began < 300
    assert "no greeting came in" in error.message
    assert "welcome to h" in error.tail
    assert "whether it ends: ssh -F" in error.hint
    assert f"h {sys.executable} -V" in error.hint


def test_a_shell_that_takes_the_source_for_its_script_runs_none_of_it(place):
    """A shell tries what it reads line by line; what is behind the first is compressed, and may be anything."""
    error = refusal(place, shell(place, "s", "exec bash -v"))
    assert error.tail.count("\n") == 1, error.tail


@pytest.mark.parametrize(
    "start",
    [
        "echo '*** authorized use only ***'; echo \"$(date)\" >&2",
        "i=0; while [ $i -lt 500 ]; do echo 'a line of the message of the day, as they are'; i=$((i+1)); done",
        "printf 'no newline at its end, \\033[31mred\\033[0m, \\000 and \\377'",
        "set -e; umask 077; TMOUT=1; export TMOUT",
        "export PYTHONHOME=/nonexistent PYTHONPATH=/nonexistent PYTHONSTARTUP=/nonexistent",
        "unset HOME PATH USER LANG",
    ],
)
def test_what_is_printed_before_the_greeting_and_ends_harms_nothing(place, start):
    with reached(place, shell(place, "s", start)) as client:
        assert client.hello(soon()).uid == os.geteuid()


@pytest.mark.parametrize("name", ["bash", "dash", "rbash"])
def test_login_shells_pass_the_command_on(place, name):
    """As sshd starts it: the shell with -c and the line."""
    program = f"/bin/{name}"
    if name == "rbash":  # a path is what it refuses
        error = refusal(place, f'ForceCommand {program} -c "$SSH_ORIGINAL_COMMAND"')
        assert "not restricted" in error.hint
        return
    with reached(place, f'ForceCommand {program} -c "$SSH_ORIGINAL_COMMAND"') as client:
        assert client.hello(soon()).uid == os.geteuid()


def test_a_server_for_files_alone(place):
    error = refusal(place, "ForceCommand internal-sftp")
    assert error.message.startswith("its agent did not start")
    assert "has a ForceCommand" in error.hint


def test_a_python_that_is_not_there_or_prints(place):
    assert "install Python 3.8" in refusal(place, python="/nonexistent/python3").hint
    wrapper = place.folder / "python3"
    wrapper.write_text(f'#!/bin/sh\necho activating\necho done >&2\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    with reached(place, python=str(wrapper)) as client:
        client.hello(soon())
        (found,) = client.check([need("json", str(wrapper))], soon())
        assert found.found, found.detail


def need(what: str, python: str) -> Requirement:
    return Requirement(node="h", kind="module", what=what, python=python, remedy="pip install it", needed_by="a test")


def test_an_interpreter_that_the_environment_breaks_lacks_no_module(place):
    with reached(place, shell(place, "s", "export PYTHONHOME=/nonexistent")) as client:
        client.hello(soon())
        (found,) = client.check([need("torch", sys.executable)], soon())
    assert not found.found
    assert "PYTHONHOME=/nonexistent" in found.detail
    assert "no Python frame" not in found.detail
    assert "pip install" not in found.requirement.remedy
    assert "PYTHONHOME" in found.requirement.remedy


def test_the_name_of_rfc_8731_is_a_method_that_is_known(place):
    with reached(place, "KexAlgorithms curve25519-sha256") as client:
        client.hello(soon())


@pytest.mark.parametrize(
    ("option", "theirs", "ours"),
    [
        ("KexAlgorithms", "diffie-hellman-group18-sha512", "ecdh-sha2-nistp256"),
        ("Ciphers", "chacha20-poly1305@openssh.com", "aes256-gcm@openssh.com"),
        ("MACs", "umac-128-etm@openssh.com", "hmac-sha2-256"),
    ],
)
def test_algorithms_of_which_none_is_common_are_listed_of_both_sides(place, option, theirs, ours):
    lines = [f"{option} {theirs}"] + (["Ciphers aes128-ctr"] if option == "MACs" else [])
    error = refusal(place, *lines)
    assert f"its {option} {theirs}; ours " in error.message
    assert ours in error.message
    assert f"add one of ours to {option} in its sshd_config" in error.hint


def test_the_banner_of_a_server_that_lets_nobody_in_is_told(place):
    (place.folder / "banner").write_text("maintenance until noon\n")
    error = refusal(place, f"Banner {place.folder}/banner", f"DenyUsers {USER}")
    assert "SSH login failed" in error.message
    assert error.tail == "maintenance until noon"


@pytest.mark.parametrize(
    ("said", "told", "remedy"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak SSH", "correct its name or port in `ssh`"),
        (b"220 mail.example ESMTP\r\n", "does not speak SSH", "correct its name or port in `ssh`"),
        (b"Not allowed at this time\r\n", "lets nobody in", "PerSourcePenalties"),
    ],
)
def test_another_service_is_told_at_once_with_what_it_said(said, told, remedy):
    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = listener.accept()
                with connected:
                    connected.sendall(said)
                    connected.shutdown(socket.SHUT_WR)
                    connected.recv(1 << 10)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        target = SshTarget(name="h", host="127.0.0.1", port=listener.getsockname()[1])
        began = time.monotonic()
        with pytest.raises(TransportError, match=told) as caught:
            ssh.connect(target, deadline=Deadline.after(600))
        assert time.monotonic() - began < 300
    assert said.decode().split("\r")[0] in caught.value.tail
    assert remedy in caught.value.hint


def test_a_jump_host_that_is_mistyped_is_told_with_where_it_is_written(place):
    place.write("Host h\nHostName 127.0.0.1\nProxyJump jmpp.invalid\n")
    with pytest.raises(TransportError, match=r"jump host jmpp.invalid: no address is known for jmpp.invalid") as caught:
        ssh.connect(place.target("h"), deadline=soon())
    assert f"ProxyJump of h in {place.config}" in caught.value.hint
    with pytest.raises(TransportError) as caught:
        ssh.connect(place.target("h", jump="a.invalid,b.invalid"), deadline=soon())
    assert "correct `jump` in the inventory" in caught.value.hint
    place.write("Host h\nHostName h.invalid\n")
    with pytest.raises(TransportError, match=r"h.invalid \(HostName of h in the SSH settings\)"):
        ssh.connect(place.target("h"), deadline=soon())


def test_what_comes_between_frames_is_shown(place: Path):
    """A program that a start-up file left running prints to the channel."""

    def asked_until_then() -> None:
        with reached(place, shell(place, "s", "(sleep 1; echo welcome) &")) as client:
            client.hello(soon())
            while True:
                client.clock(1, soon())
                time.sleep(0.05)

    with pytest.raises(TransportError) as caught:
        asked_until_then()
    assert "welcome" in caught.value.message
