"""Who listens where while real runs go on: on the data plane's address, or on loopback, but for what is known.

docs/security.md, "What listens, and for whom", says the same in words. The frameworks' own runs are looked at where a
rank of theirs is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import listeners
from tests.helpers.orch_runs import as_root, in_its_window, manifest_of, processes, small, write
from tests.helpers.processes import ended
from tests.helpers.skipping import needs_torch

pytestmark = [pytest.mark.testbed, pytest.mark.rights]

TRAFFIC = [
    {"iperf": {"from": "h1", "to": "h3", "load": "2gbit", "streams": 2}},
    {"websearch": {"from": "h2", "to": "h3", "load": "2gbit"}},
]
LISTEN = """
import socket
doors = [socket.create_server(("", 0)), socket.create_server(("127.0.0.1", 0))]
doors.append(socket.create_server(("::", 0), family=socket.AF_INET6))
print(*(door.getsockname()[1] for door in doors), flush=True)
input()
"""


def test_what_a_process_of_a_run_listens_on_is_found():
    tags = {"ORCH_RUN": f"test-{os.getpid()}", "ORCH_NODE": "h1", "ORCH_LAUNCH": "x"}
    with ended(
        [sys.executable, "-c", LISTEN], env={**os.environ, **tags}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        v4, loopback, v6 = map(int, process.stdout.readline().split())
        found = listeners.of_run(tags["ORCH_RUN"])
        process.stdin.close()
    assert {(one.port, one.everywhere) for one in found} == {(v4, True), (loopback, False), (v6, True)}
    assert {one.address for one in found if not one.everywhere} == {"127.0.0.1"}
    assert {(one.node, one.launch, one.program) for one in found} == {("h1", "x", "python")}


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


@needs_torch
def test_a_run_listens_where_it_is_told_and_its_firewall_counts_whom_it_refused(tmp_path):
    experiment = small(
        workload={"ddp": {"model": "mobilenet_v2", "compute_time": "40ms", "hosts": ["h1", "h2", "h3"]}},
        conditions=[{"firewall": {}}],
        traffic=TRAFFIC,
        collect=["nic"],
        measure={"warmup": 1, "at_most": "60s"},
    )
    path = write(tmp_path, experiment)
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=2) as (process, results, run):
        listeners.as_known("ddp", run)
        assert {one.launch for one in listeners.of_run(run)} >= {"w1.iperf0.server", "w1.websearch1.sink"}
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
