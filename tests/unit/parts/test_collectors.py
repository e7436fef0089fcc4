from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.parts import samplers
from orchestrator.parts.collectors import cpu, nic, qdisc, tcp, tcpdump
from orchestrator.parts.launch import Line
from orchestrator.parts.rows import TABLES, LaunchOutput
from orchestrator.parts.shared import capture_files
from orchestrator.parts.topology import Link, Node, Rail, Topology

DATA = Path(__file__).parents[2] / "data"
PARTS = (cpu, nic, qdisc, tcp, tcpdump)
TOPOLOGY = Topology(
    kind="local",
    nodes=(
        Node(name="h1", rails=(Rail(address="10.0.0.1", device="eth0"),), python="/opt/py/bin/python3"),
        Node(name="h2", rails=(Rail(address="10.0.0.2", device="eth1"),)),
        Node(name="sw", kind="switch"),
    ),
    links=(
        Link(host="h1", device="eth0", switch="sw", switch_port="p1", rate=25e9),
        Link(host="h2", device="eth1", switch="sw", switch_port="p2", rate=25e9),
    ),
    scale=100,
)


def output(folder: Path, offset_ns: int = 0) -> LaunchOutput:
    return LaunchOutput(
        folder=folder, node="h1", launch="x", job=None, rank=None, window=None, source=None, offset_ns=offset_ns
    )


def series(columns, port: str, counter: str):
    chosen = (columns["port"] == port) & (columns["counter"] == counter)
    return columns["time_ns"][chosen], columns["value"][chosen]


def raw(name: str, column: str) -> tuple[list[int], list[int]]:
    lines = [line.split(",") for line in (DATA / name).read_text().splitlines()]
    place = lines[0].index(column)
    return [int(line[0]) for line in lines[1:]], [int(line[place]) for line in lines[1:]]


def test_nic_counters_come_back_whole_from_the_rows_that_were_kept():
    columns = nic.read(output(DATA / "nic", offset_ns=1_000_000_007))["counters"]
    for counter in nic_counters():
        times, values = raw("nic/nic.csv", f"ea|{counter}")
        kept_times, kept = series(columns, "ea", counter)
        again = np.interp(times, kept_times - 1_000_000_007, kept)
        assert np.array_equal(again, values), counter
    assert len(series(columns, "ea", "rx_errors")[0]) == 2
    assert series(columns, "ea", "tx_bytes")[1][-1] > 1e7


def nic_counters() -> list[str]:
    header = (DATA / "nic/nic.csv").read_text().splitlines()[0].split(",")
    return [name.removeprefix("ea|") for name in header[2:]]


def test_nic_reads_every_file_and_the_lateness_of_its_samples():
    columns = nic.read(output(DATA / "nic"))["counters"]
    assert series(columns, "ea", "ethtool.peer_ifindex")[1][0] == 2
    times, values = series(columns, "", "sampler.nic.late_s")
    assert len(times) > 50
    assert 0 <= values.min() <= values.max() < 1


@pytest.mark.parametrize("module", PARTS)
def test_rows_have_exactly_the_columns_of_their_table(module):
    for table, columns in module.read(output(DATA / module.NAME)).items():
        assert set(columns) == set(TABLES[table])
        assert len({len(values) for values in columns.values()}) == 1
        for name, kind in TABLES[table].items():
            if kind in ("int64", "float64"):
                there = [value for value in columns[name] if value is not None]  # the others are missing
                assert np.asarray(there, None if there else kind).dtype == kind, name


@pytest.mark.parametrize("module", PARTS)
def test_a_folder_with_nothing_in_it_gives_no_rows(module, tmp_path):
    assert module.read(output(tmp_path)) == {}


def test_a_line_cut_short_by_a_crash_is_left_out(tmp_path):
    whole = (DATA / "qdisc/qdisc.csv").read_bytes()
    (tmp_path / "qdisc.csv").write_bytes(whole[:-5])
    short = qdisc.read(output(tmp_path))["counters"]
    full = qdisc.read(output(DATA / "qdisc"))["counters"]
    assert short["time_ns"].max() < full["time_ns"].max()
    (tmp_path / "qdisc.csv").write_bytes(whole[:40])
    assert qdisc.read(output(tmp_path)) == {}


