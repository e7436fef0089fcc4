"""Counters as odd drivers, kernels and crashes leave them: a collector loses a column or a cell, never a host.

A sample is a file of tests/data/odd, of this test's own making, and a new one is dropped into that folder. It says

    seen        where such a thing was met
    collector   which one reads it
    ethtool     samples of a driver's counters, each {names, values} or {error: ENODEV}; or
    sysfs       a tree of files, with `later` for what they say in the second sample and `errors` of reading; or
    files       the files that came home from a host
    counters    the values that have to be read, by "PORT|COUNTER"; `absent` are those that must not be
    rows        how many rows each further table has
    notes       patterns of what the run has to tell; without any it has to tell nothing
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import struct
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
import yaml

from orchestrator.agents import cpu_source, gpu_source, nic_source, sampler, snmp_source
from orchestrator.analysis import reduction
from orchestrator.analysis.launch_outputs import rows_of
from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.windows import device_counters
from orchestrator.core.errors import StoreError
from orchestrator.parts.collectors import nic
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import Node, Rail, Topology
from orchestrator.store.manifests.manifest import load
from orchestrator.store.tabular import tables
from orchestrator.validity.gates import congestion
from tests.helpers import manifests
from tests.helpers.gate_windows import judged
from tests.helpers.sealed_run import make_run

SAMPLES = sorted((Path(__file__).parents[2] / "data/odd").glob("*.yaml"))
KEYS = {"seen", "collector", "ethtool", "sysfs", "files", "counters", "absent", "rows", "notes"}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_what_is_odd_costs_no_more_than_itself(path, tmp_path, monkeypatch):
    sample = yaml.safe_load(path.read_text())
    assert set(sample) <= KEYS
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    with (home / "stderr").open("w") as said, contextlib.redirect_stderr(said):
        if "ethtool" in sample:
            by_ethtool(sample["ethtool"], monkeypatch)
        elif "sysfs" in sample:
            by_sysfs(sample["sysfs"], tmp_path / "sys", monkeypatch)
    for name, text in sample.get("files", {}).items():
        (home / name).write_bytes(text.encode("latin-1"))
    output = LaunchOutput(
        folder=home, node="h1", launch="x.h1", job=None, rank=None, window=None, source=None, offset_ns=0
    )
    found = rows_of(f"collector.{sample['collector']}", output)
    for table, columns in found.items():
        tables.batch(table, columns, run="r", node="h1", launch="x.h1")
    read = {}
    counters = found.get("counters", {"port": (), "counter": (), "value": ()})
    for port, counter, value in zip(counters["port"], counters["counter"], counters["value"], strict=True):
        read.setdefault(f"{port}|{counter}", []).append(float(value))
    for name, values in sample.get("counters", {}).items():
        assert read.get(name) == values, (name, read)
    assert not set(sample.get("absent", ())) & set(read), read
    for table, count in sample.get("rows", {}).items():
        assert len(found[table]["time_ns"]) == count
    for pattern in sample.get("notes", ()):
        assert any(re.search(pattern, note) for note in output.unread.sentences()), (pattern, output.unread.sentences())
    assert bool(output.unread.sentences()) == bool(sample.get("notes")), output.unread.sentences()


def by_ethtool(samples, monkeypatch):
    """Sample a driver that says this, one after the other."""
    now = [samples[0]]

    def ioctl(_, buffer):
        if "error" in now[0]:
            code = getattr(errno, now[0]["error"])
            raise OSError(code, os.strerror(code))
        names = [name.encode("latin-1")[:31].ljust(32, b"\0") for name in now[0]["names"]]
        command = int.from_bytes(buffer.tobytes()[:4], "little")
        count = len(names).to_bytes(4, "little")
        head = command.to_bytes(4, "little")
        if command == nic_source.ETHTOOL_GSSET_INFO:
            said = head + bytes(4) + (1 << nic_source.ETH_SS_STATS).to_bytes(8, "little") + count
        elif command == nic_source.ETHTOOL_GSTRINGS:
            said = head + nic_source.ETH_SS_STATS.to_bytes(4, "little") + count + b"".join(names)
        else:
            said = head + count + b"".join(value.to_bytes(8, "little") for value in now[0]["values"])
        size = buffer.itemsize
        assert len(said) <= size * len(buffer), "the kernel would write beyond it"
        for place in range(-(-len(said) // size)):
            buffer[place] = int.from_bytes(said[place * size : (place + 1) * size], "little")

    monkeypatch.setattr(nic_source.DriverCounters, "ioctl", ioctl)
    recorder = sampler.Recorder(nic_source.DriverCounters("eth0", 0.1, False), 0.0)
    for number, one in enumerate(samples):
        now[0] = one
        assert sampler.sample([recorder], 0.1 * (number + 1)) == []
    recorder.flush()


def by_sysfs(tree, root, monkeypatch):
    """Sample the RDMA counters of eth0 twice."""
    (root / "class/net/eth0/device/infiniband/rdma0").mkdir(parents=True)

    def write(files):
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    write(tree["files"])
    errors = {str(root / name): getattr(errno, code) for name, code in tree.get("errors", {}).items()}
    pread = os.pread

    def failing(fd, size, offset):
        code = errors.get(str(Path(f"/proc/self/fd/{fd}").readlink()))
        if code:
            raise OSError(code, os.strerror(code))
        return pread(fd, size, offset)

    monkeypatch.setattr(nic_source.os, "pread", failing)
    stream = nic_source.RdmaCounters("eth0", 0.1, nic_source.rdma_files("eth0", str(root)))
    recorder = sampler.Recorder(stream, 0.0)
    sampler.sample([recorder], 0.1)
    write(tree.get("later", {}))
    assert sampler.sample([recorder], 0.2) == []
    recorder.flush()
    for fd in stream.files:
        os.close(fd)


NOTHING = "its beginning is lost\n1,2,3\n"
ODD = "time_ns,late_ns,eth0|rx_bytes,eth0|rx_bytes\n1000,0,N/A,1\n"


@pytest.mark.parametrize(
    ("collector", "files", "told"),
    [
        ("nic", {"nic.csv": NOTHING}, "nic.h1 on h1 brought nothing: it wrote nothing that can be read"),
        ("gpu", {}, "gpu.h1 on h1 brought nothing: it wrote nothing that can be read"),
        ("tcp", None, "tcp.h1 on h1 brought nothing: nothing of it came home"),
        ("nic", {"nic.csv": ODD}, None),
        ("processor", None, None),  # every run has it, and has a gate of its own
    ],
)
def test_a_collector_that_was_asked_for_and_brings_nothing_makes_windows_invalid(tmp_path, collector, files, told):
    name = f"{collector}.h1"
    run = make_run(tmp_path)
    manifest = json.loads((run / "manifest.json").read_text())
    launch = manifests.launch(name, "h1", part=f"collector.{collector}", role="collector", required=False)
    (run / "manifest.json").write_text(json.dumps({**manifest, "launches": [launch]}))
    if files is not None:
        (run / "hosts/h1" / name).mkdir()
    for file, text in (files or {}).items():
        (run / "hosts/h1" / name / file).write_text(text)
    made = reduction.reduce(run)
    (window,) = made.windows
    assert [why for why in window.reasons if "brought nothing" in why] == ([told] if told else [])
    assert window.valid is False or told is None
    if files and files.get("nic.csv") == ODD:
        assert f"h1: {name}: nic.csv: 1 of 1 cell is no number in eth0|rx_bytes, such as 'N/A'" in made.notes


def test_a_reader_that_fails_in_any_way_costs_its_own_launch_alone(tmp_path, monkeypatch):
    def read(_):
        raise AttributeError("'NoneType' object has no attribute 'group'")

    monkeypatch.setattr(nic, "read", read)
    output = LaunchOutput(
        folder=tmp_path, node="h1", launch="x.h1", job=None, rank=None, window=None, source=None, offset_ns=0
    )
    with pytest.raises(StoreError, match="its output cannot be read: 'NoneType' object has no"):
        rows_of("collector.nic", output)


@pytest.mark.parametrize(
    ("collector", "gate", "required"),
    [("nic", "capture-nic", True), ("qdisc", "capture-nic", False), ("cpu", "swap", True), ("tcp", "swap", False)],
)
def test_a_gate_whose_input_was_to_be_sampled_and_is_not_there_is_not_taken_on_trust(
    tmp_path, collector, gate, required
):
    launch = manifests.launch(f"{collector}.h1", "h1", part=f"collector.{collector}", role="collector")
    run = make_run(tmp_path, skip=("counters",), change=lambda manifest: manifest["launches"].append(launch))
    (window,) = load(run / "manifest.json").windows
    found = [one for one in window.gates if one.name == gate and "h1" in one.message]
    assert {(one.passed, one.required) for one in found} == {(None, required)}, window.gates
    assert any(found[0].message == why for why in window.reasons) is required


SECOND = 10**9
GROWN = {
    "steadily": ([0, 10, 20, 30], None, 30.0),
    "it rolls over": ([4294967290, 4294967295, 4, 14], 2**32, 20.0),
    "it begins anew": ([1000, 1010, 3, 13], 2**32, None),
    "it begins anew, and is of 64 bits": ([2**33, 2**33 + 5, 3, 13], 2**32, None),
    "it begins anew, and is higher than before in the end": ([1000, 1010, 3, 5000], None, None),
    "it goes back a little": ([1000, 1010, 1008, 1020], None, 20.0),
    "it goes back a little, all in all": ([1000, 1000, 998, 998], None, None),
}


@pytest.mark.parametrize("how", GROWN)
def test_a_counter_that_goes_backwards_never_tells_a_growth_that_was_not(how):
    values, wraps_at, grown = GROWN[how]
    count = len(values)
    table = pa.table(
        {
            "node": ["h1"] * count,
            "port": ["eth0"] * count,
            "counter": ["x"] * count,
            "time_ns": [k * SECOND for k in range(count)],
            "value": [float(value) for value in values],
        }
    )
    found = throughput.counter_growth(
        table, node="h1", port="eth0", counter="x", span_ns=(0, (count - 1) * SECOND), wraps_at=wraps_at
    )
    assert found == grown or (grown is None and math.isnan(found)), found


class Stream:
    name, every_s, columns = "odd", 0.1, ("a,b", "c")

    def __init__(self, *samples):
        self.samples = list(samples)

    def rows(self):
        sample = self.samples.pop(0)
        if isinstance(sample, Exception):
            raise sample
        return [sample]


def test_a_sample_that_makes_no_sense_is_left_out_and_the_next_one_is_taken(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    stream = Stream([1, 2], ValueError("N/A"), struct.error("short"), ["x,y\nz", 4], OSError("gone"))
    recorder = sampler.Recorder(stream, 0.0)
    assert [sampler.sample([recorder], now) for now in (0.1, 0.2, 0.3, 0.4)] == [[]] * 4
    assert sampler.sample([recorder], 0.5) == [recorder]
    recorder.flush()
    lines = [line.split(",")[2:] for line in (tmp_path / "odd.csv").read_text().splitlines()]
    assert lines == [["a;b", "c"], ["1", "2"], ["x;y_z", "4"]]
    assert capfd.readouterr().err == (
        "odd: a sample is left out, and others like it: ValueError N/A\nodd: no more samples: gone\n"
    )


def test_an_error_in_one_answer_of_a_switch_costs_its_ports_alone(capfd):
    class Session:
        def fetch(self, column):
            return [(f"{column}.{number}", b"e%d" % number) for number in range(1, 9)]

        def get_many(self, oids):
            if len(asked) == 1:
                asked.append(oids)
                raise RuntimeError("tooBig")
            asked.append(oids)
            return {oid: None if oid.endswith(".8") else 7 for oid in oids}

    asked = []
    about = {"switch": "leaf1", "address": "", "port": 161, "user": "", "auth": "", "privacy": "", "ports": None}
    ports = snmp_source.Ports(Session(), about, 1.0, (TimeoutError, RuntimeError))
    row = dict(zip(ports.columns, ports.rows()[0], strict=True))
    assert (row["leaf1|snmp.sysUpTime"], row["leaf1:e1|snmp.ifHCInOctets"]) == (7, 7)
    assert list(row.values()).count("") > len(asked[1])  # those of the answer, and of the port that has none
    assert (row["leaf1:e8|snmp.ifHCInOctets"], len(asked)) == ("", 3)
    assert "leaf1: no answer about some ports: tooBig" in capfd.readouterr().err


@pytest.mark.parametrize(("vmstat", "pages"), [("pgfault 1\n", 0), ("pswpin 3\npswpout 3\n", 3), (None, "")])
def test_a_kernel_without_swap_did_not_swap_and_a_file_that_cannot_be_read_tells_nothing(tmp_path, vmstat, pages):
    (tmp_path / "stat").write_text("cpu  1 2 3 4\n")
    (tmp_path / "meminfo").write_text("MemAvailable: ? kB\n")
    if vmstat is not None:
        (tmp_path / "vmstat").write_text(vmstat)
    (row,) = cpu_source.Load(str(tmp_path), 0.1).rows()
    assert row == [6, 0, 10, "", "", pages, pages, ""]


@pytest.mark.parametrize(
    ("pressure", "waited"),
    [
        ("some avg10=1.07 avg60=2.17 avg300=2.44 total=134456454\nfull avg10=0.00 total=9\n", 134456454),
        ("", ""),
        ("?", ""),
    ],
)
def test_what_waited_for_disks_is_the_first_line_of_the_kernels_pressure(tmp_path, pressure, waited):
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "io").write_text(pressure)
    (row,) = cpu_source.Load(str(tmp_path), 0.1).rows()
    assert row[-1] == waited


def test_a_processor_that_is_put_offline_keeps_its_throttles(tmp_path):
    for number in (0, 1):
        folder = tmp_path / f"devices/system/cpu/cpu{number}/thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_count").write_text("4\n")
    throttling = cpu_source.Throttling(str(tmp_path))
    assert throttling.rows() == [[8]]
    (tmp_path / "devices/system/cpu/cpu1/thermal_throttle/core_throttle_count").write_text("")
    assert throttling.rows() == [[8]]


class Links:
    """A kernel that answers for devices by their numbers, and whose netlink socket is this."""

    def __init__(self):
        self.numbers = {"eth0": 3}
        self.asked = 0

    def if_nametoindex(self, name):
        if name not in self.numbers:
            raise OSError(errno.ENODEV, "No such device")
        return self.numbers[name]

    def send(self, request):
        self.asked = struct.unpack_from("=I", request, 20)[0]

    def recv(self, _):
        if self.asked not in self.numbers.values():
            return struct.pack("=IHHIIi", 36, nic_source.NLMSG_ERROR, 0, 0, 0, -errno.ENODEV)
        counters = struct.pack("=23Q", *range(23))  # of a kernel that does not know the last one
        return bytes(28) + struct.pack("=HH", 4 + len(counters), nic_source.IFLA_STATS_LINK_64) + counters


def test_a_device_whose_driver_is_loaded_anew_is_sampled_again(monkeypatch, capfd):
    links = Links()
    monkeypatch.setattr(nic_source.socket, "if_nametoindex", links.if_nametoindex)
    counters = nic_source.KernelCounters(["eth0"], 0.01)
    counters.socket.close()
    counters.socket = links
    there = [*range(23), ""]
    assert counters.rows() == [there]
    links.numbers = {}
    assert counters.rows() == counters.rows() == [[""] * 24]
    links.numbers = {"eth0": 9}
    assert counters.rows() == [there]
    assert capfd.readouterr().err == "nic: eth0: No such device\nnic: eth0 is back\n"
    links.numbers = {}
    counters.rows()
    monkeypatch.setattr(nic_source, "AWAY_S", -1.0)
    with pytest.raises(OSError, match="no device is left of eth0"):
        counters.rows()


def test_a_gpu_that_does_not_answer_costs_no_other(monkeypatch, capfd):
    def told(pointer, value):
        pointer._obj.value = value
        return 0

    nvml = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetCount_v2=lambda count: told(count, 2),
        nvmlDeviceGetHandleByIndex_v2=lambda index, _: 15 if index else 0,  # the second has fallen off the bus
        nvmlDeviceGetPowerUsage=lambda _, power: told(power, 7),
    )
    monkeypatch.setattr(gpu_source.ctypes, "CDLL", lambda _: nvml)
    (gpu,) = gpu_source.open_streams(["0.1", "x"])
    assert (gpu.columns, gpu.rows()) == (["gpu0|gpu.power_mw"], [[7]])
    assert capfd.readouterr().err == "gpu: left out GPU 1: NVML error 15\n"


def test_losses_that_were_sampled_and_are_not_known_are_no_losses_only_as_far_as_is_known():
    ports = {"rdma.out_of_sequence": [5.0, 5.0, 5.0], "ethtool.rx_discards_phy": [9.0, 0.0, 0.0]}
    rows = [
        {"node": "h1", "port": "eth0", "counter": name, "time_ns": k * SECOND, "value": value}
        for name, values in ports.items()
        for k, value in enumerate(values)
    ]
    rails = (Rail(device="eth0", address="10.0.0.1"),)
    topology = Topology(kind="inventory", nodes=(Node(name="h1", rails=rails),), links=())
    found = device_counters.congestion(throughput.CachedTable(pa.Table.from_pylist(rows)), topology, (0, 2 * SECOND))
    (gate,) = judged(congestion, congestion=found, validity={"congestion": "invalid"})
    assert (gate.name, gate.passed, gate.required) == ("losses", None, True)
    assert gate.message == "h1 (eth0): no losses; not known: discards"


def test_ports_of_one_name_are_told_apart_by_their_numbers():
    class Session:
        def fetch(self, column):
            return [(f"{column}.{number}", b"port") for number in (1, 2)]

    assert snmp_source.named(Session()) == {"port": "1", "port#2": "2"}


def test_what_is_no_file_is_left_out_and_holds_nobody_up(tmp_path):
    os.mkfifo(tmp_path / "nic.csv")
    (tmp_path / "ethtool.eth0.csv").symlink_to("/etc/passwd")
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "stderr")
    (tmp_path / "rdma.eth0.csv").write_text("time_ns,late_ns,eth0|rdma.x\n1,0,2\n")
    output = LaunchOutput(
        folder=tmp_path, node="h1", launch="x.h1", job=None, rank=None, window=None, source=None, offset_ns=0
    )
    assert list(rows_of("collector.nic", output)["counters"]["counter"]) == ["sampler.rdma.eth0.late_s", "rdma.x"]
    assert [note.partition(":")[0] for note in output.unread.sentences()] == [
        "ethtool.eth0.csv",
        "folder.csv",
        "nic.csv",
        "stderr",
    ]


def test_rdma_counters_of_a_driver_that_is_loaded_anew_are_read_again(tmp_path, monkeypatch, capfd):
    path = tmp_path / "port_xmit_data"
    path.write_text("1\n")
    counters = nic_source.RdmaCounters("eth0", 0.1, [str(path)])
    path.unlink()
    path.write_text("2\n")
    old, pread = counters.files[0], os.pread

    def reading(fd, size, offset):
        if fd == old:
            raise OSError(errno.ENODEV, "No such device")
        return pread(fd, size, offset)

    monkeypatch.setattr(nic_source.os, "pread", reading)
    monkeypatch.setattr(nic_source.os, "close", lambda _: None)  # or the number would be given again
    assert [counters.rows(), counters.rows()] == [[[""]], [["2"]]]
    assert capfd.readouterr().err == f"rdma: no number in {path}: No such device\n"
