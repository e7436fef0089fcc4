"""The results store at size: 10,000 runs listed and filtered; a year of nights queried, here and over S3."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.store import rundir
from tests.bench import a_year
from tests.bench.commands import call, orch_argv
from tests.bench.figure import Figure, Settings

GOAL_S = 2.0
EXPERIMENTS = 20


def measure(settings: Settings) -> Iterator[Figure]:
    """Time whole `orch ls` commands on generated manifests of the size that real ones have."""
    count = settings.times(10_000, 1_000)
    results = settings.scratch / "results"
    size = make_store(results, count)
    note = f"{count:,} runs, manifests of {size / 1e3:.0f} kB"
    listing = orch_argv("ls", "--results", str(results))
    first = call(listing, within_s=600.0)
    yield Figure(what="orch ls, the first time: the index is made", unit="s", values=(first.seconds,), note=note)
    times = settings.times(5, 2)
    for what, more in (
        ("orch ls", ()),
        ("orch ls --where load<=8gbit --valid --since", ("--where", "load<=8gbit", "--valid", "--since", "2020-01-01")),
        ("orch ls --experiment", ("--experiment", "e7")),
    ):
        found = [call([*listing, *more], within_s=120.0) for _ in range(times)]
        lines = len(found[0].stdout.splitlines())
        seconds = tuple(done.seconds for done in found)
        yield Figure(what=what, unit="s", values=seconds, against="goal", reference=(GOAL_S,), note=f"{lines:,} lines")
    began = time.perf_counter()
    read = sum(1 for _ in rundir.entries(results))
    took = time.perf_counter() - began
    yield Figure(what="every manifest read, no index", unit="s", values=(took,), note=f"{read:,} manifests")
    shutil.rmtree(results)
    yield from a_year.measure(settings)


def make_store(results: Path, count: int) -> int:
    """Sealed runs of several experiments; gives the bytes of one manifest."""
    for number in range(count):
        manifest = manifest_of(number)
        folder = results / manifest["experiment"] / manifest["run"]
        folder.mkdir(parents=True)
        text = json.dumps(manifest, indent=1)
        (folder / rundir.MANIFEST).write_text(text)
    return len(text)


def manifest_of(number: int) -> dict[str, Any]:
    """What a real run's manifest holds, as large as one of three hosts, five collectors and one window."""
    began_ns = (1_700_000_000 + 600 * number) * 10**9
    load = 1e9 * (number % 24)
    gate = {"name": "load", "passed": True, "required": True, "measured": 0.01, "limit": 0.05, "message": "m" * 60}
    launch = {
        "name": "tcpdump.h1", "node": "h1", "part": "collector.tcpdump", "role": "collector", "argv": ["x" * 20] * 12,
        "env": {}, "files": {"sampler.py": 4000}, "privileged": True, "required": True, "job": None, "rank": None,
        "window": None, "source": None, "flows": [], "status": 0, "failed": None,
    }  # fmt: skip
    return {
        "format": 3, "run": rundir.new_run_id(f"{number:08x}", began_ns), "experiment": f"e{number % EXPERIMENTS}",
        "outcome": "completed", "stage": "sealed", "error": None, "controller": {"host": "c", "pid": 1, "start": 1},
        "began_ns": began_ns, "ended_ns": began_ns + 10**10, "valid": number % 10 != 0,
        "reasons": [] if number % 10 else ["load: 9 % too low"], "point": f"{number % 97:08x}", "repetition": 1,
        "seed": 1, "scale": 100,
        "topology": {"kind": "local", "nodes": [{"name": "h1", "kind": "host"}] * 4, "links": []},
        "jobs": [{"name": "training", "workload": "ddp", "model": "resnet50", "compute": "emulated",
                  "ranks": [{"rank": i, "node": f"h{i}"} for i in range(4)]}],
        "launches": [launch] * 22, "artifacts": [{"path": "hosts/h1/x" * 4, "bytes": 1, "sha256": "0" * 64}] * 110,
        "windows": [{
            "name": "w1", "start_ns": began_ns, "end_ns": began_ns + 10**9, "wanted_iterations": 100,
            "iterations": {"training": {"first": 5, "last": 104}}, "gates": [gate] * 24, "valid": number % 10 != 0,
            "reasons": [],
            "loads": [{"source": "iperf0", "src": "h1", "dst": "h5", "requested_bps": load / 100,
                       "achieved_bps": load / 100}],
            "training": [{"job": "training", "ranks": 4, "iterations": 100, "sent_bytes": 1e6,
                          "theory_bytes": 1e6, **{f"{key}{end}_s": 0.2 for key in ("mean", "p50", "p99")
                                                  for end in ("", "_low", "_high")}}],
        }],
        "phases": {"open": 0.2, "window": 1.0, "total": 9.0}, "overhead_s": 1.1, "notes": [], "capture": None,
    }  # fmt: skip
