"""Who listens where while real runs go on: on the data plane's address, or on loopback, but for what is known.

docs/architecture.md, "Who listens where", says the same in words.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import listeners
import pytest
from orch_runs import as_root, in_its_window, manifest_of, processes, small, write

from orchestrator.topology import KNOWN_PORTS
from workloads import environments

pytestmark = [pytest.mark.testbed]

HOSTS = ["h1", "h2", "h3"]
TRAFFIC = [
    {"iperf": {"from": "h1", "to": "h3", "load": "2gbit", "streams": 2}},
    {"websearch": {"from": "h2", "to": "h3", "load": "2gbit"}},
]
EMULATED = {"model": "mobilenet_v2", "compute_time": "40ms", "hosts": HOSTS}

# What listens on every address of a host, since its framework cannot be told otherwise: the program and its ports.
EVERYWHERE = {
    "ddp": {},
    "horovod": {},
    "horovod-mpi": {"mpirun": range(20091, 20099), "orted": range(20091, 20099), "python": range(20000, 20091)},
    "mirrored": {"python": range(29600, 29700)},
    "served": {"python": range(29600, 29700)},
}
WORKLOADS = {
    "ddp": {"ddp": EMULATED},
    "horovod": {"horovod": EMULATED},
    "horovod-mpi": {"horovod": {**EMULATED, "controller": "mpi"}},
    "mirrored": {"tensorflow": {**EMULATED, "strategy": "multi-worker-mirrored"}},
    "served": {"tensorflow": {**EMULATED, "strategy": "parameter-server", "hosts": ["h2", "h3"]}},
}
NEEDS = {"horovod": "torch", "horovod-mpi": "torch", "mirrored": "tensorflow", "served": "tensorflow"}


LISTEN = """
import socket
doors = [socket.create_server(("", 0)), socket.create_server(("127.0.0.1", 0))]
doors.append(socket.create_server(("::", 0), family=socket.AF_INET6))
print(*(door.getsockname()[1] for door in doors), flush=True)
input()
"""


def test_what_a_process_of_a_run_listens_on_is_found():
    tags = {"ORCH_RUN": f"test-{os.getpid()}", "ORCH_NODE": "h1", "ORCH_LAUNCH": "x"}
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN], env={**os.environ, **tags}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        v4, loopback, v6 = map(int, process.stdout.readline().split())
        found = listeners.of_run(tags["ORCH_RUN"])
        process.stdin.close()
    assert {(one.port, one.everywhere) for one in found} == {(v4, True), (loopback, False), (v6, True)}
    assert {one.address for one in found if not one.everywhere} == {"127.0.0.1"}
    assert {(one.node, one.launch, one.program) for one in found} == {("h1", "x", "python")}


def experiment(workload, **more):
    return small(workload=workload, traffic=TRAFFIC, collect=["nic"], measure={"warmup": 1, "at_most": "60s"}, **more)


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_listens_on_every_address_is_known(tmp_path, name):
    if name == "ddp":
        pytest.importorskip("torch")
    elif not environments.built(NEEDS[name]).exists():
        pytest.skip(f"no {name} here: run `make frameworks`")
    path = write(tmp_path, experiment(WORKLOADS[name]))
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=2) as (process, _, run):
        found = listeners.of_run(run)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    everywhere = {one for one in found if one.everywhere}
    known = EVERYWHERE[name]
    strange = {one for one in everywhere if one.port not in known.get(one.program, ())}
    assert not strange, "listens on every address"
    assert {one.program for one in everywhere} == set(known), "what no longer does is no longer to be told"
    assert all(any(first <= one.port <= last for first, last in KNOWN_PORTS) for one in everywhere)
    data = {f"h{i}": f"198.18.0.{i}" for i in (1, 2, 3)}
    assert all(one.address in ("127.0.0.1", data[one.node]) for one in found - everywhere)
    assert {one.launch for one in found} >= {"w1.iperf0.server", "w1.websearch1.sink"}


CALL = """
import socket
s = socket.socket()
s.bind(("198.18.0.250", 0))
s.settimeout(2)
try:
    s.connect(("198.18.0.1", 29500))
except socket.timeout:
    print("silence")
"""


def test_a_firewall_counts_whom_it_refused_and_is_gone_after_the_run(tmp_path):
    pytest.importorskip("torch")
    path = write(tmp_path, experiment(WORKLOADS["ddp"], conditions=[{"firewall": {}}]))
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=2) as (process, results, run):
        peer, *_ = processes(ORCH_RUN=run, ORCH_LAUNCH="training-rank1")
        there = ("nsenter", "-t", str(peer), "-n", *(() if as_root() else ("-U", "--preserve-credentials")))
        subprocess.run([*there, "ip", "addr", "add", "198.18.0.250/24", "dev", "eth0"], check=True)
        called = subprocess.run([*there, sys.executable, "-c", CALL], capture_output=True, text=True, check=True)
        assert called.stdout == "silence\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    manifest, folder = manifest_of(results)
    (note,) = (note for note in manifest["notes"] if "firewall" in note)
    assert note.startswith("h1: firewall of h1: ")
    assert note.endswith(" were refused")
    restored = [line for line in Path(folder / "events.jsonl").read_text().splitlines() if '"restored"' in line]
    assert sum("firewall" in line for line in restored) == 3
