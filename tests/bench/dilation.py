"""What dilation of time changes near the knee of the scale model, and from which dilation on results agree.

ResNet-50 on four hosts beside cross traffic from the first of them, 25 Gbit/s at full size, times divided back. Points
are measured one by one into `results/bench-dilation`, the most important ones first; a later call goes on from there
and does not repeat what is measured; points not yet measured are left out. `--quick` measures the first
of them with few iterations.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.bench.commands import ROOT, orch_run, training
from tests.bench.figure import Figure, Settings, Table

STORE = ROOT / "results" / "bench-dilation"
LARGEST = 20
ITERATIONS, WARM_UP = 40, 4
BUDGET_S = 40 * 60.0  # of one call; a later one goes on
AGREES = {"mean": 0.03, "p50": 0.03, "p99": 0.15}  # with the largest dilation: then it can stand beside a paper's


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement: cross traffic in Gbit/s, and how the testbed is set up; `repetition` draws other flows."""

    traffic: str = "web search"
    load: float
    dilation: int = 1
    scale: int = 100
    queue_ms: int = 5
    repetition: int = 1

    @property
    def name(self) -> str:
        """Name of its experiment."""
        words = (self.traffic.replace(" ", ""), f"{self.load:g}g", f"d{self.dilation}", f"s{self.scale}")
        return "-".join((*words, f"q{self.queue_ms}", f"r{self.repetition}"))

    @property
    def setting(self) -> tuple[str, float, int, int]:
        """What dilation does not change."""
        return self.traffic, self.load, self.scale, self.queue_ms


HEAVY = (20.0, 18.0, 16.0)


