"""What counting packets in the kernel costs beside capturing them, and what either loses at full rate."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from orchestrator.core.deadline import Deadline
from orchestrator.parts.collectors import meter, tcpdump
from orchestrator.parts.launch import Launch, Line
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import Link, Node, Rail, Topology
from tests.bench.figure import Figure, Settings

SEND = """
import resource, socket, sys
count, flows, size = map(int, sys.argv[1:])
some = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(flows)]
for place, one in enumerate(some):
    one.connect(("10.79.0.2", 9000 + place % 16))
print("ready", flush=True); sys.stdin.readline()
sends, payload = [one.send for one in some], bytes(size)
for _ in range(count // flows):
    for send in sends:
        send(payload)
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, flush=True)
"""
HOLD = """
import socket, sys
some = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(16)]
for place, one in enumerate(some):
    one.bind(("10.79.0.2", 9000 + place))
print("ready", flush=True); sys.stdin.read()
"""
TOPOLOGY = Topology(
    kind="local",
    nodes=(Node(name="h1", rails=(Rail(address="10.79.0.1", device="one"),), python=sys.executable),),
    links=(Link(host="h1", device="one", rate=25e9),),
)
NONE, METER, TCPDUMP = "neither", "meter", "tcpdump"
PATIENCE_S = 60.0
GOAL_SHARE = 0.25
FLOWS, PAYLOAD_BYTES = 16, 1000
OTHERS = ((1, 1000), (256, 1000), (16, 64), (16, 8000))  # numbers of flows, and bytes of payload
HEADERS_BYTES = 42


def measure(settings: Settings) -> Iterator[Figure]:
    """Processor time a packet of a sender at full rate and of the collector, beyond the sender's alone.

    A packet over a veth pair is sent, counted or captured, and received in the sender's own time. The three take turns.
    """
    goal = f"goal: a ratio of at most {GOAL_SHARE}"
    with _pair() as inside:
        found = _took(settings, inside, FLOWS, PAYLOAD_BYTES)
        yield Figure(what="a packet of the sender alone", unit="ns", values=tuple(found.alone))
        yield _figure("what a meter adds to a packet's way", found.way)
        yield _figure("what its process takes a packet", found.collecting)
        yield _figure("both", found.both, goal)
        yield Figure(
            what="packets that the meter lost",
            unit="%",
            values=tuple(found.lost[METER]),
            against="goal",
            reference=(0.0001,),
        )
        yield Figure(what="packets that tcpdump lost at the same rate", unit="%", values=tuple(found.lost[TCPDUMP]))
        for flows, size in OTHERS:
            both = _took(settings, inside, flows, size).both
            yield _figure(f"both, of packets of {size + HEADERS_BYTES:,} bytes in {flows} flows", both, goal)


@dataclass(frozen=True, slots=True)
class _Took:
    """What a packet took, in nanoseconds, by the collector beside the sender: a value a turn; losses in per cent."""

    alone: list[float] = field(default_factory=list)
    way: dict[str, list[float]] = field(default_factory=lambda: {METER: [], TCPDUMP: []})
    collecting: dict[str, list[float]] = field(default_factory=lambda: {METER: [], TCPDUMP: []})
    both: dict[str, list[float]] = field(default_factory=lambda: {METER: [], TCPDUMP: []})
    lost: dict[str, list[float]] = field(default_factory=lambda: {METER: [], TCPDUMP: []})


def _took(settings: Settings, inside: list[str], flows: int, size: int) -> _Took:
    found, count = _Took(), settings.times(400_000, 100_000)
    for turn in range(settings.times(9, 2)):
        alone, _, _ = _sent(inside, None, settings.scratch / "alone", (count, flows, size))
        found.alone.append(1e9 * alone / count)
        for name, module in ((METER, meter), (TCPDUMP, tcpdump)):
            folder = settings.scratch / f"{name}.{flows}.{size}.{turn}"
            sender, collector, dropped = _sent(inside, module, folder, (count, flows, size))
            found.way[name].append(1e9 * (sender - alone) / count)
            found.collecting[name].append(1e9 * collector / count)
            found.both[name].append(1e9 * (sender - alone + collector) / count)
            found.lost[name].append(100.0 * dropped / count)
            shutil.rmtree(folder)
    return found


def _figure(what: str, found: dict[str, list[float]], note: str = "") -> Figure:
    return Figure(
        what=what, unit="ns", values=tuple(found[METER]), against=TCPDUMP, reference=tuple(found[TCPDUMP]), note=note
    )


@contextmanager
def _pair() -> Iterator[list[str]]:
    """Two namespaces with a veth pair between them; gives the words before a command in the first."""
    with ExitStack() as stack:
        holders = [
            stack.enter_context(_process(["unshare", "--net", "--", "sh", "-c", "echo ready; exec sleep 3600"]))
            for _ in range(2)
        ]
        inside = [["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"] for holder in holders]
        add = ["ip", "link", "add", "one", "type", "veth", "peer", "name", "two", "netns", str(holders[1].pid)]
        subprocess.run([*inside[0], *add], check=True)
        for words, device, address in zip(inside, ("one", "two"), ("10.79.0.1/24", "10.79.0.2/24"), strict=True):
            subprocess.run([*words, "ip", "address", "add", address, "dev", device], check=True)
            subprocess.run([*words, "ip", "link", "set", device, "up"], check=True)
        stack.enter_context(_process([*inside[1], sys.executable, "-I", "-S", "-c", HOLD]))
        yield inside[0]


@contextmanager
def _process(argv: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that has said that it is ready, until it is killed."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(argv, **{**pipes, **options})
    try:
        if process.stdout:
            process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


def _sent(
    inside: list[str], module: ModuleType | None, folder: Path, sent: tuple[int, int, int]
) -> tuple[float, float, int]:
    """Seconds of processor time of sending, and of the collector meanwhile, and what it lost.

    `sent`: the number of packets, that of flows, and bytes of payload.
    """
    count = sent[0] // sent[1] * sent[1]
    with _process([*inside, sys.executable, "-I", "-S", "-c", SEND, *map(str, sent)]) as sender:
        if module is None:
            return _go(sender), 0.0, 0
        folder.mkdir()
        launch = module.launches(module.Config(), TOPOLOGY)[0]
        with _collecting(inside, launch, folder) as collector:
            before = _cpu_s(collector)
            seconds = _go(sender)
            Deadline.after(PATIENCE_S).poll(lambda: _idle(collector), every_s=0.2, waiting_for="the last packets")
            taken = _cpu_s(collector) - before
            collector.send_signal(launch.stop.signals[0][0])
            collector.wait(PATIENCE_S)
        output = LaunchOutput(
            folder=folder, node="h1", launch=launch.name, job=None, rank=None, window=None, source=None, offset_ns=0
        )
        row = module.read(output)["captures"]
        return seconds, taken, max(row["dropped"][0], count - row["captured"][0])


@contextmanager
def _collecting(inside: list[str], launch: Launch, folder: Path) -> Iterator[subprocess.Popen[str]]:
    for name, source in launch.files.items():
        shutil.copy(Path(os.fspath(source)), folder / name)  # type: ignore[arg-type]
    with (folder / "stderr").open("w") as said:
        options = {"cwd": folder, "stdin": None, "stdout": None, "stderr": said}
        with _process([*inside, *launch.argv], **options) as collector:
            assert isinstance(launch.ready, Line)
            pattern = launch.ready.pattern
            Deadline.after(PATIENCE_S).poll(
                lambda: re.search(pattern, (folder / "stderr").read_text()), every_s=0.02, waiting_for=launch.name
            )
            yield collector


def _go(sender: subprocess.Popen[str]) -> float:
    assert sender.stdin
    assert sender.stdout
    sender.stdin.write("\n")
    sender.stdin.flush()
    return float(sender.stdout.readline())


def _cpu_s(process: subprocess.Popen[str]) -> float:
    return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9


def _idle(process: subprocess.Popen[str]) -> bool:
    """Whether a process has done next to nothing for half a second."""
    with_it = _cpu_s(process)
    signal.sigtimedwait((), 0.5)
    return _cpu_s(process) - with_it < 0.01
