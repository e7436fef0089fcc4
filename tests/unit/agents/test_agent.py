"""The agent alone: what it is made of, and what it makes of bad input."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import pwd
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.agents.agent import checks, children, commands, launches
from orchestrator.agents.agent.folders import RunFolder
from orchestrator.agents.agent.proc import Row
from orchestrator.agents.agent.steps import Refusal
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, TransportError
from orchestrator.parts.launch import Exited, Launch
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.events import AgentLost
from orchestrator.remote.frames import frame
from orchestrator.remote.transport import local
from orchestrator.remote.transport.bootstrap import agent_argv, agent_command_line, agent_modules, agent_source, packed
from orchestrator.remote.transport.local import LocalChannel
from orchestrator.remote.transport.ssh import SshChannel
from orchestrator.remote.transport.ssh_config import SshTarget
from tests.helpers.reachable import tmp_path

__all__ = ["tmp_path"]

MAGIC = b"\0orch-agent 1\n"
ROOT = Path(__file__).parents[3]


def soon() -> Deadline:
    return Deadline.after(60)


class Raw:
    """An agent that is spoken to in bytes."""

    def __init__(self) -> None:
        self.channel = LocalChannel()
        self.buffer = b""
        self.take(len(MAGIC))

    def take(self, size: int) -> bytes:
        while len(self.buffer) < size:
            data = self.channel.read(65536)
            if not data:
                raise EOFError(self.channel.diagnosis())
            self.buffer += data
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    def reply(self) -> dict:
        (length,) = struct.unpack(">I", self.take(4))
        return json.loads(self.take(length))

    def say(self, text: bytes) -> dict:
        self.channel.write(struct.pack(">I", len(text)) + text)
        return self.reply()


@pytest.fixture(scope="module")
def patient():
    """One that answers bad requests, whatever came before."""
    agent = Raw()
    yield agent
    agent.channel.close()


@pytest.fixture
def raw():
    agent = Raw()
    yield agent
    agent.channel.close()


def test_it_needs_nothing_but_an_old_standard_library():
    texts = agent_modules()
    packages = {name.rpartition(".")[0] for name in texts if name.endswith("__init__")}
    for name, text in texts.items():
        tree = ast.parse(text, feature_version=(3, 8))
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        modules |= {str(node.module) for node in froms if not node.level}
        assert {module.partition(".")[0] for module in modules} <= sys.stdlib_module_names | {"__future__"}
        inside = ["agent", *name.split(".")[:-1]]
        steps = [
            [*inside[: len(inside) + 1 - node.level], *(node.module or "").split(".")] for node in froms if node.level
        ]
        assert {".".join(filter(None, step[1:])) for step in steps} <= texts.keys() | packages


def test_a_traceback_of_an_agent_names_the_file_and_the_line(tmp_path):
    frames = agent_modules()["frames"]
    source = packed({**agent_modules(), "frames": frames + "raise RuntimeError\n"})
    ended = subprocess.run(agent_argv(sys.executable), input=source, capture_output=True, cwd=tmp_path, check=False)
    assert ended.returncode == 1
    assert b'File "orch-agent/frames.py", line %d' % (frames.count("\n") + 1) in ended.stderr
    assert b'File "orch-agent/main.py"' in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_node_is_sent_a_third_of_what_the_agent_is():
    """A hundred nodes behind 10 Mbit/s would otherwise take eight seconds to get it."""
    assert 3 * len(agent_source()) < sum(len(text.encode()) for text in agent_modules().values())


def test_what_is_to_be_written_and_is_not_compressed_is_refused(connect_agent):
    client = connect_agent()
    with pytest.raises(AgentError, match="is not compressed"):
        client._connection.ask("put", soon(), {"path": "x", "mode": 0o644}, payload=b"plain")
    client.put("x", b"still there", soon())


def test_the_command_line_survives_a_login_shell():
    line = agent_command_line("/opt/my python/bin/python3", sudo=True)
    words = subprocess.run(["sh", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True).stdout
    assert words.split("\0")[:-1] == agent_argv("/opt/my python/bin/python3", sudo=True)
    assert "\n" not in line
    assert "!" not in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "a request is an object"),
        (b'{"id": 1}', "no request named None"),
        (b'{"id": 1, "op": ["run"]}', "no request named"),
        (b'{"id": 1, "op": "dance"}', "no request named 'dance'"),
        (b'{"id": 1, "op": "serve"}', "no request named 'serve'"),
        (b'{"id": 1, "op": "read"}', "missing 2 required"),
        (b'{"id": 1, "op": "read", "paths": [], "globs": [], "more": 1}', "unexpected keyword"),
        (b'{"id": 1, "op": "read", "paths": 5, "globs": []}', "TypeError"),
        (b'{"id": 1, "op": "run_command", "argv": [], "timeout_s": 1}', "not an argument list"),
        (b'{"id": 1, "op": "run_command", "argv": [1], "timeout_s": 1}', "not an argument list"),
        (b'{"id": 1, "op": "run_command", "argv": ["a\\u0000b"], "timeout_s": 1}', "no program named"),
        (b'{"id": 1, "op": "put", "path": "x", "mode": 420}', "put before hello"),
        (b'{"id": 1, "op": "hello", "run": "a/b", "node": "n", "folder": "/tmp/x", "holder": {}}', "ValueError"),
        (b'{"id": 1, "op": "hello", "run": "r", "node": "n", "folder": "x", "holder": {}}', "ValueError"),
        (
            b'{"id": 1, "op": "hello", "run": "r", "node": "n", "folder": "/tmp/x", "holder": {}, "silence_s": "x"}',
            "could not convert",
        ),
        (b'{"id": 1, "op": "stop", "name": "x", "signals": []}', "no process named 'x'"),
        (b'{"id": 1, "op": "check", "requirements": [{"kind": "luck", "what": "x"}]}', "no requirement of kind"),
    ],
)
def test_a_bad_request_is_an_error_and_not_the_end(patient, text, said):
    reply = patient.say(text)
    assert said in reply["error"]
    assert patient.say(b'{"id": 2, "op": "ping"}')["ok"] is True


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">I", 15) + b'{"bytes": 1e99}'])
def test_a_stream_that_cannot_be_followed_ends_it_with_a_reason(raw, data):
    raw.channel.write(data.ljust(64))
    assert raw.reply()["kind"] == "protocol"
    with pytest.raises(EOFError):
        raw.take(1)


def test_a_command_may_have_all_the_time_that_there_is(raw):
    """More than a selector takes, and before a greeting that says when the controller is to be heard of."""
    forever = {"id": 1, "op": "run_command", "argv": ["sleep", "600"], "timeout_s": 1e308}
    raw.channel.write(frame(forever) + frame({"id": 2, "op": "ping"}))
    assert raw.reply()["id"] == 2
    raw.channel.write(frame({"id": 3, "op": "ping"}))
    assert raw.reply()["id"] == 3


def test_frames_may_come_in_pieces(raw):
    text = b'{"id": 9, "op": "ping"}'
    for byte in struct.pack(">I", len(text)) + text:
        raw.channel.write(bytes([byte]))
    assert raw.reply()["id"] == 9


def test_a_start_with_bad_values_is_refused(connect_agent):
    client = connect_agent()
    ready = {"kind": "line", "pattern": "(", "file": "stdout"}
    values = {"name": "p", "argv": ["true"], "env": {}, "ready": ready, "ready_within_s": 1}
    for name in ("../x", "", ".hidden", "a b"):
        with pytest.raises(AgentError):
            client._connection.ask("start", soon(), {**values, "name": name, "ready": {"kind": "started"}})
    with pytest.raises(AgentError, match="unterminated"):
        client._connection.ask("start", soon(), values)
    assert client.processes(soon()) == []


def test_what_a_shell_prints_before_the_agent_is_skipped(tmp_path):
    class Noisy(LocalChannel):
        said = False

        def read(self, size: int) -> bytes:
            if not self.said:
                self.said = True
                return b"Welcome to the cluster!\r\n\0 "
            return super().read(size)

    client = AgentClient(Node(name="n1", work=str(tmp_path)), Noisy(), run="noise", holder={}, on_event=lambda _: None)
    assert client.hello(soon()).pid > 0
    client.close(soon())


@pytest.mark.parametrize("late_s", [0.0, 0.2], ids=["source-first", "end-first"])
@pytest.mark.parametrize("reads", ["read length; head -c $length > /dev/null; ", ""], ids=["reads", "reads-nothing"])
def test_a_channel_without_an_agent_says_why(tmp_path, monkeypatch, late_s, reads):
    """Whether the command reads the agent's source, or is gone before that is sent."""

    def source() -> bytes:
        time.sleep(late_s)
        return agent_source()

    monkeypatch.setattr(local, "agent_source", source)
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{reads}echo 'sudo: a password is required' >&2\n")
    script.chmod(0o755)
    channel = LocalChannel(str(script))
    client = AgentClient(Node(name="n1", work=str(tmp_path)), channel, run="r", holder={}, on_event=lambda _: None)
    with pytest.raises(TransportError, match="its agent did not start: the channel to the agent ended") as caught:
        client.hello(soon())
    assert "sudo" in caught.value.hint
    assert "password is required" in caught.value.tail
    client.close(soon())