def points() -> tuple[Point, ...]:
    """Return every measurement, the most important ones first."""
    found = [Point(load=load, dilation=dilation) for load in HEAVY for dilation in (10, LARGEST, 1)]
    found += [Point(load=load) for load in (0.0, 8.0)]
    found += [Point(traffic="iperf", load=18.0, dilation=dilation) for dilation in (1, 10)]
    found += [Point(load=load, dilation=dilation) for dilation in (5, 2) for load in (18.0, 20.0, 16.0)]
    found += [Point(traffic="iperf", load=18.0, dilation=LARGEST)]
    found += [Point(load=load, dilation=10) for load in (0.0, 8.0)]
    changed: tuple[dict[str, int], ...] = ({"queue_ms": 1}, {"queue_ms": 20}, {"scale": 400}, {"scale": 50})
    found += [Point(load=load, dilation=d, **one) for load in (18.0, 20.0, 16.0) for one in changed for d in (1, 10)]
    found += [Point(traffic="iperf", load=18.0, dilation=dilation) for dilation in (5, 2)]
    found += [Point(load=load, dilation=dilation) for load in (8.0, 0.0) for dilation in (5, 2, LARGEST)]
    found += [Point(load=load, dilation=dilation, repetition=2) for load in HEAVY for dilation in (10, LARGEST, 1)]
    return tuple(found)


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Iteration times (mean, p50, p99) over dilations, loads, queues and scales, and which of them agree."""
    chosen = points()[: settings.times(len(points()), 2)]
    store = settings.scratch if settings.quick else STORE
    deadline = time.monotonic() + BUDGET_S
    for again in (False, True):  # what other work disturbed is measured once more, after all others
        for point in chosen:
            tries = _tries(store, point)
            if tries and not (again and len(tries) == 1 and tries[0]["disturbed"]):
                continue
            if time.monotonic() < deadline:
                _run(store, point, iterations=settings.times(ITERATIONS, 5))
    kept = {point: min(tries, key=lambda one: one["kept_share"]) for point in chosen if (tries := _tries(store, point))}
    seen = {point: one["ms"] for point, one in kept.items()}
    disturbed = {point for point, one in kept.items() if one["disturbed"]}
    pooled: dict[tuple[Any, ...], list[float]] = {}
    noisy_ones = {(*point.setting, point.dilation) for point in disturbed}
    for point, times in seen.items():
        pooled.setdefault((*point.setting, point.dilation), []).extend(times)
    rows = []
    for (*setting, dilation), times in sorted(pooled.items()):
        figures = _figures(times)
        largest = max(of for (*other, of) in pooled if other == setting)
        against = _figures(pooled[(*setting, largest)])
        off = {key: figures[key] / against[key] - 1 for key in figures}
        rows.append(
            (
                *setting,
                dilation,
                len(times),
                *(round(figures[key], 1) for key in figures),
                *(f"{off[key]:+.1%}" for key in off),
                _verdict(off, dilation=dilation, largest=largest),
                "other work disturbed it" if (*setting, dilation) in noisy_ones else "",
            )
        )
        traffic, load, scale, queue_ms = setting
        yield Figure(
            what=f"{traffic} {load:g} Gbit/s, scale {scale}, queue {queue_ms} ms, dilation {dilation}: mean",
            unit="ms",
            values=(figures["mean"],),
            note=f"p50 {figures['p50']:.0f}, p99 {figures['p99']:.0f}, n {len(times)}; {rows[-1][-2]}",
            over=(("dilation", float(dilation), f"{traffic} {load:g} Gbit/s, scale {scale}, queue {queue_ms} ms"),),
            tabled=True,
        )
    yield Table(
        title="Iteration times over dilations, against the largest one that was measured",
        columns=(
            *("traffic", "Gbit/s", "scale", "queue, ms", "dilation", "iterations", "mean, ms", "p50, ms", "p99, ms"),
            *("mean off", "p50 off", "p99 off", "comparable", "note"),
        ),
        rows=tuple(rows),
    )


def _figures(times: Sequence[float]) -> dict[str, float]:
    return {"mean": statistics.fmean(times), "p50": statistics.median(times), "p99": float(np.quantile(times, 0.99))}


def _verdict(off: dict[str, float], *, dilation: int, largest: int) -> str:
    if largest != LARGEST:
        return f"not compared: no dilation {LARGEST}"
    if dilation == largest:
        return "the largest"
    beyond = [key for key, share in AGREES.items() if abs(off[key]) > share]
    return f"not by {', '.join(beyond)}" if beyond else "yes"


def _tries(store: Path, point: Point) -> list[dict[str, Any]]:
    """Return what was measured of a point, each time."""
    return [json.loads(file.read_bytes()) for file in sorted(store.glob(f"{point.name}.[0-9].json"))]


def _run(store: Path, point: Point, *, iterations: int) -> dict[str, Any]:
    """Measure a point, and keep its iteration times (ms, at full size) beside what says that it was disturbed."""
    store.mkdir(parents=True, exist_ok=True)
    run = orch_run(_experiment(point, iterations), store)
    rows = pq.read_table(run.path / "tables" / "iterations.parquet")
    rows = rows.filter(pc.and_(pc.equal(rows["window_name"], "w1"), pc.equal(rows["rank"], 0)))
    window = run.manifest["windows"][0]
    waits = [gate for gate in window["gates"] if gate["name"] == "processor"]  # of the training, and of senders
    found = {
        "point": point.name,
        "run": run.path.name,
        "ms": ((rows["end_ns"].to_numpy() - rows["start_ns"].to_numpy()) / 1e6).tolist(),
        "kept_share": max(gate["measured"] for gate in waits),
        "disturbed": not all(gate["passed"] for gate in waits),
        "achieved_gbps": [
            load["achieved_bps"] and load["achieved_bps"] * run.manifest["scale"] / 1e9 for load in window["loads"]
        ],
        "reasons": window["reasons"],
    }
    number = len(_tries(store, point)) + 1
    (store / f"{point.name}.{number}.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def _experiment(point: Point, iterations: int) -> dict[str, Any]:
    load = f"{point.load:g}gbit"
    traffic: dict[str, list[dict[str, Any]] | None] = {
        "web search": [{"websearch": {"from": "h1", "to": "h5", "load": load}}],
        "iperf": [{"iperf": {"from": "h1", "to": "h5", "load": load, "streams": 4}}],
    }
    return training(
        5,
        name=point.name,
        seed=point.repetition,
        testbed={
            "local": {
                "hosts": 5,
                "link": "25gbit",
                "scale": point.scale,
                "dilation": point.dilation,
                "queue": f"{point.queue_ms}ms",
            }
        },
        workload={"ddp": {"model": "resnet50", "batch": 64, "hosts": ["h1", "h2", "h3", "h4"]}},
        traffic=traffic[point.traffic] if point.load else None,
        collect=["nic"],
        measure={"warmup": WARM_UP, "iterations": iterations, "at_most": "120s"},
        validity={"load": "as-achieved"},
    )