def test_a_value_that_could_not_be_read_gives_no_row(tmp_path):
    (tmp_path / "nic.csv").write_text("time_ns,late_ns,eth0|rx_bytes\n10,0,5\n20,0,\n30,0,9\n")
    times, values = series(nic.read(output(tmp_path))["counters"], "eth0", "rx_bytes")
    assert list(times) == [10, 30]
    assert list(values) == [5, 9]


def test_instants_keep_their_nanoseconds(tmp_path):
    stamp = 1_795_227_571_387_910_577
    (tmp_path / "nic.csv").write_text(f"time_ns,late_ns,eth0|rx_bytes\n{stamp},0,5\n")
    assert series(nic.read(output(tmp_path, offset_ns=-77))["counters"], "eth0", "rx_bytes")[0][0] == stamp - 77


def test_qdisc_saw_the_queue_fill_and_drop():
    columns = qdisc.read(output(DATA / "qdisc"))["counters"]
    backlog = series(columns, "ea", "qdisc.tbf.backlog_bytes")[1]
    assert backlog[0] == 0
    assert 30_000 < backlog.max() < 62_000  # the limit, and the packet whose turn it is
    assert series(columns, "ea", "qdisc.tbf.drops")[1][-1] > 0


def test_cpu_shares_and_memory():
    columns = cpu.read(output(DATA / "cpu"))["counters"]
    assert set(columns["port"]) == {""}
    for kind in ("busy", "steal"):
        values = series(columns, "", f"cpu.{kind}_share")[1]
        assert 0 <= values.min() <= values.max() <= 1
    available = series(columns, "", "memory.available_bytes")[1]
    assert available[0] == raw("cpu/cpu.csv", "|memory.available_kib")[1][0] * 1024
    assert not any(str(name).endswith(("ticks", "kib")) for name in columns["counter"])


def test_cpu_share_is_of_the_time_since_the_sample_before(tmp_path):
    header = "time_ns,late_ns,|cpu.busy_ticks,|cpu.steal_ticks,|cpu.total_ticks\n"
    (tmp_path / "cpu.csv").write_text(header + "1,0,100,0,1000\n2,0,105,1,1020\n3,0,105,1,1020\n4,0,125,1,1040\n")
    columns = cpu.read(output(tmp_path))["counters"]
    times, values = series(columns, "", "cpu.busy_share")
    assert list(times) == [2, 4]
    assert list(values) == [0.25, 1.0]


def test_sockets_of_the_streams_and_of_the_control_connection():
    columns = tcp.read(output(DATA / "tcp"))["sockets"]
    assert set(columns["src"]) == {"10.77.0.1"}
    assert set(columns["dst_port"]) == {15201}
    assert len(set(columns["src_port"])) == 5
    assert set(columns["congestion"]) == {"cubic"}
    assert 0 < np.median(columns["rtt_s"]) < 0.05
    assert columns["bytes_acked"].max() > 1_000_000


def test_samples_before_its_owner_was_looked_up_have_the_connections_owner(tmp_path):
    lines = ["time_ns,late_ns,src,src_port,dst,dst_port,congestion,rtt_us,process"]
    for at, port, owner in ((5, 1, ""), (5, 2, ""), (6, 1, "job.rank0"), (6, 2, ""), (7, 1, "")):
        lines.append(f"{at},0,10.0.0.1,{port},10.0.0.2,2,cubic,7,{owner}")
    (tmp_path / "tcp.csv").write_text("\n".join(lines) + "\n")
    columns = tcp.read(output(tmp_path))["sockets"]
    assert list(columns["process"]) == ["job.rank0", "", "job.rank0", "", ""]


def test_a_queue_is_told_as_time_of_the_link_at_the_wires_rate():
    argv = {launch.node: launch.argv for launch in qdisc.launches(qdisc.Config(), TOPOLOGY)}
    assert argv["h1"][-1:] == ("eth0/250000000",)
    assert argv["sw"][-2:] == ("p1/250000000", "p2/250000000")
    endless = replace(TOPOLOGY, links=(replace(TOPOLOGY.links[0], rate=float("inf")),))
    assert [one.argv[-1] for one in qdisc.launches(qdisc.Config(hosts=("h1", "h2")), endless)] == ["eth0/0", "eth1/0"]


