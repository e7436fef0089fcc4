from __future__ import annotations

import itertools
import os
from pathlib import Path

import paramiko
import pytest

from orchestrator.deadline import Deadline
from orchestrator.testbed.netns import LocalSpec, NetnsTestbed, requirements_problems
from orchestrator.testbed.netns_setup import as_paramiko

_NUMBERS = itertools.count()


def run_on(testbed, node, command, timeout_s=30.0):
    """Run a shell line on a node by SSH; its output, and an assertion that it succeeded."""
    transport = paramiko.Transport(testbed.socket_to(node, Deadline.after(5)))
    try:
        transport.start_client(timeout=5)
        transport.auth_publickey("root", as_paramiko(testbed.keys.user_private))
        session = transport.open_session()
        session.settimeout(timeout_s)
        session.set_combine_stderr(True)
        session.exec_command(command)
        said = session.makefile().read().decode()
        status = session.recv_exit_status()
    finally:
        transport.close()
    assert status == 0, f"{node}: {command}: {status}\n{said}"
    return said


def processes_of(run_id):
    """PIDs, as seen from here, of everything that belongs to a sandbox by its environment or its parents' one."""
    found, parents = set(), {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if f"ORCH_LOCAL_TESTBED={run_id}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except OSError:
            continue
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


@pytest.fixture
def on():
    return run_on


@pytest.fixture
def up(tmp_path):
    """Bring up a local testbed: `up(4, rate=100e6)`; all are closed at the end."""
    if problems := requirements_problems():
        pytest.skip("; ".join(what for what, _ in problems))
    opened = []

    def bring_up(hosts, *, rate=100e6, **more):
        names = tuple(f"h{i}" for i in range(1, hosts + 1)) if isinstance(hosts, int) else tuple(hosts)
        spec = LocalSpec(hosts=names, rates=dict.fromkeys(names, rate), **more)
        number = next(_NUMBERS)
        testbed = NetnsTestbed(spec, f"test-{os.getpid()}-{number}")
        opened.append(testbed)
        testbed.open(tmp_path / f"run{number}", Deadline.after(30))
        return testbed

    yield bring_up
    for testbed in opened:
        testbed.close()
        assert not processes_of(testbed.run_id)
