"""The sampler and its sources run as they run on hosts, but without namespaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agents import cpu_source, nic_source
from orchestrator.parts.collectors import cpu, nic
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.samplers import AGENTS


def start(folder: Path, source: str, *arguments: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-I", "-S", "-B", str(AGENTS / "sampler.py"), source, *arguments]
    return subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def sampled(folder: Path, *argv: str, seconds: float = 0.1) -> tuple[int, str]:
    """Run until it has sampled for a while, end it; its status and what it complained about."""
    process = start(folder, *argv)
    assert process.stdout.readline() == "sampling\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def columns(folder: Path, module):
    output = LaunchOutput(
        folder=folder, node="h1", launch="x", job=None, rank=None, window=None, source=None, offset_ns=0
    )
    return module.read(output)["counters"]


def test_samples_keep_to_absolute_deadlines_and_end_with_a_last_one(tmp_path):
    status, said = sampled(tmp_path, "nic_source", "0.01", "0.1", "0", "/sys", "lo", seconds=0.25)
    assert (status, said) == (0, "")
    lines = (tmp_path / "nic.csv").read_text().splitlines()
    stamps = [int(line.split(",")[0]) - int(line.split(",")[1]) for line in lines[1:-1]]
    steps = [round((later - stamps[0]) / 1e7, 2) for later in stamps]
    assert len(stamps) >= 10
    on_time = sum(abs(step - round(step)) <= 0.1 for step in steps)
    assert on_time > 0.8 * len(steps), steps
    assert len({line.count(",") for line in lines}) == 1


def test_counters_equal_those_in_sysfs(tmp_path):
    sampled(tmp_path, "nic_source", "0.01", "0.1", "0", "/sys", "lo")
    last = (tmp_path / "nic.csv").read_text().splitlines()[-1].split(",")[2:]
    folder = Path("/sys/class/net/lo/statistics")
    now = [int((folder / name).read_text()) for name in nic_source.KERNEL_COUNTERS]
    for name, counted, there in zip(nic_source.KERNEL_COUNTERS, map(int, last), now, strict=True):
        assert 0 <= there - counted <= there * 0.5, name


def test_cpu_sampler(tmp_path):
    assert sampled(tmp_path, "cpu_source", "0.05", "/proc", "/sys", seconds=0.25) == (0, "")
    read = columns(tmp_path, cpu)
    assert {"cpu.busy_share", "memory.available_bytes", "swap.in_pages"} <= set(read["counter"])


def test_a_full_disk_is_said_and_is_no_success(tmp_path):
    (tmp_path / "cpu.csv").symlink_to("/dev/full")
    process = start(tmp_path, "cpu_source", "0.05", "/proc", "/sys")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == "cannot write cpu.csv: No space left on device\n"


def test_an_unknown_device_is_said_without_a_traceback(tmp_path):
    nic_arguments, qdisc_arguments = ("0.01", "0.1", "0", "/sys", "nosuch9"), ("0.01", "0", "nosuch9/0")
    for source, arguments in (("nic_source", nic_arguments), ("qdisc_source", qdisc_arguments)):
        process = start(tmp_path, source, *arguments)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "Traceback" not in said
        assert "nosuch9" in said


@pytest.fixture
def rdma_sysfs(tmp_path):
    """A sysfs as mlx5 fills it: two ports of one RDMA device, of which the second belongs to eth0."""
    root = tmp_path / "sys"
    (root / "class/net/eth0/device/infiniband/mlx5_0").mkdir(parents=True)
    for port, device in (("1", "eth7"), ("2", "eth0")):
        folder = root / "class/infiniband/mlx5_0/ports" / port
        for group, name, value in (
            ("gid_attrs/ndevs", "0", device),
            ("counters", "port_xmit_data", f"{port}000"),
            ("hw_counters", "np_cnp_sent", f"{port}5"),
            ("hw_counters", "lifespan", "10"),
        ):
            (folder / group).mkdir(parents=True, exist_ok=True)
            (folder / group / name).write_text(value + "\n")
    return root


def test_rdma_counters_are_those_of_the_port_behind_the_device(rdma_sysfs):
    files = nic_source.rdma_files("eth0", str(rdma_sysfs))
    counters = nic_source.RdmaCounters("eth0", 0.1, files)
    row = counters.rows()[0]
    assert dict(zip(counters.columns, row, strict=True)) == {
        "eth0|rdma.port_xmit_data": "2000",
        "eth0|rdma.np_cnp_sent": "25",
    }
    for fd in counters.files:
        os.close(fd)
    assert nic_source.rdma_files("eth1", str(rdma_sysfs)) == []


def test_throttle_counters_are_summed_over_processors(tmp_path):
    for number, count in ((0, 3), (1, 4)):
        folder = tmp_path / f"devices/system/cpu/cpu{number}/thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_count").write_text(f"{count}\n")
    throttling = cpu_source.Throttling(str(tmp_path))
    assert throttling.columns == ["|cpu.core_throttles"]
    assert throttling.rows() == [[7]]


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("rx3_packets", True),
        ("tx-0.bytes", True),
        ("ch12_poll", True),
        ("[0]: rx_ucast_packets", True),
        ("rx_queue_1_drops", True),
        ("rx_prio3_pause", False),
        ("rx_packets_phy", False),
        ("tx_queue_stopped", False),
    ],
)
def test_counters_of_single_queues_are_told_apart(name, one):
    assert nic_source.of_one_queue(name) is one


def test_the_first_line_of_proc_stat():
    stat = b"cpu  100 10 50 1000 20 5 6 7 90 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert cpu_source.ticks(stat) == (171, 7, 1198)


def test_lines_of_proc_are_found_by_their_whole_beginning():
    text = b"SwapFreeX: 1 kB\nMemFree: 5 kB\nSwapFree:   77 kB\n"
    wanted = {"SwapFree:": "", "MemAvailable:": ""}
    assert cpu_source.picked(text, wanted) == [77, ""]


def test_lo_has_no_driver_counters_and_the_rest_goes_on(tmp_path):
    sampled(tmp_path, "nic_source", "0.01", "0.1", "0", "/sys", "lo")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nic.csv"]
    assert set(columns(tmp_path, nic)["port"]) == {"", "lo"}