def test_a_socket_of_which_an_old_kernel_tells_nothing_is_left_out(tmp_path):
    header = (DATA / "tcp/tcp.csv").read_text().splitlines()[0]
    (tmp_path / "tcp.csv").write_text(
        header + "\n5,0,10.0.0.1,1,10.0.0.2,2,cubic,,,,,\n6,0,10.0.0.1,1,10.0.0.2,2,,7,8,9,10,11\n"
    )
    columns = tcp.read(output(tmp_path))["sockets"]
    assert list(columns["time_ns"]) == [6]
    assert list(columns["retransmits"]) == [9]


def test_capture_counts_and_files_in_order(tmp_path):
    shutil.copy(DATA / "tcpdump/stderr", tmp_path / "stderr")
    for number in ("", "1", "2", "10"):
        (tmp_path / f"capture.pcap{number}").write_bytes(b"x" * 100)
    columns = tcpdump.read(output(tmp_path))["captures"]
    assert columns == {
        "port": ["ea"],
        "captured": [9561],
        "received": [9561],
        "dropped": [0],
        "files": [4],
        "bytes": [400],
        "ended_ns": [None],
    }
    names = [path.name for path in capture_files.in_order(tmp_path)]
    assert names == ["capture.pcap", "capture.pcap1", "capture.pcap2", "capture.pcap10"]


def test_a_tcpdump_that_was_killed_says_no_counts(tmp_path):
    said = (DATA / "tcpdump/stderr").read_text().splitlines()[0]
    (tmp_path / "stderr").write_text(said + "\n")
    assert tcpdump.read(output(tmp_path)) == {}


def test_by_default_hosts_are_captured_and_switch_ports_are_counted():
    assert [launch.name for launch in tcpdump.launches(tcpdump.Config(), TOPOLOGY)] == ["tcpdump.h1", "tcpdump.h2"]
    counted = {launch.node: launch.argv for launch in nic.launches(nic.Config(), TOPOLOGY)}
    assert counted["sw"][-2:] == ("p1", "p2")
    assert counted["h1"][0] == "/opt/py/bin/python3"
    assert {launch.node for launch in cpu.launches(cpu.Config(), TOPOLOGY)} == {"h1", "h2"}


def test_a_switch_is_captured_port_by_port():
    config = tcpdump.Config(hosts=("sw", "h1"), ports=("p2", "eth0"))
    launches = {launch.name: launch for launch in tcpdump.launches(config, TOPOLOGY)}
    assert set(launches) == {"tcpdump.h1", "tcpdump.sw.p2"}
    argv = launches["tcpdump.sw.p2"].argv
    assert argv[argv.index("-i") + 1] == "p2"


def test_the_launch_of_tcpdump():
    config = tcpdump.Config.model_validate(
        {"snaplen": 128, "rotate": "500mb", "buffer": "16mib", "filter": "tcp or udp", "required": True}
    )
    launch = tcpdump.launches(config, TOPOLOGY)[0]
    argv = " ".join(launch.argv)
    assert argv == (
        "tcpdump -Z root -i eth0 -p -n -s 128 -B 16384 --time-stamp-precision=nano -w capture.pcap -C 500 -- tcp or udp"
    )
    assert launch.argv[-1] == "tcp or udp"
    assert launch.privileged
    assert launch.required
    assert launch.stop.signals[0][0] == signal.SIGINT
    assert launch.stop.drain_s >= 1.2
    assert launch.stop.ok == (0,)


def test_a_budget_and_files_by_time_in_the_launch_of_tcpdump():
    config = tcpdump.Config.model_validate({"rotate_every": "10min", "budget": "2gb"})
    launch = tcpdump.launches(config, TOPOLOGY)[0]
    argv = " ".join(launch.argv)
    assert argv.startswith("/opt/py/bin/python3 -I -S -B capture_budget.py 2000000000 tcpdump -Z root -i eth0 ")
    assert argv.endswith("-w capture.pcap%s -G 600")
    assert list(launch.files) == ["capture_budget.py"]


