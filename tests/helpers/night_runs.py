"""Writes sealed runs of a nightly sweep with known iteration times, as small as a comparison can read them."""

from __future__ import annotations

import json
import math
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import yaml

from orchestrator.analysis.stats.statistics import summarise
from orchestrator.store.manifests.summaries import FORMAT
from orchestrator.store.tabular.tables import TableWriter

BEGAN_NS = 1_795_000_000_000_000_000  # 2026-11-18
DAY_NS = 86_400_000_000_000
WARMUP = 3
RANKS = 2


def write_run(
    results: Path,
    *,
    name: str = "nightly",
    night: int = 0,
    repetition: int = 1,
    seed: int | None = None,
    seconds: dict[str, float] | None = None,
    iterations: int = 100,
    spread: float = 0.004,
    invalid: tuple[str, ...] = (),
    sweep: bool = True,
    rechecked: tuple[str, ...] = (),
    commit: str = "8e56fa4",
    also: dict | None = None,
    recorded: dict[str, np.ndarray] | None = None,
    began_s: int = 0,
) -> Path:
    """A run with one window a point; `seconds` is the level of each, before run-to-run variation.

    It began `began_s` seconds later than the others of its night. With `recorded` its iterations are these, in seconds,
    those of the warm-up among them.
    """
    levels = seconds or dict.fromkeys(recorded or {}, 0.0) or {"load0": 0.16, "load8": 0.2}
    random = np.random.default_rng(1000 * night + repetition if seed is None else seed)
    began = BEGAN_NS + night * DAY_NS + (repetition + began_s) * 1_000_000_000
    run = f"{datetime.fromtimestamp(began / 1e9, tz=timezone.utc):%Y%m%dT%H%M%S}000-{repetition:08x}"
    path = results / name / run
    (path / "tables").mkdir(parents=True)
    windows, at = [], 0
    with TableWriter(path / "tables", run=run) as writer:
        for window, level in levels.items():
            took = level * np.exp(random.normal(0, spread) + random.normal(0, 0.01, WARMUP + iterations))
            took = took if recorded is None else recorded[window]
            first, last = at + WARMUP, at + len(took) - 1
            _add(writer, window, np.arange(at, at + len(took)), took, first)
            windows.append(
                {
                    "name": window,
                    "valid": window not in invalid,
                    "iterations": {"training": {"first": first, "last": last}},
                    "reasons": ["cross traffic missed the request"] if window in invalid else [],
                    "start_ns": began + len(windows),
                    "end_ns": began + len(windows) + 1,
                    "loads": [],
                    "gates": [],
                    "training": [_training(took[WARMUP:])],
                }
            )
            at += len(took)
    manifest = {
        "format": FORMAT,
        "run": run,
        "experiment": name,
        "outcome": "completed",
        "stage": "sealed",
        "scale": 100,
        "valid": not invalid,
        "reasons": [],
        "began_ns": began,
        "windows": windows,
        "repetition": repetition,
        "git": {"commit": commit},
        "versions": {"orch": "0.1.0"},
        "topology": {"kind": "local", "mtu": 1500, "nodes": [], "links": []},
        "launches": [],
        "artifacts": [],
    }
    if sweep:
        manifest["sweep"] = {
            "id": sweep_id(night),
            "name": name,
            "definition": "d",
            "mode": "windows",
            "points": {
                window: {
                    "point": f"id-{window}",
                    "repetition": repetition,
                    "recheck": window in rechecked,
                    "values": {"traffic.0.iperf.load": f"{window.removeprefix('load')}gbit"},
                }
                for window in levels
            },
        }
        (results / "sweeps" / name / sweep_id(night)).mkdir(parents=True, exist_ok=True)
    (path / "manifest.json").write_text(json.dumps(manifest))
    experiment = {"workload": {"ddp": {"model": "resnet50"}}, "windows": [{"name": name} for name in levels]}
    (path / "experiment.yaml").write_text(yaml.safe_dump({**experiment, **(also or {})}))
    return path


def _training(seconds):
    """A job's row as sealing writes it."""
    found = summarise(seconds)
    times = {
        f"{name}{end}_s": getattr(getattr(found, name), which)
        for name in ("mean", "p50", "p99")
        for end, which in (("", "value"), ("_low", "low"), ("_high", "high"))
    }
    finite = {key: value if math.isfinite(value) else None for key, value in times.items()}
    return {"job": "training", "ranks": RANKS, "iterations": len(seconds), **finite}


def sweep_id(night: int) -> str:
    """The id of a night's sweep."""
    began = datetime.fromtimestamp((BEGAN_NS + night * DAY_NS) / 1e9, tz=timezone.utc)
    return f"{began:%Y%m%dT%H%M%S}000-5eed{night:04d}"


def write_night(results: Path, night: int, *, slower: float = 1.0, repetitions: int = 3, **more) -> list[Path]:
    """A night of some repetitions; `slower` multiplies the first point."""
    return [
        write_run(results, night=night, repetition=k + 1, seconds={"load0": 0.16 * slower, "load8": 0.2}, **more)
        for k in range(repetitions)
    ]


def _add(writer, window, numbers, took, first):
    n = len(numbers)
    ends = np.cumsum((took * 1e9).astype(np.int64))
    names = [window if number >= first else "" for number in numbers]
    for rank in range(RANKS):
        writer.add(
            "iterations",
            {
                "job": ["training"] * n,
                "rank": [rank] * n,
                "window_name": names,
                "iteration": numbers,
                "start_ns": ends - (took * 1e9).astype(np.int64),
                "end_ns": ends,
                "seconds": took,
                "forward_s": took / 3,
                "backward_s": took / 3,
                "wait_s": took / 3,
                "loss": [None] * n,
                "samples": [64] * n,
                "accuracy": [None] * n,
            },
            node=f"h{rank + 1}",
            launch=f"rank{rank}",
        )
