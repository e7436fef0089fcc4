"""What tests of the local testbed share: a shell line on a node, goodput between two, and what lives of a sandbox."""

from __future__ import annotations

import json
from pathlib import Path

import paramiko

from orchestrator.deadline import Deadline
from orchestrator.testbed.netns_setup import as_paramiko


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


def iperf(on, testbed, src, dst, *, seconds=2, options=""):
    """Goodput in bit/s that the receiver counted, from one host to another."""
    address = testbed.topology.node(dst).address
    on(testbed, dst, f"iperf3 -s -1 -D -B {address}")
    said = on(testbed, src, f"iperf3 -c {dst} -t {seconds} -J {options}")
    return json.loads(said)["end"]["sum_received"]["bits_per_second"]
