"""A year of nights as a store: runs with the manifests and tables that real ones have, of a sweep repeated every night.

    python -m tests.bench.year FOLDER [RUNS]

Iteration times are drawn around a level that grows with the load and moves from run to run, and has two steps in the
year; every other table is as long as that of a real run of four hosts and one window.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.parts.rows import TABLES
from orchestrator.store import rundir
from orchestrator.store.stamps import MANIFEST
from orchestrator.store.tabular.tables import TableWriter
from tests.bench.run_manifests import manifest_of

NIGHTLY = 20  # runs a night
DAY_S = 86_400
BEGAN_S = 1_767_225_600 + 22 * 3600  # 2026-01-01, 22:00
HOSTS = ("h1", "h2", "h3", "h4")
WARMUP, ITERATIONS = 5, 100
LENGTHS: Mapping[str, int] = {"packets": 600, "capture_flows": 24, "counters": 400, "processors": 4}  # rows of a host


def make(results: Path, runs: int, *, there: int = 0) -> None:
    """Write sealed runs until there are so many, the last of them the newest; some are there already."""
    with ProcessPoolExecutor() as pool:
        list(pool.map(_write, [results] * (runs - there), range(there, runs), chunksize=50))


def _write(results: Path, number: int) -> None:
    night, turn = divmod(number, NIGHTLY)
    began_ns = (BEGAN_S + night * DAY_S + turn * 600) * 10**9
    draw = np.random.default_rng(number)
    level = (0.16 + 0.004 * turn) * np.exp(draw.normal(0, 0.01)) * (1.03 if 120 <= night < 240 else 1.0)
    run = rundir.new_run_id(f"{turn:08x}", began_ns)
    folder = results / "nightly" / run
    with TableWriter(folder / "tables", run=run) as writer:
        for rank, host in enumerate(HOSTS):
            writer.add("iterations", _iterations(draw, rank, level, began_ns), node=host, launch=f"rank{rank}")
            for table, length in LENGTHS.items():
                writer.add(table, _rows(draw, table, length, began_ns), node=host, launch="source")
        for table in ("training", "loads"):
            writer.add(table, _rows(draw, table, 1, began_ns))
    (folder / "experiment.yaml").write_text("workload: {ddp: {model: resnet50}}\n")
    (folder / MANIFEST).write_text(json.dumps(_manifest(number, turn, run, began_ns, level), indent=1))


def _manifest(number: int, turn: int, run: str, began_ns: int, level: float) -> dict[str, Any]:
    found = manifest_of(number)
    (window,) = found["windows"]
    window["iterations"] = {"training": {"first": WARMUP, "last": WARMUP + ITERATIONS - 1}}
    window |= {"start_ns": began_ns, "end_ns": began_ns + int(ITERATIONS * level * 1e9)}
    for row in window["training"]:
        row |= {"mean_s": level, "p50_s": level, "p99_s": 1.1 * level}
    point = {
        "point": f"{turn:08x}",
        "values": {"traffic.0.iperf.load": f"{turn}gbit"},
        "repetition": 1,
        "recheck": False,
    }
    night = rundir.new_run_id("nightly", (BEGAN_S + number // NIGHTLY * DAY_S) * 10**9)
    about = {"id": night, "name": "nightly", "points": {"w1": point}}
    captures = [{"path": f"hosts/h1/{place:04d}.pcap", "bytes": 1, "sha256": "0" * 64} for place in range(110)]
    return {
        **found,
        "run": run,
        "experiment": "nightly",
        "began_ns": began_ns,
        "ended_ns": began_ns + 6 * 10**10,
        "sweep": about,
        "artifacts": captures,
    }


def _iterations(draw: np.random.Generator, rank: int, level: float, began_ns: int) -> dict[str, Any]:
    count = WARMUP + ITERATIONS
    took = level * np.exp(draw.normal(0, 0.02, count))
    ends = began_ns + (np.cumsum(took) * 1e9).astype(np.int64)
    found = dict(_rows(draw, "iterations", count, began_ns))
    return {
        **found,
        "job": ["training"] * count,
        "rank": [rank] * count,
        "iteration": np.arange(count),
        "seconds": took,
        "window_name": [""] * WARMUP + ["w1"] * ITERATIONS,
        "end_ns": ends,
        "start_ns": ends - (took * 1e9).astype(np.int64),
        "forward_s": took / 4,
        "backward_s": took / 2,
        "wait_s": took / 4,
    }


def _rows(draw: np.random.Generator, table: str, length: int, began_ns: int) -> dict[str, Any]:
    return dict(_columns(draw, table, length, began_ns))


def _columns(draw: np.random.Generator, table: str, length: int, began_ns: int) -> Iterator[tuple[str, Any]]:
    for column, kind in TABLES[table].items():
        if column.endswith("_ns"):
            yield column, began_ns + np.sort(draw.integers(0, 60 * 10**9, length))
        elif kind == "int64":
            yield column, draw.integers(0, 10**6, length)
        elif kind == "float64":
            yield column, draw.normal(1.0, 0.1, length)
        elif kind == "bool":
            yield column, [True] * length
        else:
            yield column, [f"{column}{place % 4}" for place in range(length)]


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 6_600)