@pytest.mark.skipif(os.geteuid() != 0, reason="dropping rights needs root")
def test_under_sudo_it_drops_to_the_user_unless_privileged(connect_agent):
    nobody = pwd.getpwnam("nobody")
    client = connect_agent(env={**os.environ, "SUDO_UID": str(nobody.pw_uid), "SUDO_USER": "nobody"}, hello=False)
    greeting = client.hello(soon())
    assert (greeting.uid, greeting.user) == (0, "nobody")
    script = "id -u; id -G; echo $HOME; echo x > made"
    for name, privileged in (("user", False), ("root", True)):
        argv = ("sh", "-c", script)
        client.start(
            Launch(name=name, node="n1", role="rank", argv=argv, privileged=privileged, ready=Exited()), soon()
        )
    folder = Path(client.node.folder(client._run))
    uid, groups, home = (folder / "user/stdout").read_text().split("\n")[:3]
    assert (uid, groups, home) == (str(nobody.pw_uid), str(nobody.pw_gid), nobody.pw_dir)
    assert (folder / "user/made").stat().st_uid == nobody.pw_uid
    assert (folder / "root/stdout").read_text().startswith("0\n")
    assert client.run(["id", "-u"], soon()).stdout == "0\n"
    assert client.run(["id", "-u"], soon(), privileged=False).stdout == f"{nobody.pw_uid}\n"


