"""KungFu's launch line and our program for it, against a recording stub: none of it shows that KungFu works."""

from __future__ import annotations

import json
import sys

import pytest

from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from tests.helpers.rank_processes import running
from workloads import kungfu
from workloads.common.placement import ranks

pytestmark = pytest.mark.testbed

LAUNCHER = """#!/bin/sh
echo "this is a recording stub, not KungFu"
printf '%s\\n' "$@" > argv
while [ "$1" != -strategy ]; do shift; done
shift 2
exec "$@"
"""
MODULES = {
    "__init__.py": "",
    "python.py": "def current_rank(): return 0\ndef current_cluster_size(): return 2\n",
    "torch/__init__.py": "",
    "torch/ops.py": "def inplace_all_reduce_op(gradient): assert gradient is not None\n",
}


def test_a_worker_is_launched_as_kungfu_takes_it_and_its_iterations_are_logged(tmp_path):
    stub = tmp_path / "kungfu-run"
    stub.write_text(LAUNCHER)
    stub.chmod(0o755)
    for name, text in MODULES.items():
        path = tmp_path / "modules/kungfu" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    recorded = tmp_path / "recorded.txt"
    recorded.write_text("".join(f"{0.02 + 0.001 * (k % 3)}\n" for k in range(30)))
    nodes = tuple(
        Node(name=f"h{i}", rails=(Rail(address=f"127.0.0.{i}", prefix=8, device="lo"),), python=sys.executable)
        for i in (1, 2)
    )
    where = Topology(kind="local", nodes=nodes, links=tuple(Link(host=n.name, device="lo", rate=1e9) for n in nodes))
    config = kungfu.Config.model_validate(
        {
            "model": "mobilenet_v2",
            "compute_time": "20ms",
            "strategy": "RING",
            "batch": 4,
            "launcher": str(stub),
            "jitter": str(recorded),
            "env": {"PYTHONPATH": str(tmp_path / "modules")},
        }
    )
    assert kungfu.problems(config, where) == []
    job = Job(name="job0", index=0, ranks=ranks(None, where))
    launches = kungfu.launches(config, job, where, 7)
    with running(launches, tmp_path) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(3)
        assert started.end() == [0, 0]
        rows = started.read(kungfu, 0)
    assert (started.folders[0] / "argv").read_text().splitlines()[:10] == [
        "-np",
        "2",
        "-H",
        "127.0.0.1:1,127.0.0.2:1",
        "-nic",
        "lo",
        "-strategy",
        "RING",
        launches[0].argv[0],
        "-u",
    ]
    assert "a recording stub" in (started.folders[0] / "stdout").read_text()
    assert list(rows["samples"][:3]) == [4] * 3
    assert all(value >= 0 for value in rows["absorbed_s"][:3])
    assert all(0.9 < value < 1.1 for value in rows["jitter"][:3])
    assert json.loads(started.lines(0)[0])["forward_s"] > 0
