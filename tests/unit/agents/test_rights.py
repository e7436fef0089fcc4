"""What an agent may do, what it passes on to what it starts, and programs that have rights by their files."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.agents.agent import checks, children
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import LaunchError
from orchestrator.core.machines.remedies import remedy
from orchestrator.parts.launch import Exited, Launch, Requirement
from orchestrator.remote.events import AgentLost
from tests.helpers.machine import gone
from tests.helpers.reachable import tmp_path

__all__ = ["tmp_path"]

pytestmark = pytest.mark.usefixtures("strays")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="giving rights away needs root")
RAW = bytes.fromhex("0100000200200000000000000000000000000000")  # CAP_NET_RAW, in effect from the start


def soon() -> Deadline:
    return Deadline.after(60)


def of_status(pid: object, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith(field))


@pytest.fixture
def capable(tmp_path):
    """A program with a capability of its own, where an ordinary user may run it."""
    program = tmp_path / "sleep"
    program.write_bytes(Path("/usr/bin/sleep").read_bytes())
    program.chmod(0o755)
    os.setxattr(program, children.FILE_CAPABILITIES, RAW)
    return program


@pytest.fixture
def sudoer(connect_agent):
    user = pwd.getpwnam("nobody")
    return connect_agent(env={**os.environ, "SUDO_UID": str(user.pw_uid), "SUDO_USER": user.pw_name})


def started(client, program: Path, **options: object) -> int:
    """The PID of the program, which is not that of its guard."""
    sleeper = Launch(name="p", node="n1", role="collector", argv=(str(program), "1000"), **options)
    client.start(sleeper, soon())

    def running() -> list[int]:
        return [one.pid for one in client.processes(soon()) if one.argv[0] == str(program)]

    soon().poll(lambda: len(running()) == 1, every_s=0.05, waiting_for="the program")
    return running()[0]


@needs_root
def test_a_program_with_rights_of_its_own_ends_with_its_agent(sudoer, capable):
    pid = started(sudoer, capable)
    assert of_status(pid, "CapEff") == 1 << 13
    os.kill(sudoer.channel.pid, signal.SIGKILL)
    sudoer.await_event(lambda event: isinstance(event, AgentLost))
    soon().poll(lambda: gone(pid), every_s=0.05, waiting_for="its end")


@needs_root
def test_a_program_with_rights_of_its_own_is_stopped_as_any_other(sudoer, capable):
    pid = started(sudoer, capable)
    stopped = sudoer.stop(Launch(name="p", node="n1", role="collector", argv=(str(capable), "1000")), soon())
    assert (stopped.status, stopped.killed) == (-signal.SIGTERM, False)
    assert gone(pid)
    assert sudoer.processes(soon()) == []


@needs_root
@pytest.mark.parametrize(("argument", "status"), [("0", 0), ("nonsense", 1)])
def test_a_guards_end_is_that_of_its_program(sudoer, capable, argument, status):
    launch = Launch(name="p", node="n1", role="collector", argv=(str(capable), argument), ready=Exited())
    if status:
        with pytest.raises(LaunchError, match="ended with status 1") as caught:
            sudoer.start(launch, soon())
        assert "invalid time interval" in caught.value.tail
    else:
        sudoer.start(launch, soon())


@needs_root
def test_a_program_may_have_the_right_that_its_agent_has_not(sudoer, capable, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 65534)  # whose capabilities are those that are ambient: none
    assert checks.granted(f"CAP_NET_RAW of {capable}") == (True, f"{capable} has it of its own")
    for what in (f"CAP_NET_ADMIN of {capable}", "CAP_NET_RAW of /usr/bin/true", "CAP_NET_RAW", "root"):
        granted, why = checks.granted(what)
        assert not granted
        assert "the agent is user 65534 (nobody)" in why


@pytest.mark.parametrize(
    ("level", "rights_of_agent", "may"),
    [
        ("2", 0, True),
        ("-1", 0, True),
        ("3", 0, False),
        ("4", 1 << 38, True),
        ("4", 1 << 21, True),
        (None, 1 << 38, False),
    ],
)
def test_performance_events_are_counted_where_the_kernel_lets_this_user_or_with_the_right(
    level, rights_of_agent, may, tmp_path, monkeypatch
):
    if level is not None:
        (tmp_path / "paranoid").write_text(level + "\n")
    monkeypatch.setattr(checks, "PARANOID", str(tmp_path / "paranoid"))
    monkeypatch.setattr(checks, "passed_on", lambda: rights_of_agent)
    counted, why = checks.granted("perf events")
    assert counted == may
    assert ("perf_event_paranoid is" in why) == (level is not None)


@needs_root
def test_only_what_needs_them_gets_the_rights_of_an_agent(connect_agent, tmp_path):
    """As the wrapper for sudo starts it: an ordinary user with two capabilities."""
    script = tmp_path / "python"
    wanted = "-all,+net_admin,+net_raw"
    script.write_text(
        f'#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set "{wanted}"'
        f' --inh-caps "{wanted}" --ambient-caps "{wanted}" -- /usr/bin/python3 "$@"\n'
    )
    script.chmod(0o755)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    done = subprocess.run([script, "-c", "pass"], check=False)
    assert done.returncode == 0
    client = connect_agent(hello=False, python=str(script))
    client.hello(soon(), folder=f"{shared}/run")
    wanted = [("CAP_NET_ADMIN", True), ("CAP_NET_RAW of tcpdump", True), ("CAP_SYS_NICE", False), ("root", False)]
    wanted.append(("programs in the kernel", False))
    asked = [Requirement(node="n1", kind="privilege", what=what, remedy="", needed_by="") for what, _ in wanted]
    assert [finding.found for finding in client.check(asked, soon())] == [found for _, found in wanted]
    for name, privileged in (("plain", False), ("privileged", True)):
        show = ("grep", "CapEff", "/proc/self/status")
        client.start(
            Launch(name=name, node="n1", role="rank", argv=show, ready=Exited(), privileged=privileged), soon()
        )
    said = client.read(["plain/stdout", "privileged/stdout"], soon()).texts
    assert [int(text.split()[1], 16) for text in said.values()] == [0, 1 << 12 | 1 << 13]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("sudo: a password is required\n", "sudoers-orch"),
        ("Sorry, user ada is not allowed to execute '/bin/x' as root on h1.\n", "sudoers-orch"),
        ("sudo: sorry, you must have a tty to run sudo\n", "!requiretty"),
        ("sudo: /usr/local/sbin/orch-agent: command not found\n", "install /usr/local/sbin/orch-agent on the node"),
        ("sh: 1: sudo: not found\n", "install sudo"),
        ("/usr/local/sbin/orch-agent: 23: exec: setpriv: not found\n", "util-linux"),
        ("bash: line 1: python3: command not found\n", "install Python 3.8"),
        ("Segmentation fault\n", None),
    ],
)
def test_why_an_agent_did_not_start(said, told):
    found = remedy(said)
    assert found is None if told is None else told in found