def test_a_parent_is_asked_to_end_before_its_child(monkeypatch):
    """A set of these numbers would name the child first: numbers start anew once they have reached the highest."""
    rows = [(os.getpid(), 1, 1, 1), (1041, os.getpid(), 1041, 1041), (1040, 1041, 1041, 1041)]
    table = {row[0]: Row(*row, "S") for row in rows}
    child = SimpleNamespace(pid=1041, status=None)
    monkeypatch.setattr(launches, "process_table", lambda: table)
    made = launches.Launches(None, None, SimpleNamespace(living={1041: child}), None)
    assert made.members(launches.Process("p", "/", child)) == [1041, 1040]


@pytest.mark.parametrize(
    ("place", "speed", "found"),
    [
        ("pci/mlx5_core", "25000", True),
        ("pci/mlx5_core", "10000", False),
        ("pci/mlx5_core", "-1", True),
        ("pci/vmxnet3", "10000", True),
        ("virtual/", "10000", True),
    ],
)
def test_a_speed_counts_where_it_is_more_than_a_name(tmp_path, monkeypatch, place, speed, found):
    folder, driver = place.split("/")
    device = tmp_path / "devices" / folder / "net/eth0"
    (device / "device").mkdir(parents=True)
    (device / "speed").write_text(f"{speed}\n")
    if driver:
        (device / "device/driver").symlink_to(tmp_path / "drivers" / driver)
    (tmp_path / "class").mkdir()
    (tmp_path / "class/eth0").symlink_to(device)
    monkeypatch.setattr(checks, "NET", str(tmp_path / "class"))
    assert checks.check_device("speed", "25000 Mbit/s on eth0")[0] is found