@pytest.fixture
def filling(tmp_path):
    """A capture that grows under a budget of a megabyte, beside another one of this host."""
    (tmp_path / "tcpdump.h1.eth1").mkdir()
    (tmp_path / "tcpdump.h1.eth1/capture.pcap").write_bytes(bytes(600_000))
    mine = tmp_path / "tcpdump.h1.eth0"
    mine.mkdir()
    script = "trap 'exit 0' INT; while :; do head -c 100000 /dev/zero >> capture.pcap; sleep 0.01; done"
    argv = [sys.executable, "-I", "-S", "-B", str(tcpdump.BUDGET), "1000000", "sh", "-c", script]
    process = subprocess.Popen(argv, cwd=mine, stderr=subprocess.PIPE, text=True, start_new_session=True)
    yield process, mine
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_captures_that_fill_their_budget_end_and_the_rest_goes_on(filling, tmp_path):
    process, mine = filling
    line = process.stderr.readline()
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    assert (mine / "capture.pcap").stat().st_size > 300_000
    (tmp_path / "stderr").write_text((DATA / "tcpdump/stderr").read_text() + line)
    columns = tcpdump.read(replace(output(tmp_path), offset_ns=5))["captures"]
    assert columns["ended_ns"] == [int(line.split()[3].rstrip(":")) + 5 - 1_200_000_000]


def test_a_capture_dies_with_what_watches_its_budget(filling):
    process, mine = filling
    soon = Deadline.after(10)
    soon.poll((mine / "capture.pcap").exists, every_s=0.02, waiting_for="the capture")
    process.kill()
    process.wait(10)
    alone = [pid for pid in Path("/proc").glob("[0-9]*") if _cwd(pid) == mine]
    soon.poll(lambda: not any(_cwd(pid) == mine for pid in alone), every_s=0.02, waiting_for="the capture's end")


