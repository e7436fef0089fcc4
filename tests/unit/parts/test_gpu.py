from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from orchestrator.parts.collectors import gpu
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.samplers import AGENTS
from orchestrator.parts.topology import Link, Node, Rail, Topology


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for a library that stands for NVIDIA's")
    made = tmp_path_factory.mktemp("nvml") / "libnvml-stub.so"
    source = Path(__file__).parents[3] / "tests/helpers/nvml_stub.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, source], check=True)
    return made


def sample(folder, library):
    argv = [sys.executable, "-I", "-S", "-B", str(AGENTS / "sampler.py"), "gpu_source", "0.02", str(library)]
    return subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_every_gpu_tells_what_it_can_in_si_units(library, tmp_path):
    process = sample(tmp_path, library)
    assert process.stdout.readline() == "sampling\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, "")
    output = LaunchOutput(
        folder=tmp_path, node="h1", launch="x", job=None, rank=None, window=None, source=None, offset_ns=0
    )
    rows = gpu.read(output)["counters"]
    first = {
        (port, name): value for port, name, value in zip(rows["port"], rows["counter"], rows["value"], strict=True)
    }
    assert first["gpu0", "gpu.busy_share"] == pytest.approx(0.40)
    assert first["gpu1", "gpu.busy_share"] == pytest.approx(0.41)
    assert first["gpu0", "gpu.sm_clock_hz"] == 1980e6
    assert first["gpu0", "gpu.memory_clock_hz"] == 2619e6
    assert first["gpu0", "gpu.power_w"] == pytest.approx(350.5)
    assert first["gpu0", "gpu.memory_used_bytes"] == 1 << 29  # without what the driver reserves
    assert first["gpu1", "gpu.memory_used_bytes"] == (1 << 30) + 1
    assert first["gpu0", "gpu.nvlink_tx_bytes"] > 5e9 * 1024
    assert {name for port, name in first if port == "gpu0"} - {name for port, name in first if port == "gpu1"} == {
        "gpu.power_w",
        "gpu.nvlink_tx_bytes",
        "gpu.nvlink_rx_bytes",
    }
    pcie = rows["value"][(rows["port"] == "gpu0") & (rows["counter"] == "gpu.pcie_tx_bytes")]
    assert (np.diff(pcie) > 0).all()


def test_without_the_library_it_says_so(tmp_path):
    process = sample(tmp_path, "libno-such-nvml.so.1")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "libno-such-nvml.so.1" in said
    assert "Traceback" not in said


def test_a_counter_that_rolls_over_goes_on_growing():
    rolled = gpu.unrolled(np.array([4294967290.0, 4294967295.0, 4.0, 10.0, 2.0]))
    assert np.diff(rolled).tolist() == [5.0, 5.0, 6.0, 2.0**32 - 8]
    assert gpu.unrolled(np.array([])).tolist() == []


def topology(gpus):
    nodes = tuple(
        Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device="eth0"),), gpus=n) for i, n in enumerate(gpus, 1)
    )
    links = tuple(Link(host=node.name, device="eth0", rate=1e9) for node in nodes)
    return Topology(kind="inventory", nodes=nodes, links=links)


def test_hosts_with_gpus_are_watched_unless_others_are_named():
    some = topology((0, 8, 8))
    assert [launch.node for launch in gpu.launches(gpu.Config(), some)] == ["h2", "h3"]
    assert [launch.node for launch in gpu.launches(gpu.Config(hosts=("h1",)), some)] == ["h1"]
    assert gpu.problems(gpu.Config(), some) == []
    (problem,) = gpu.problems(gpu.Config(), topology((0, 0)))
    assert "gpus: N" in problem.accepted
