"""Captures in pieces: wherever they are cut, the result is the same to the byte."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from orchestrator.analysis.capture import capture_sets, captures, flowtable
from tests.helpers.made_packets import (
    ACK,
    FIN,
    RST,
    SYN,
    UDP,
    bth,
    enhanced,
    ethernet,
    interface,
    ip4,
    section,
    simple,
    tcp,
    udp,
)
from tests.helpers.made_packets import pcap as made

PIECES = [1 << 10, 1 << 12, 5000, 1 << 14]  # bytes
START_NS = 10**18


def frames(count=6000, seed=1):
    """Of 40 connections: retransmissions, holes, ports used again, closed windows, stamps that go back, RoCE."""
    source = random.Random(seed)  # noqa: S311
    at, expected = START_NS, {}
    for number in range(count):
        at += source.randrange(20_000)
        chance, pair, back = source.random(), source.randrange(40), source.random() < 0.2
        ends = {"src": f"10.9.0.{1 + pair % 5}", "dst": f"10.9.1.{pair % 3}"}
        ports = {"sport": 1000 + pair, "dport": 5201}
        if back:
            ends, ports = dict(zip(ends, reversed(ends.values()), strict=True)), {"sport": 5201, "dport": 1000 + pair}
        stamp = at - (source.randrange(5_000_000) if chance < 0.02 else 0)
        if number % 50 == 0:
            body = udp(bth(4, pair, number // 50, bytes(8)), sport=9, dport=4791)
            yield stamp, ethernet(ip4(body, protocol=UDP, **ends))
            continue
        due = expected.setdefault((pair, back), source.randrange(1 << 32))
        size = source.choice([0, 10, 100, 1000])
        moved = source.randrange(-3000, 3000) if chance < 0.1 else 0
        flags = {0: SYN, 1: SYN | ACK, 2: FIN | ACK, 3: RST}.get(source.randrange(300), ACK)
        sequence = source.randrange(1 << 32) if flags == SYN else (due + moved) % (1 << 32)
        expected[pair, back] = (sequence + size) % (1 << 32) if not moved else due
        window = source.choice([0, 500, 60_000])
        yield stamp, ethernet(ip4(tcp(bytes(size), seq=sequence, flags=flags, window=window, **ports), **ends))


def kept(path, kind):
    """The same packets as one file of a kind, or as three that were rotated."""
    packets = list(frames())
    if kind == "rotated":
        parts = [packets[:1500], packets[1500:1510], packets[1510:]]
        files = [path / f"x.pcap{number}" for number in range(3)]
        for file, part in zip(files, parts, strict=True):
            file.write_bytes(made(part))
        return tuple(files)
    data = made(packets, big=kind == "big") if kind != "ng" else section() + interface(resolution=9)
    for number, (stamp, frame) in enumerate(packets if kind == "ng" else []):
        data += enhanced(stamp, frame)
        if number % 997 == 0:
            data += simple(frame) + interface(resolution=9)
        if number == 4000:
            data += section() + interface(resolution=9)
    (path / "x").write_bytes(data)
    return (path / "x",)


def plain(found):
    """A trace as bytes, rows of bins sorted."""
    order = np.lexsort((found.bins.flow, found.bins.start_ns))
    tables = {}
    for name in ("flows", "bins", "queue_pairs"):
        table = getattr(found, name)
        for field in dataclasses.fields(table):
            values = np.asarray(getattr(table, field.name))
            tables[name, field.name] = (values[order] if name == "bins" and values.ndim else values).tobytes()
    return tables, found.hosts, found.points, found.notes


@pytest.mark.parametrize("kind", ["little", "big", "ng", "rotated"])
def test_a_trace_is_the_same_however_it_is_read(tmp_path, kind):
    one = capture_sets.CaptureSet(name="x", files=kept(tmp_path, kind))
    whole = capture_sets.read_set(one)
    assert whole.points[0].packets >= 6000
    assert ["no timestamp" in problem for problem in whole.points[0].damage] == [True] * (kind == "ng")
    assert min(whole.flows.repeated.sum(), whole.flows.late.sum(), whole.points[0].backwards) > 100
    for piece_bytes in PIECES:
        assert plain(capture_sets.read_set(one, piece_bytes=piece_bytes)) == plain(whole), piece_bytes


def test_bins_of_a_packet_each_are_the_same_too(tmp_path):
    """Each packet closes the bins of all flows then, also where stamps go back."""
    one = capture_sets.CaptureSet(name="x", files=kept(tmp_path, "little"))
    whole = capture_sets.read_set(one, bin_ns=1)
    for piece_bytes in PIECES:
        assert plain(capture_sets.read_set(one, bin_ns=1, piece_bytes=piece_bytes)) == plain(whole), piece_bytes


@pytest.mark.parametrize("budget", [100, 3000])
def test_what_waits_on_disk_and_what_is_summed_is_the_same_too(tmp_path, budget):
    one = capture_sets.CaptureSet(name="x", files=kept(tmp_path, "little"))
    whole = capture_sets.read_set(one, bin_budget=budget)
    for piece_bytes in PIECES:
        again = capture_sets.read_set(one, bin_budget=budget, piece_bytes=piece_bytes, memory=4096)
        assert plain(again) == plain(whole)


def test_the_tables_of_a_run_are_the_same_too(tmp_path):
    job = captures.Job(files=kept(tmp_path, "rotated"), port="eth0", addresses=("10.9.0.1",), segment=500)
    whole = captures.reduce(job)
    again = captures.reduce(dataclasses.replace(job, memory=4096))
    assert len(whole.flow_packets["flow"]) > 1000
    for name in ("capture_flows", "packets", "flow_packets"):
        columns, others = getattr(whole, name), getattr(again, name)
        assert {key: list(values) for key, values in columns.items()} == {
            key: list(values) for key, values in others.items()
        }
    assert np.array_equal(whole.sightings, again.sightings)


def test_another_engine_gives_the_same(tmp_path):
    """What reads sets need not share memory with who asks: sets and tables are pickled on their way."""
    sets = [capture_sets.CaptureSet(name="x", files=kept(tmp_path, "rotated"))]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as engine:
        found = capture_sets.read(sets, engine=engine)
    assert plain(found) == plain(capture_sets.read(sets))


def test_reading_needs_no_numba():
    code = "import sys; from orchestrator.analysis.capture import flowtable; flowtable.warm()"
    flowtable.warm()  # compiled, if it was not
    subprocess.run([sys.executable, "-c", f"{code}; sys.exit('numba' in sys.modules)"], check=True, timeout=60)