def test_a_capture_that_the_kernel_would_spare_ends_with_the_agent(tmp_path):
    """As one with capabilities by its file, of which the kernel forgets that it is to die with its parent."""
    capture = "import ctypes, time; ctypes.CDLL(None).prctl(1, 0, 0, 0, 0); print('up', flush=True); time.sleep(600)"
    agent = (
        "import ctypes, signal, subprocess, sys, time\n"
        "subprocess.Popen(sys.argv[1:], preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0))\n"
        "time.sleep(600)\n"
    )
    watched = [sys.executable, "-I", "-S", "-B", str(tcpdump.BUDGET), "1000000", sys.executable, "-c", capture]
    mine = tmp_path / "tcpdump.h1"
    mine.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", agent, *watched], cwd=mine, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout.readline() == "up\n"
        process.kill()
        process.wait(10)
        Deadline.after(10).poll(
            lambda: not any(_cwd(pid) == mine for pid in Path("/proc").glob("[0-9]*")),
            every_s=0.02,
            waiting_for="the capture's end",
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


@pytest.mark.skipif(not Path("/usr/sbin/chroot").exists(), reason="no program here lies in /usr/sbin alone")
def test_a_capture_under_a_budget_is_found_where_an_ordinary_user_s_path_does_not_lead(tmp_path):
    argv = [sys.executable, "-I", "-S", "-B", str(tcpdump.BUDGET), "1000000", "chroot", "--version"]
    done = subprocess.run(
        argv, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def _cwd(process):
    try:
        return (process / "cwd").readlink()
    except OSError:  # it ended
        return None


def test_a_capture_within_its_budget_ends_when_it_is_asked_to(tmp_path):
    argv = [
        sys.executable,
        "-I",
        "-S",
        "-B",
        str(tcpdump.BUDGET),
        "1000000",
        "sh",
        "-c",
        "trap 'exit 3' INT; echo up; while :; do sleep 0.01; done",
    ]
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as of what a shell starts in the background
    process = subprocess.Popen(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    signal.signal(signal.SIGINT, ignored)
    try:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGINT)
        assert (process.communicate(timeout=10)[1], process.returncode) == ("", 3)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("rate", "scale", "snaplen", "kib"),
    [
        (25e9, 100, 96, 15_238),  # 250 Mbit/s: 40,637 full frames a second both ways, 192 bytes each, for two seconds
        (25e9, 1, 96, 65_536),
        (float("inf"), 1, 96, 65_536),
        (1e6, 1, 96, 4_096),
        (25e9, 100, 1500, 65_536),
    ],
)
def test_the_ring_of_tcpdump_follows_the_link(rate, scale, snaplen, kib):
    links = tuple(replace(link, rate=rate) for link in TOPOLOGY.links)
    topology = replace(TOPOLOGY, links=links, scale=scale)
    config = tcpdump.Config(hosts=("h2", "sw"), snaplen=snaplen)
    for launch in tcpdump.launches(config, topology):
        assert launch.argv[launch.argv.index("-B") + 1] == str(kib), launch.name


def test_samplers_are_pushed_with_their_source():
    for module in (nic, qdisc, tcp, cpu):
        launch = module.launches(module.Config(), TOPOLOGY)[0]
        assert launch.argv[1:6] == ("-I", "-S", "-B", "sampler.py", f"{module.NAME}_source")
        beside = {"run_processes.py"} if module is tcp else set()
        assert set(launch.files) == {"sampler.py", f"{module.NAME}_source.py"} | beside
        assert all(isinstance(path, Path) and path.is_file() for path in launch.files.values())
        assert launch.ready == Line(pattern="^sampling$")
        assert not launch.required
        assert not launch.privileged


def test_what_they_need():
    needed = {(need.node, need.kind, need.what) for need in tcpdump.requirements(tcpdump.Config(), TOPOLOGY)}
    assert needed == {
        (node, kind, what)
        for node, device in (("h1", "eth0"), ("h2", "eth1"))
        for kind, what in (("program", "tcpdump"), ("privilege", "CAP_NET_RAW of tcpdump"), ("device", device))
    }
    assert {need.what for need in qdisc.requirements(qdisc.Config(), TOPOLOGY)} == {"eth0", "eth1", "p1", "p2"}
    assert cpu.requirements(cpu.Config(), TOPOLOGY) == tcp.requirements(tcp.Config(), TOPOLOGY) == []


@pytest.mark.parametrize("module", PARTS)
def test_unknown_and_repeated_hosts_are_named(module):
    assert module.problems(module.Config(), TOPOLOGY) == []
    found = module.problems(module.Config(hosts=("h1", "h9", "h1")), TOPOLOGY)
    assert [problem.at for problem in found] == [("hosts", 1), ("hosts", 2)]
    assert "'h9'" in found[0].message
    assert "h1, h2" in found[0].accepted
    assert [problem.at for problem in module.problems(module.Config(hosts=()), TOPOLOGY)] == [("hosts",)]


@pytest.mark.parametrize("module", [cpu, tcp])
def test_a_switch_has_no_processor_to_watch(module):
    assert module.problems(module.Config(hosts=("sw",)), TOPOLOGY)


@pytest.mark.parametrize(
    ("module", "options", "at"),
    [
        (nic, {"every": "10us"}, ("every",)),
        (nic, {"slow_every": "1min"}, ("slow_every",)),
        (tcpdump, {"snaplen": 60}, ("snaplen",)),
        (tcpdump, {"rotate": "1500kb"}, ("rotate",)),
        (tcpdump, {"rotate_every": "1500ms"}, ("rotate_every",)),
        (tcpdump, {"rotate_every": "10min", "rotate": "1gb"}, ("rotate_every",)),
        (tcpdump, {"budget": "100kb"}, ("budget",)),
        (tcpdump, {"buffer": "10kb"}, ("buffer",)),
        (tcpdump, {"ports": ["eth0", "p1"]}, ("ports", 1)),
    ],
)
def test_options_out_of_bounds(module, options, at):
    assert [problem.at for problem in module.problems(module.Config.model_validate(options), TOPOLOGY)] == [at]


def test_turning_points():
    kept = samplers.turning_points(np.array([0, 0, 0, 5, 5, 5, 6, 7, 7.0]))
    assert list(kept) == [True, False, True, True, False, True, True, True, True]
    assert list(samplers.turning_points(np.array([1.0]))) == [True]
