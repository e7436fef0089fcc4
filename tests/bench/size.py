"""What many hosts take by SSH, straight and through one jump host: time to open, start and put back, and memory."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orchestrator.core.deadline import Deadline
from tests.bench import local
from tests.bench.commands import INVALID, ROOT, call, orch_argv
from tests.bench.figure import Figure, Settings
from tests.bench.start import PLAN
from tests.helpers.fleet import Fleet, fleet, light

MEMORY_GOAL_MB = 250.0
PUT_BACK_GOAL_S = TOLD_GOAL_S = 10.0
SLOW_BPS = 10e6  # a management network of the cheapest kind
AT_ONCE = 64  # of OpenSSH's own logins, beside which ours stand
RUN_S = 600.0


@dataclass(frozen=True, slots=True)
class Shape:
    """So many hosts, the way to them, and the rate of the network that it leads over, in bits a second."""

    hosts: int
    jump: bool
    rate_bps: float = math.inf

    @property
    def label(self) -> str:
        slow = "" if math.isinf(self.rate_bps) else f", {self.rate_bps / 1e6:g} Mbit/s"
        return f"{self.hosts} hosts, {'one jump host' if self.jump else 'straight'}{slow}"


SHAPES = (
    *(Shape(hosts, jump) for hosts in (4, 16, 64, 128, 240) for jump in (False, True)),
    *(Shape(hosts, True, SLOW_BPS) for hosts in (64, 128)),
)
MEETINGS, QUICK_MEETINGS = ((16, 64), (16, 65), (64, 128), (64, 256)), ((4, 8),)  # hosts and ranks
PLANNED, QUICK_PLANNED, RANKS_A_HOST = (64, 256, 1024), (64,), 8
SILENT_OF = {False: 64, True: 8}  # hosts, by whether it is to be quick
QUICK = (Shape(4, False), Shape(16, True), Shape(16, True, SLOW_BPS))


def measure(settings: Settings) -> Iterator[Figure]:
    """Whole runs of a rank a host, counters and a changed congestion control on each, from a machine of its own."""
    for number, shape in enumerate(QUICK if settings.quick else SHAPES):
        folder = settings.scratch / f"size{number}"
        with local.machine_to_ourselves(), fleet(shape.hosts, folder, rate_bps=shape.rate_bps) as up:
            theirs = _logins(up, jump=shape.jump)
            ran = carried_out(up, light(up.hosts), up.inventory(jump=shape.jump))
        yield from _figures(shape, ran, theirs)
    for jump in (False, True):
        folder = settings.scratch / f"silent{jump:d}"
        with local.machine_to_ourselves(), fleet(SILENT_OF[settings.quick], folder) as up:
            yield from _silence(up, jump=jump)
    yield from _met(settings)
    yield from _planned(settings)


@dataclass(frozen=True, slots=True)
class _Ran:
    """Seconds of a run by what they went to, bytes over the controller's link, and the controller's peak memory."""

    seconds: Mapping[str, float]
    peak_bytes: int


def training(hosts: tuple[str, ...], ranks: int) -> dict[str, Any]:
    """A run of gloo, whose ranks are ready when all have met."""
    placed = [hosts[number % len(hosts)] for number in range(ranks)]
    return {
        "name": "gloo",
        "testbed": {"inventory": "inventory.yaml"},
        "workload": {"collective": {"hosts": placed, "backend": "gloo", "sizes": ["1kb"], "repeats": 1}},
        "collect": [{"nic": {"every": "1s"}}],
        "measure": {"warmup": 1, "iterations": 5, "at_most": "60s"},
        "validity": {"processor": "ignore"},
    }


def carried_out(up: Fleet, data: Mapping[str, Any], inventory: Mapping[str, Any]) -> _Ran:
    """A run on the controller of the fleet."""
    argv, peaks, results = command(up, up.files(data, inventory))
    call(argv, ok=(0, INVALID), within_s=RUN_S)
    return _Ran(_seconds(events(results)), json.loads(peaks.read_bytes())["peak_bytes"])


def events(results: Path) -> list[dict[str, Any]]:
    """What the only run has told in its log so far."""
    whole = [path.read_text().rpartition("\n")[0] for path in results.glob("*/*/events.jsonl")]
    return [json.loads(line) for text in whole for line in text.splitlines()]


def phases(log: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Names of phases in their order, and when each began, in seconds."""
    return [(event["name"], event["monotonic_ns"] / 1e9) for event in log if event["event"] == "phase"]


def _seconds(log: list[dict[str, Any]]) -> dict[str, float]:
    """How long it took to open all, to start all once they were open, and to put all back once it was measured."""
    at = dict(reversed(phases(log)))  # the first of each name
    return {
        "open": at["check"] - at["open"],
        "start": at["preflight"] - at["collectors"],
        "put back": at["residue"] - at["stop ranks"],
    }


def _logins(up: Fleet, *, jump: bool) -> float:
    """Seconds until `ssh HOST true` has worked on each host, many at once, each again until it does."""
    one = f"until ssh -F {up.ssh_config(jump=jump)} {{}} true; do sleep 0.2; done"
    line = f"printf '%s\\n' {' '.join(up.hosts)} | xargs -P {AT_ONCE} -I{{}} sh -c {shlex.quote(one)} 2>/dev/null"
    return call(up.on_controller(["sh", "-c", line]), within_s=RUN_S).seconds


