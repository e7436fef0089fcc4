"""How fast captures are read, beside the programs that people read them with."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from orchestrator.analysis import packed_tables
from orchestrator.analysis.capture import capture_sets, captures, flowtable, pcap
from tests.bench.commands import call
from tests.bench.figure import Figure, Settings
from tests.bench.packets import RECORD, write

SNAP = 96
PAYLOAD = 1448
FLOWS, MANY_FLOWS = 24, 200_000
ONE, BOTH = "one capture point", "two capture points at once"


def generate(path: Path, packets: int, *, seed: int = 1, gap_ns: float = 50_000) -> None:
    """A nanosecond pcap as `tcpdump -s 96` writes it: 24 TCP flows of full segments, each 7th an acknowledgement.

    Packets are `gap_ns` apart on average.
    """
    rng = np.random.default_rng(seed)
    rows = np.zeros(packets, RECORD)
    instants = 1_700_000_000 * 10**9 + np.cumsum(rng.exponential(gap_ns, packets).astype(np.int64))
    flow = rng.integers(0, FLOWS, packets)
    data = np.where(np.arange(packets) % 7, PAYLOAD, 0)
    back = data == 0
    rows["s"], rows["ns"] = instants // 10**9, instants % 10**9
    rows["kept"], rows["wire"] = RECORD.itemsize - 16, 66 + data
    rows["dst"], rows["src"] = bytes([2, 0, 0, 0, 0, 2]), bytes([2, 0, 0, 0, 0, 1])
    rows["type"], rows["ver"], rows["length"], rows["ttl"], rows["proto"] = 0x0800, 0x45, 52 + data, 64, 6
    here, there = 0xC6120001, 0xC6120002 + flow % 4
    rows["from"], rows["to"] = np.where(back, there, here), np.where(back, here, there)
    rows["sport"], rows["dport"] = np.where(back, 5201, 40_000 + flow), np.where(back, 40_000 + flow, 5201)
    for one in range(FLOWS):
        mine = flow == one
        sent = np.cumsum(data[mine]) - data[mine]
        rows["seq"][mine] = np.where(back[mine], 1, sent % 2**32)
        rows["ack"][mine] = np.where(back[mine], sent % 2**32, 1)
    rows["offset"], rows["flags"], rows["window"] = 0x80, 0x10, 500
    # An acknowledgement is shorter than what is kept of a segment: a record has the size of its own frame.
    head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP, pcap.ETHERNET)
    raw = rows.view(np.uint8).reshape(packets, -1).copy()
    short = RECORD.itemsize - 30
    raw[back, 8:12] = np.frombuffer(struct.pack("<I", short - 16), np.uint8)
    kept = np.ones(raw.shape, bool)
    kept[np.ix_(np.flatnonzero(back), np.arange(short, RECORD.itemsize))] = False
    with path.open("wb") as file:
        file.write(head)
        raw[kept].tofile(file)


def measure(settings: Settings) -> Iterator[Figure]:
    """Packets a second, file in the page cache, all in turn; programs include their start, ours is warm as in a run."""
    packets = settings.times(5_000_000, 300_000)
    path = settings.scratch / "generated.pcap"
    generate(path, packets)
    second = settings.scratch / "generated-too.pcap"
    second.symlink_to(path)
    flowtable.warm()
    ours: dict[str, Callable[[], None]] = {
        "orch capture, flows and bins of 1 ms": lambda: _flows(path, packets),
        "analysis.captures, down to tables": lambda: _tables(path, packets),
        ONE: lambda: _points(packets, path),
        BOTH: lambda: _points(packets, path, second),
    }
    rates: dict[str, list[float]] = {}
    for turn in range(settings.times(5, 2)):
        for name, read in ours.items():
            began = time.perf_counter()
            read()
            times = 2 if name == BOTH else 1
            rates.setdefault(name, []).append(times * packets / (time.perf_counter() - began) / 1e6)
        for name, argv in _peers(path).items():
            if turn and name.startswith("tshark"):
                continue  # minutes each
            rates.setdefault(name, []).append(packets / call(argv, within_s=600).seconds / 1e6)
    second.unlink()
    for gap_ns in (50_000, 500):  # links of 250 Mbit/s and 25 Gbit/s
        generate(path, packets, gap_ns=gap_ns)
        what = f"tables and sightings that a host sends home, packets {gap_ns / 1e3:g} us apart"
        yield Figure(what=what, unit="% of the capture", values=(_sent_home(path),), against="goal", reference=(1.0,))
    write(path, packets, flows=MANY_FLOWS)
    what = f"the same, {MANY_FLOWS:,} flows in turn, packets 10 us apart"
    yield Figure(what=what, unit="% of the capture", values=(_sent_home(path),), against="goal", reference=(1.0,))
    path.unlink()
    yield Figure(what=BOTH, unit="Mpackets/s", values=tuple(rates.pop(BOTH)), against=ONE, reference=tuple(rates[ONE]))
    for name in [one for one in ours if one in rates and one != ONE]:
        yield Figure(what=name, unit="Mpackets/s", values=tuple(rates[name]))
        for peer in _peers(path):
            yield Figure(
                what=name, unit="Mpackets/s", values=tuple(rates[name]), against=peer, reference=tuple(rates[peer])
            )


def _sent_home(path: Path) -> float:
    """What a host that keeps a capture makes of it, in per cent of the capture's bytes."""
    packed = path.with_suffix(".npz")
    packed_tables.save(packed, captures.reduce(captures.Job(files=(path,), port="eth0", addresses=("198.18.0.1",))))
    share = packed.stat().st_size / path.stat().st_size
    packed.unlink()
    return 100 * share


def _peers(path: Path) -> dict[str, list[str]]:
    """What of these programs is installed."""
    known = {
        "capinfos -c": ["capinfos", "-c", str(path)],
        "tcpdump -r -w /dev/null": ["tcpdump", "-Z", "root", "-r", str(path), "-w", "/dev/null"],
        "tshark -q -z conv,tcp": ["tshark", "-n", "-q", "-r", str(path), "-z", "conv,tcp"],
    }
    return {name: argv for name, argv in known.items() if shutil.which(argv[0])}


def _flows(path: Path, packets: int) -> None:
    one = capture_sets.CaptureSet(name="generated", files=(path,))
    read = capture_sets.read_set(one, bin_ns=1_000_000, bin_budget=1 << 23)
    if (read.bins.packets.sum(), read.points[0].damage, len(read.flows)) != (packets, (), 2 * FLOWS):
        raise AssertionError(f"read {read.points}, {len(read.flows)} flows")


def _points(packets: int, *paths: Path) -> None:
    """Each file as a capture point of its own, as `orch capture` reads what it is given; bins that fit into memory."""
    sets = [capture_sets.CaptureSet(name=path.stem, files=(path,)) for path in paths]
    read = capture_sets.read(sets, bin_ns=10_000_000)
    if [point.packets for point in read.points] != [packets] * len(paths):
        raise AssertionError(f"read {read.points}")


def _tables(path: Path, packets: int) -> None:
    found = captures.reduce(captures.Job(files=(path,), port="eth0", addresses=("198.18.0.1",)))
    if found.problems or sum(found.capture_flows["packets"]) != packets:
        raise AssertionError(f"{found.problems or 'packets were lost'}")
