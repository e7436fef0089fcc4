"""`orch prepare` on hosts that are reached by SSH alone: what it says, what it does, and what a failure leaves."""

from __future__ import annotations

import re
import signal
import sys

import pytest
from orch_runs import orch, start, wait_for, write

from workloads import environments

pytestmark = pytest.mark.testbed

# Tells its version, as the playbook asks first, and fails at whatever comes next: the virtual environment.
BROKEN_PYTHON = """#!/bin/sh
[ "$1" = -VV ] && echo "Python 3.11.0 (broken)" && exit 0
echo "no space left" >&2
exit 7
"""


@pytest.fixture
def inventory(tmp_path):
    holding = start("testbed", "--hosts", 3, "--link", "250mbit")
    config = None
    try:
        while config is None:
            line = holding.stdout.readline()
            assert line, holding.stderr.read()
            if match := re.search(r"ssh -F (\S+) h1", line):
                config = match[1]
        wait_for(lambda: holding.stdout.readline().startswith("up"), 20, "the testbed")
        work = f"/run/orch/{tmp_path.name}"
        hosts = {
            f"h{i}": {"ssh": f"h{i}", "data": {"address": f"198.18.0.{i}/24", "device": "eth0"}} for i in (1, 2, 3)
        }
        yield {
            "link": "250mbit",
            "defaults": {"config": config, "python": sys.executable, "work": work},
            "hosts": hosts,
        }
    finally:
        holding.send_signal(signal.SIGINT)
        holding.communicate(timeout=20)


def test_it_says_what_it_would_do_and_a_failure_is_told_host_by_host(inventory, tmp_path):
    rack = write(tmp_path, inventory, "rack.yaml")
    broken = tmp_path / "python"
    broken.write_text(BROKEN_PYTHON)
    broken.chmod(0o755)
    folder = tmp_path / "frameworks"
    given = (rack, "--only", "torch", "--folder", folder, "--python", broken)
    status, out, err = orch("prepare", *given, "--check")
    assert status == 1, err
    assert all(f"{host}: would do: building {folder}/torch-" in out for host in ("h1", "h2", "h3"))
    assert not folder.exists()
    status, out, err = orch("prepare", *given)
    assert status == 1, err
    assert out.count("failed: prepare-frameworks ended with status 7") == 3
    assert out.count("no space left") == 3
    assert not list(folder.glob("*/.complete"))
    assert not (folder / "torch").exists()
    missing = {
        "name": "x", "testbed": {"inventory": rack.name}, "measure": {"iterations": 1},
        "workload": {"horovod": {"model": "resnet50", "python": str(folder / "torch/bin/python")}},
    }  # fmt: skip
    status, out, _ = orch("doctor", write(tmp_path, missing))
    assert status == 1
    assert "remedy: orch prepare TESTBED --only torch" in out


@pytest.mark.skipif(not environments.built("torch").exists(), reason="nothing is built here: run `make frameworks`")
def test_where_all_is_there_nothing_is_done(inventory, tmp_path):
    rack = write(tmp_path, inventory, "rack.yaml")
    folder = environments.built("torch").parents[2]
    before = {path: path.lstat().st_mtime_ns for path in folder.glob("*/.complete")}
    assert before
    for options in (("--check",), ()):
        status, out, err = orch("prepare", rack, "--only", "torch", "--folder", folder, *options)
        assert status == 0, out + err
        assert out.count(f"torch is ready: python: {folder}/torch/bin/python") == 3
    assert {path: path.lstat().st_mtime_ns for path in folder.glob("*/.complete")} == before