def command(up: Fleet, file: Path) -> tuple[list[str], Path, Path]:
    """The command that carries an experiment out on the controller, where its peaks will stand, and its results."""
    peaks, results = up.folder / "peaks.json", up.folder / "results"
    watched = Path(__file__).with_name("watched.py")
    words = (sys.executable, watched, peaks, "run", file, "--force", "--no-report", "--json", "--results", results)
    return up.on_controller(words), peaks, results


def _silence(up: Fleet, *, jump: bool) -> Iterator[Figure]:
    """One of many hosts falls silent in the window: when is that told, and when are the others as they were before?"""
    argv, _, results = command(up, up.files(light(up.hosts, iterations=10**6), up.inventory(jump=jump)))
    silent, label = up.hosts[-1], f"one of {Shape(len(up.hosts), jump).label} silent"
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as orch:
        try:
            begun = Deadline.after(RUN_S)
            begun.poll(lambda: "window" in dict(phases(events(results))), every_s=0.1, waiting_for="the window")
            up.silence(silent)
            cut_s = time.monotonic()
            orch.wait(RUN_S)
        finally:
            orch.terminate()
    log = events(results)
    lost_s = min(event["monotonic_ns"] for event in log if event["event"] == "agent-lost") / 1e9
    restored = {event["node"]: event["monotonic_ns"] / 1e9 for event in log if event["event"] == "restored"}
    if restored.keys() != set(up.hosts) - {silent}:
        raise AssertionError(f"{sorted(set(up.hosts) - {silent} - restored.keys())} were not put back")
    yield Figure(
        what=f"{label}: until that is told",
        unit="s",
        values=(lost_s - cut_s,),
        against="goal",
        reference=(TOLD_GOAL_S,),
    )
    yield Figure(
        what=f"{label}: from then until the last other one is put back",
        unit="s",
        values=(max(restored.values()) - lost_s,),
        against="goal",
        reference=(PUT_BACK_GOAL_S,),
    )


def _met(settings: Settings) -> Iterator[Figure]:
    """Ranks of gloo, each connected with all others before it is ready, forked off one process that has torch."""
    for number, (hosts, ranks) in enumerate(QUICK_MEETINGS if settings.quick else MEETINGS):
        with (
            local.machine_to_ourselves(),
            fleet(hosts, settings.scratch / f"met{number}") as up,
            up.forking() as python,
        ):
            ran = carried_out(up, training(up.hosts, ranks), up.inventory(jump=False, python=python))
        label = f"{ranks} ranks of gloo on {hosts} hosts"
        yield Figure(what=f"{label}: started and met", unit="s", values=(ran.seconds["start"],))
        yield Figure(
            what=f"{label}: peak memory of the controller",
            unit="MB",
            values=(ran.peak_bytes / 1e6,),
            against="goal",
            reference=(MEMORY_GOAL_MB,),
        )


def _planned(settings: Settings) -> Iterator[Figure]:
    """`orch plan` of eight ranks on each of many hosts, beside that of the quickstart, and the memory that it takes."""
    taken: dict[Path, list[float]] = {ROOT / PLAN: []}
    labels: dict[Path, str] = {}
    for count in QUICK_PLANNED if settings.quick else PLANNED:
        folder = settings.scratch / f"planned{count}"
        folder.mkdir()
        hosts = {
            f"h{n}": {"ssh": f"h{n}", "data": {"address": f"10.0.{n // 250}.{n % 250 + 1}/16", "device": "eth0"}}
            for n in range(count)
        }
        (folder / "inventory.yaml").write_text(yaml.safe_dump({"link": "10gbit", "hosts": hosts}))
        file = folder / "plan.yaml"
        file.write_text(yaml.safe_dump(training(tuple(hosts), RANKS_A_HOST * count)))
        taken[file], labels[file] = [], f"orch plan of {RANKS_A_HOST * count} ranks on {count} hosts"
    for _ in range(settings.times(7, 3)):
        for file, seconds in taken.items():
            seconds.append(call(orch_argv("plan", str(file)), cwd=ROOT).seconds)
    quickstart = tuple(taken[ROOT / PLAN])
    for file, label in labels.items():
        yield Figure(what=label, unit="s", values=tuple(taken[file]), against="of the quickstart", reference=quickstart)
        peaks = file.with_name("peaks.json")
        call([sys.executable, str(Path(__file__).with_name("watched.py")), str(peaks), "plan", str(file)], cwd=ROOT)
        yield Figure(
            what=f"{label}: peak memory",
            unit="MB",
            values=(json.loads(peaks.read_bytes())["peak_bytes"] / 1e6,),
            against="goal",
            reference=(MEMORY_GOAL_MB,),
        )


def _figures(shape: Shape, ran: _Ran, theirs: float) -> Iterator[Figure]:
    yield Figure(
        what=f"{shape.label}: an agent on each",
        unit="s",
        values=(ran.seconds["open"],),
        against=f"ssh true, {AT_ONCE} at once",
        reference=(theirs,),
        over=((f"hosts, {shape.label.partition(', ')[2]}", float(shape.hosts), "an agent on each"),),
    )
    yield Figure(what=f"{shape.label}: collectors and ranks started", unit="s", values=(ran.seconds["start"],))
    yield Figure(
        what=f"{shape.label}: ended and put back",
        unit="s",
        values=(ran.seconds["put back"],),
        against="goal",
        reference=(PUT_BACK_GOAL_S,),
    )
    yield Figure(
        what=f"{shape.label}: peak memory of the controller",
        unit="MB",
        values=(ran.peak_bytes / 1e6,),
        against="goal",
        reference=(MEMORY_GOAL_MB,),
    )