def driven(steps, selector):
    """What a task comes to, with its descriptors served."""
    try:
        while True:
            for key, _ in selector.select(min(0.01, next(steps))):
                key.data()
    except StopIteration as end:
        return end.value


def test_a_command_that_the_kernel_holds_is_given_up(monkeypatch):
    """SIGKILL does not end a process in state D; here it is not sent, which looks the same."""
    monkeypatch.setattr(commands, "hit", lambda pids, number: None)
    monkeypatch.setattr(commands, "KILL_S", 0.1)
    with selectors.DefaultSelector() as selector:
        family = children.Children(RunFolder())
        try:
            made = commands.Commands(family, selector)
            with pytest.raises(Refusal, match=r"process \d+ was killed and has not ended: the kernel holds it"):
                driven(made.run(["sh", "-c", "echo partly; exec sleep 600"], 0.1), selector)
            monkeypatch.setattr(commands, "COMMAND_S", 0.1)
            found = driven(made.run_until_failure([["sleep", "600"]]), selector)
            assert "the kernel holds it" in found.tail
            assert not selector.get_map()
        finally:
            for child in family.living.values():
                child.popen.kill()
                child.popen.wait()


def test_a_program_on_a_file_system_without_programs_is_no_missing_one():
    """Mounted in a namespace of its own, so that nothing of it is left."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from agent.children import find_program\n"
        "try: find_program('/mnt/prog')\n"
        "except Exception as error: print(error.kind, error)\n"
    )
    script = 'mount -t tmpfs -o noexec none /mnt && cp /bin/true /mnt/prog && exec "$0" -c "$1" "$2"'
    argv = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(
        [*argv, sys.executable, program, str(ROOT / "orchestrator/agents")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "noexec /mnt/prog cannot be executed: its file system is mounted noexec\n"


@pytest.mark.usefixtures("strays")
def test_whoever_waits_for_a_lost_agent_finds_the_loss_told(connect_agent):
    client = connect_agent()
    told = []

    def lost(event):
        time.sleep(0.1)
        told.append(event)

    client._connection._on_event = lost
    threading.Timer(0.2, os.kill, (client.channel.pid, signal.SIGKILL)).start()
    with pytest.raises(TransportError, match="channel to the agent ended"):
        client.run(["sleep", "600"], soon())
    assert [type(event) for event in told] == [AgentLost]


def test_two_who_ask_a_channel_why_it_ended_are_both_told(monkeypatch):
    """Whoever writes and whoever reads find out at the same time, and either may be the one that tells the user."""
    taken, go_on = threading.Event(), threading.Event()

    class Session:
        left = b"no such python"

        def recv_stderr_ready(self) -> bool:
            return bool(self.left)

        def recv_stderr(self, size: int) -> bytes:
            said, self.left = self.left, b""
            taken.set()
            go_on.wait(60)
            return said

    channel = SshChannel(SshTarget(name="n1", host="h"), contextlib.ExitStack(), Session())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(channel.diagnosis)
        taken.wait(60)
        second = pool.submit(channel.diagnosis)
        threading.Timer(0.1, go_on.set).start()
        assert (first.result(60), second.result(60)) == ("no such python", "no such python")
