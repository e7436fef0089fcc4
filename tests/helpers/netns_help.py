"""What tests of the local testbed share: a shell line on a node, goodput between two, and what lives of a sandbox."""

from __future__ import annotations

import json
from pathlib import Path

import paramiko

from orchestrator.core.deadline import Deadline
from orchestrator.testbed.local.netns_setup import as_paramiko

TRIES = 4


def run_on(testbed, node, command, timeout_s=120.0):
    """Run a shell line on a node by SSH; its output, and an assertion that it succeeded."""
    transport = paramiko.Transport(testbed.socket_to(node, Deadline.after(60)))
    try:
        transport.start_client(timeout=60)
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


def carries(on, testbed, src, dst, *, line_bps):
    """Assert that TCP fills a link of this layer-2 rate and never passes it.

    A busy machine can only slow a transfer down, so one of a few has to come close and none may be faster.
    """
    payload_bps = line_bps / testbed.topology.wire_per_payload
    tried = []
    for _ in range(TRIES):
        tried.append(goodput(on, testbed, src, dst))
        assert tried[-1] < payload_bps * 1.05
        if tried[-1] > payload_bps * 0.95:
            return
    raise AssertionError(f"{payload_bps / 1e6:.1f} Mbit/s expected, {[round(rate / 1e6, 1) for rate in tried]} found")


def serve_once(on, testbed, node):
    """An iperf3 server for one connection, which listens; the one before it has ended."""
    listens = "ss -Htln sport = :5201 | grep -q ."
    free = f"for i in $(seq 999); do {listens} || break; sleep 0.05; done"
    ready = f"for i in $(seq 999); do {listens} && exit; sleep 0.05; done; exit 1"
    on(testbed, node, f"{free}; iperf3 -s -1 -D -B {testbed.topology.node(node).address}; {ready}")


def goodput(on, testbed, src, dst):
    """Bits a second of payload that the receiver of a TCP connection of two seconds counted."""
    serve_once(on, testbed, dst)
    return json.loads(on(testbed, src, f"iperf3 -c {dst} -t 2 -J"))["end"]["sum_received"]["bits_per_second"]
