"""What the flow generator does with what it can send: bytes on time, lateness, connections, shedding."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cross_traffic import distributions, drawn_schedules, flow_launches, flow_records
from cross_traffic.agents import flow_drawing
from orchestrator.analysis.windows import generated_flows
from tests.bench import local
from tests.bench.commands import CommandError, call
from tests.bench.figure import Figure, Settings

SRC, DST, PORT = "10.77.0.1", "10.77.0.2", 15201
READY_WITHIN_S = 10.0
SMALL = distributions.Distribution(name="100 B", source="", points=((100.0, 1.0),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two network namespaces with a link between them."""

    sender: str
    sink: str
    scratch: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A schedule that was sent: its log, what had arrived by its end, processor time of both sides, largest process."""

    log: generated_flows.FlowLog
    received_bps: float  # payload, at the sink, while the schedule lasted
    received_bytes: int  # until the last flow had ended
    cpu_s: float
    peak_bytes: int


@contextmanager
def pair(scratch: Path, *, shape: Sequence[str] = ()) -> Iterator[Pair]:
    """Unlimited, with offloads; or through a queue as `tc` names it, packet by packet."""
    ends = [f"bench{os.getpid()}{side}" for side in "ab"]
    try:
        for end in ends:
            call(["ip", "netns", "add", end])
        call(["ip", "-n", ends[0], "link", "add", "e0", "type", "veth", "peer", "name", "e0", "netns", ends[1]])
        for end, address in zip(ends, (SRC, DST), strict=True):
            call(["ip", "-n", end, "addr", "add", f"{address}/24", "dev", "e0"])
            call(["ip", "-n", end, "link", "set", "lo", "up"])
            call(["ip", "-n", end, "link", "set", "e0", "up"])
            call(["ip", "-n", end, "route", "replace", "10.77.0.0/24", "dev", "e0", "congctl", "cubic"])
            # As on hosts of a local testbed: else a connection that lost packets slows every later one down.
            call(["ip", "netns", "exec", end, "sysctl", "-q", "-w", "net.ipv4.tcp_no_metrics_save=1"])
            call(["ip", "netns", "exec", end, "sysctl", "-q", "-w", "net.ipv4.tcp_slow_start_after_idle=0"])
            if shape:
                call(["ip", "netns", "exec", end, "ethtool", "-K", "e0", "tso", "off", "gso", "off", "gro", "off"])
                call(["ip", "netns", "exec", end, "tc", "qdisc", "add", "dev", "e0", "root", *shape])
        yield Pair(sender=ends[0], sink=ends[1], scratch=scratch)
    finally:
        for end in ends:
            subprocess.run(["ip", "netns", "del", end], check=False, capture_output=True)


def send(
    between: Pair, streams: Sequence[Mapping[str, Any]], *, workers: int = 1, sinks: int = 1, **options: Any
) -> Sent:
    """Send a schedule from one end to the other."""
    folders = [between.scratch / name for name in ("sink", "sender")]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    ports = [PORT + i for i in range(sinks)]
    sink = {"address": DST, "ports": ports, "senders": [SRC], "starters": 1}
    sender = {
        "source": SRC,
        "start": {"address": DST, "port": PORT},
        "sinks": [{"address": DST, "ports": ports}],
        "streams": list(streams),
        "recorded": None,
        "mtu": 1500,
        "workers": workers,
        "most_open": 8000,
        "drain_s": 10,
        "dscp": 0,
        "congestion": "",
        "pool": False,
        "realtime": False,
        **options,
    }
    receiving = _agent(between.sink, "flow_sink.py", sink, folders[0])
    try:
        if receiving.stdout is None or receiving.stdout.readline() != b"listening\n":
            raise CommandError("the sink did not get ready")
        sending = _agent(between.sender, "flow_sender.py", sender, folders[1])
        peak, status, used = _waited(sending, receiving)
    finally:
        receiving.terminate()
        _, _, used_there = os.wait4(receiving.pid, 0)
        receiving.returncode = 0
    if status:
        raise CommandError(f"the sender ended with {status}")
    log = generated_flows.log_summary(folders[1])
    zero_ns = min(flow_records.records(path)[0] for path in folders[1].glob("flows.*.bin"))
    before, inside, after = _arrived(folders[0], [zero_ns, zero_ns + log.seconds * 1e9, math.inf])
    return Sent(
        log=log,
        received_bps=(inside - before) * 8 / log.seconds,
        received_bytes=round(after),
        cpu_s=used.ru_utime + used.ru_stime + used_there.ru_utime + used_there.ru_stime,
        peak_bytes=peak,
    )


def _arrived(folder: Path, instants_ns: Sequence[float]) -> list[float]:
    """Bytes that all processes of a sink had counted at some instants."""
    tables = [np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2) for path in folder.glob("received.*.csv")]
    return [float(sum(np.interp(at, rows[:, 0], rows[:, 1]) for rows in tables)) for at in instants_ns]


def _waited(sending: subprocess.Popen[bytes], receiving: subprocess.Popen[bytes]) -> tuple[int, int, Any]:
    """Wait for a sender; the largest process of both sides while it ran, its status, and what it used."""
    peak = 0
    while True:
        pid, status, used = os.wait4(sending.pid, os.WNOHANG)
        if pid:
            sending.returncode = status
            return peak, status, used
        for parent in (sending.pid, receiving.pid):
            children = Path(f"/proc/{parent}/task/{parent}/children")
            for one in (str(parent), *(children.read_text().split() if children.exists() else ())):
                peak = max(peak, _peak_of(one))
        time.sleep(0.2)


def _peak_of(pid: str) -> int:
    # Not ru_maxrss, which counts what the process was before it became another program.
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def _agent(namespace: str, agent: str, spec: Mapping[str, Any], folder: Path) -> subprocess.Popen[bytes]:
    (folder / "spec.json").write_bytes(flow_launches.spec_file(spec))
    argv = [sys.executable, "-I", "-S", "-B", str(flow_launches.AGENTS / agent), "spec.json"]
    return subprocess.Popen(["ip", "netns", "exec", namespace, *argv], cwd=folder, stdout=subprocess.PIPE)


def websearch_streams(load_bps: float, seconds: float, *, scale: int = 1, **options: Any) -> list[dict[str, Any]]:
    """A stream of web-search flows."""
    return [
        drawn_schedules.stream_spec(
            distributions.find("websearch"),
            load_bps=load_bps / scale,
            mtu=1500,
            seed=11,
            factor=1 / scale,
            duration_s=seconds,
            **options,
        )
    ]


def small(flows_per_s: float, seconds: float) -> list[dict[str, Any]]:
    """A stream of flows of 100 B."""
    load_bps = flows_per_s * flow_drawing.Framing(1500).wire_bytes(100) * 8.0
    return [drawn_schedules.stream_spec(SMALL, load_bps=load_bps, mtu=1500, seed=5, duration_s=float(seconds))]


def iperf(between: Pair, seconds: float, *, limit_bps: float = 0) -> tuple[float, float]:
    """Goodput in bit/s of iperf3 with four streams (0: unlimited), and processor seconds a gigabyte of both sides."""
    server = subprocess.Popen(
        ["ip", "netns", "exec", between.sink, "iperf3", "-s", "-1", "-p", str(PORT)], stdout=subprocess.DEVNULL
    )
    time.sleep(0.3)  # the client tries once only
    client = [
        "iperf3",
        "-c",
        DST,
        "-p",
        str(PORT),
        "-P",
        "4",
        "-t",
        str(int(seconds)),
        "-b",
        str(int(limit_bps / 4)),
        "-J",
    ]
    process = subprocess.Popen(["ip", "netns", "exec", between.sender, *client], stdout=subprocess.PIPE, text=True)
    out = process.stdout.read() if process.stdout else ""
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    _, _, there = os.wait4(server.pid, 0)
    server.returncode = 0
    received = json.loads(out)["end"]["sum_received"]
    cpu_s = used.ru_utime + used.ru_stime + there.ru_utime + there.ru_stime
    return float(received["bits_per_second"]), cpu_s / (received["bytes"] / 1e9)


def measure(settings: Settings) -> Iterator[Figure]:
    """On an unlimited pair first, then on one of 250 Mbit/s, which is a link of 25 Gbit/s at a hundredth."""
    seconds = settings.times(30, 4)
    with local.machine_to_ourselves():
        with pair(settings.scratch) as between:
            yield from _unlimited(settings, between, seconds)
        with pair(settings.scratch, shape=("tbf", "rate", "250mbit", "burst", "32kb", "limit", "300kb")) as between:
            yield from _limited(settings, between, seconds)


def _unlimited(settings: Settings, between: Pair, seconds: float) -> Iterator[Figure]:
    for load, workers in ((5e9, 1), (10e9, 1), (20e9, 2)):
        done = send(between, websearch_streams(load, seconds), workers=workers, realtime=True)
        yield from _on_time(f"{load / 1e9:g} Gbit/s, unlimited, {workers} workers", done)
        yield from _late(f"{load / 1e9:g} Gbit/s, real-time priority", done)
    for load, realtime in ((20e9, False), (25e9, True), (25e9, False)):
        done = send(between, websearch_streams(load, seconds), workers=2, realtime=realtime)
        yield from _late(f"{load / 1e9:g} Gbit/s, {'real-time' if realtime else 'normal'} priority", done)
    done = send(between, small(25_000, settings.times(40, 4)), workers=2, sinks=2)
    lost = sum(done.log.errors.values())
    rate = done.log.flows / done.log.seconds
    yield Figure(
        what="new connections of 100 B",
        unit="/s",
        values=(rate,),
        against="requested",
        reference=(25_000.0,),
        note=f"{done.log.flows:,} flows, {lost} not acknowledged",
    )
    yield Figure(
        what="  the largest process", unit="MB", values=(done.peak_bytes / 1e6,), against="goal", reference=(50.0,)
    )
    yield from _late("25,000 flows/s", done)


def _limited(settings: Settings, between: Pair, seconds: float) -> Iterator[Figure]:
    for load, length in ((12.5e9, seconds), (20e9, seconds), (22.5e9, settings.times(60, 6))):
        done = send(between, websearch_streams(load, length, scale=100), realtime=True)
        yield from _on_time(f"{load / 25e9:.0%} of a link of 25 Gbit/s at 1/100", done)
        yield from _late(f"{load / 25e9:.0%} of that link", done)
    done = send(between, websearch_streams(40e9, settings.times(20, 6), scale=100), most_open=200, realtime=True)
    errors = ", ".join(f"{count} {what}" for what, count in done.log.errors.items())
    yield Figure(
        what="160 % of that link, at most 200 open: flows that were not done",
        unit="of 1",
        values=(sum(done.log.errors.values()) / done.log.flows,),
        note=errors,
    )


def _on_time(what: str, done: Sent) -> Iterator[Figure]:
    asked = done.log.planned_bps / done.log.asked_bps
    yield Figure(
        what=f"schedule's bytes, {what}", unit="of asked", values=(asked,), against="requested", reference=(1.0,)
    )
    yield Figure(
        what="  acknowledged by its end",
        unit="of planned",
        values=(done.log.acknowledged_share,),
        against="requested",
        reference=(1.0,),
    )


def _late(what: str, done: Sent) -> Iterator[Figure]:
    p50, p99, most = (value * 1e6 for value in done.log.late_s)
    yield Figure(what=f"lateness p50, {what}", unit="us", values=(p50,), against="goal", reference=(20.0,))
    yield Figure(
        what="  p99", unit="us", values=(p99,), against="goal", reference=(200.0,), note=f"at most {most:,.0f}"
    )
