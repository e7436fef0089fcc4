"""What many hosts take by SSH, straight and through one jump host: time to open, start and put back, and memory."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import local
from tests.bench.commands import INVALID, call
from tests.bench.figure import Figure, Settings
from tests.rack import Rack, light, rack

MEMORY_GOAL_MB = 250.0
PUT_BACK_GOAL_S = 10.0
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
    *(Shape(hosts, jump) for hosts in (4, 16, 64, 128) for jump in (False, True)),
    *(Shape(hosts, True, SLOW_BPS) for hosts in (64, 128)),
)
QUICK = (Shape(4, False), Shape(16, True), Shape(16, True, SLOW_BPS))


def measure(settings: Settings) -> Iterator[Figure]:
    """Whole runs of a rank a host, counters and a changed congestion control on each, from a machine of its own."""
    for number, shape in enumerate(QUICK if settings.quick else SHAPES):
        folder = settings.scratch / f"size{number}"
        with local.machine_to_ourselves(), rack(shape.hosts, folder, rate_bps=shape.rate_bps) as up:
            theirs = _logins(up, jump=shape.jump)
            ran = carried_out(up, light(up.hosts), up.inventory(jump=shape.jump))
        yield from _figures(shape, ran, theirs)


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


def carried_out(up: Rack, data: Mapping[str, Any], inventory: Mapping[str, Any]) -> _Ran:
    """A run on the controller of the rack."""
    file, peaks, results = up.files(data, inventory), up.folder / "peaks.json", up.folder / "results"
    watched = Path(__file__).with_name("watched.py")
    argv = [sys.executable, watched, peaks, "run", file, "--force", "--no-report", "--json", "--results", results]
    call(up.on_controller(argv), ok=(0, INVALID), within_s=RUN_S)
    (path,) = results.glob("*/*/events.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return _Ran(_seconds(events), json.loads(peaks.read_bytes())["peak_bytes"])


def _seconds(events: list[dict[str, Any]]) -> dict[str, float]:
    """How long it took to open all, to start all once they were open, and to put all back once it was measured."""
    began = [(event["name"], event["monotonic_ns"] / 1e9) for event in events if event["event"] == "phase"]
    at = dict(reversed(began))  # the first of each name
    return {
        "open": at["check"] - at["open"],
        "start": at["preflight"] - at["collectors"],
        "put back": at["residue"] - at["stop"],
    }


def _logins(up: Rack, *, jump: bool) -> float:
    """Seconds until `ssh HOST true` has worked on each host, many at once, each again until it does."""
    one = f"until ssh -F {up.ssh_config(jump=jump)} {{}} true; do sleep 0.2; done"
    line = f"printf '%s\\n' {' '.join(up.hosts)} | xargs -P {AT_ONCE} -I{{}} sh -c {shlex.quote(one)} 2>/dev/null"
    return call(up.on_controller(["sh", "-c", line]), within_s=RUN_S).seconds


def _figures(shape: Shape, ran: _Ran, theirs: float) -> Iterator[Figure]:
    yield Figure(
        what=f"{shape.label}: an agent on each", unit="s", values=(ran.seconds["open"],),
        against=f"ssh true, {AT_ONCE} at once", reference=(theirs,),
    )  # fmt: skip
    yield Figure(what=f"{shape.label}: collectors and ranks started", unit="s", values=(ran.seconds["start"],))
    yield Figure(
        what=f"{shape.label}: ended and put back", unit="s", values=(ran.seconds["put back"],),
        against="goal", reference=(PUT_BACK_GOAL_S,),
    )  # fmt: skip
    yield Figure(
        what=f"{shape.label}: peak memory of the controller", unit="MB", values=(ran.peak_bytes / 1e6,),
        against="goal", reference=(MEMORY_GOAL_MB,),
    )  # fmt: skip
