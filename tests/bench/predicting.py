"""Processor time and memory of `orch predict`, by ranks, hosts and grain, alone and beside web search."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.bench.commands import ROOT, call
from tests.bench.figure import Figure, Settings

ITERATIONS = 100
GOAL_S = {16: 3.0, 1024: 120.0}  # of one core, by ranks
LOCAL_HOSTS = 64  # more of them are a cluster's, without a scale
WITHIN_S = 3600.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Ranks of a training on so many hosts, and whether web search runs beside it."""

    ranks: int
    hosts: int
    beside: bool
    grain: str = ""  # the default one

    @property
    def label(self) -> str:
        beside = "beside web search" if self.beside else "alone"
        grain = f", {self.grain}" if self.grain else ""
        return f"{self.ranks} ranks on {self.hosts} hosts, {beside}{grain}"


SHAPES = (
    Shape(16, 16, beside=True),
    Shape(16, 16, beside=True, grain="packets"),
    *(
        Shape(ranks, hosts, beside)
        for ranks, hosts in ((256, 256), (1024, 128), (1024, 1024))
        for beside in (False, True)
    ),
)
QUICK = (Shape(4, 4, beside=True), Shape(64, 8, beside=False))


def measure(settings: Settings) -> Iterator[Figure]:
    """One draw of a hundred iterations of ResNet-50 under DDP; what is compiled is compiled before."""
    for shape in (Shape(4, 4, beside=True, grain="packets"), Shape(4, 4, beside=True, grain="flows")):
        _predicted(shape, settings.scratch, iterations=2)
    for shape in QUICK if settings.quick else SHAPES:
        taken = _predicted(shape, settings.scratch, iterations=ITERATIONS)
        goal = (GOAL_S[shape.ranks],) if shape.ranks in GOAL_S else ()
        against = "goal" if goal else ""
        yield Figure(what=shape.label, unit="s of a core", values=(taken["cpu_s"],), against=against, reference=goal)
        yield Figure(what=f"{shape.label}: peak memory", unit="MB", values=(taken["peak_bytes"] / 1e6,))


def _predicted(shape: Shape, scratch: Path, *, iterations: int) -> dict[str, Any]:
    """Predict a window of this shape; return what it took."""
    hosts = {
        f"h{number + 1}": {
            "ssh": f"h{number + 1}",
            "data": {"address": f"10.0.{number // 250}.{number % 250 + 1}/16", "device": "eth0"},
        }
        for number in range(shape.hosts)
    }
    (scratch / "inventory.yaml").write_text(yaml.safe_dump({"link": "25gbit", "hosts": hosts}))
    local = {"local": {"hosts": shape.hosts, "link": "25gbit", "scale": 100}}
    made: dict[str, Any] = {
        "name": "predicting",
        "testbed": local if shape.hosts <= LOCAL_HOSTS else {"inventory": "inventory.yaml"},
        "workload": {
            "ddp": {
                "model": "resnet50",
                "hosts": [f"h{1 + rank * shape.hosts // shape.ranks}" for rank in range(shape.ranks)],
            }
        },
        "measure": {"iterations": iterations},
    }
    if shape.beside:
        made["traffic"] = [{"websearch": {"from": f"h{shape.hosts}", "to": "h1", "load": "16gbit"}}]
    file, peaks = scratch / "predicted.yaml", scratch / "peaks.json"
    file.write_text(yaml.safe_dump(made))
    chosen = ["--grain", shape.grain] if shape.grain else []
    argv = [sys.executable, str(Path(__file__).with_name("watched.py")), str(peaks)]
    call([*argv, "predict", str(file), "--draws", "1", *chosen], cwd=ROOT, within_s=WITHIN_S)
    found: dict[str, Any] = json.loads(peaks.read_bytes())
    return found
