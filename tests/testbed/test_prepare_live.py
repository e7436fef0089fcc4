"""`orch prepare` on hosts that are reached by SSH alone: what it says, what it does, and what a failure leaves."""

from __future__ import annotations

import os
import sys

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.testbed.local.netns import LocalSpec, NetnsTestbed
from tests.helpers.broken_python import BROKEN_PYTHON
from tests.helpers.orch_runs import orch, write
from workloads.common import environments

pytestmark = pytest.mark.testbed


@pytest.fixture
def inventory(tmp_path):
    """Hosts that idle, for which no lock of the machine is needed: nothing is measured."""
    names = ("h1", "h2")
    testbed = NetnsTestbed(LocalSpec(hosts=names, rates=dict.fromkeys(names, 100e6)), f"prepare-{os.getpid()}")
    try:
        config = testbed.ssh_proxy().folder / "ssh_config"
        testbed.open(tmp_path / "nodes", Deadline.after(120))
        yield {
            "link": "100mbit",
            "defaults": {"config": str(config), "python": sys.executable, "work": f"/run/orch/{tmp_path.name}"},
            "hosts": {
                name: {"ssh": name, "data": {"address": f"198.18.0.{i}/24", "device": "eth0"}}
                for i, name in enumerate(names, start=1)
            },
        }
    finally:
        testbed.close()


def test_it_says_what_it_would_do_and_a_failure_is_told_host_by_host(inventory, tmp_path):
    rack = write(tmp_path, inventory, "rack.yaml")
    broken = tmp_path / "python"
    broken.write_text(BROKEN_PYTHON)
    broken.chmod(0o755)
    folder = tmp_path / "frameworks"
    given = (rack, "--only", "torch", "--folder", folder, "--python", broken)
    status, out, err = orch("prepare", *given, "--check")
    assert status == 1, err
    assert all(f"{host}: would do: building {folder}/torch-" in out for host in ("h1", "h2"))
    assert not folder.exists()
    status, out, err = orch("prepare", *given)
    assert status == 1, err
    assert out.count("failed: prepare-frameworks ended with status 7") == 2
    assert out.count("no space left") == 2
    assert not list(folder.glob("*/.complete"))
    assert not (folder / "torch").exists()
    missing = {
        "name": "x",
        "testbed": {"inventory": rack.name},
        "measure": {"iterations": 1},
        "workload": {"horovod": {"model": "resnet50", "python": str(folder / "torch/bin/python")}},
    }
    status, out, _ = orch("doctor", write(tmp_path, missing))
    assert status == 1
    assert "remedy: orch prepare TESTBED --only torch" in out


@pytest.mark.frameworks
@pytest.mark.skipif(not environments.is_built("torch"), reason="nothing is built here: run `make frameworks`")
def test_where_all_is_there_nothing_is_done(inventory, tmp_path):
    rack = write(tmp_path, inventory, "rack.yaml")
    folder = environments.built("torch").parents[2]
    before = {path: path.lstat().st_mtime_ns for path in folder.glob("*/.complete")}
    assert before
    for options in (("--check",), ()):
        status, out, err = orch("prepare", rack, "--folder", folder, "--python", environments.built("torch"), *options)
        assert status == 0, out + err
        assert out.count(f"torch is ready: python: {folder}/torch/bin/python") == 2
    assert {path: path.lstat().st_mtime_ns for path in folder.glob("*/.complete")} == before
