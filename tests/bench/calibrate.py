"""The compute time with which each model of the study takes the published time without cross traffic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import yaml

from orchestrator.core.units import duration_text, quantity
from orchestrator.papers.salamy.published import salamy
from tests.bench.commands import INVALID, ROOT, call, orch_argv
from tests.bench.figure import Figure, Settings
from workloads.models import catalog

SHARES = (0.85, 1.0, 1.15)  # of the compute time that the catalog has now
EXPERIMENT = ROOT / "playbooks/studies/salamy/a.yaml"
MODEL, TIME = "workload.ddp.model", "workload.ddp.compute_time"

Points = dict[str, list[tuple[float, float]]]


def measure(settings: Settings) -> Iterator[Figure]:
    """Iterations at three compute times around the present one; a line through their medians, and where it meets."""
    printed = {model.model: model.iteration_s for model in salamy().models}
    present = {name: seconds for name in printed if (seconds := catalog.load(name).compute_s) is not None}
    found = _points(settings, [(name, round(share * s, 6)) for share in SHARES for name, s in present.items()])
    for name, points in found.items():
        level, slope = np.polynomial.polynomial.polyfit(*np.transpose(points), 1)
        told = ", ".join(f"{iteration_s:.4f} s with {compute_s:.4f}" for compute_s, iteration_s in sorted(points))
        yield Figure(
            what=f"compute of {name} for iterations of {printed[name]:g} s", unit="s",
            values=(float((printed[name] - level) / slope),), against="catalog", reference=(present[name],), note=told,
        )  # fmt: skip


def _points(settings: Settings, times: list[tuple[str, float]]) -> Points:
    """By model: compute time and median iteration time, in seconds."""
    file, results = settings.scratch / "calibrate.yaml", settings.scratch / "results"
    data = {
        "name": "calibrate",
        "experiment": str(EXPERIMENT),
        "axes": {"traffic.0.iperf.load": ["0gbit"]},
        "zip": [{MODEL: [name for name, _ in times], TIME: [duration_text(seconds) for _, seconds in times]}],
    }
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    options = ["--set", f"measure.iterations={settings.times(40, 20)}", "--results", str(results), "--wait", "10min"]
    call(orch_argv("sweep", str(file), *options), ok=(0, INVALID), within_s=1800.0)
    found: Points = {}
    for path in sorted((results / "calibrate").glob("*/manifest.json")):
        name, point = _point(path)
        found.setdefault(name, []).append(point)
    return found


def _point(path: Path) -> tuple[str, tuple[float, float]]:
    manifest = json.loads(path.read_text())
    (planned,) = manifest["sweep"]["points"].values()
    seconds = float(manifest["windows"][0]["training"][0]["p50_s"])
    _, compute_s = quantity(planned["values"][TIME]) or ("", float("nan"))
    return planned["values"][MODEL], (compute_s, seconds)
