"""Manifests of runs that nobody measured, with what those of real runs hold."""

from __future__ import annotations

from typing import Any

from orchestrator.store import rundir

EXPERIMENTS = 20


def manifest_of(number: int) -> dict[str, Any]:
    """What a real run's manifest holds, as large as one of three hosts, five collectors and one window."""
    began_ns = (1_700_000_000 + 600 * number) * 10**9
    load = 1e9 * (number % 24)
    gate = {"name": "load", "passed": True, "required": True, "measured": 0.01, "limit": 0.05, "message": "m" * 60}
    launch = {
        "name": "tcpdump.h1",
        "node": "h1",
        "part": "collector.tcpdump",
        "role": "collector",
        "argv": ["x" * 20] * 12,
        "env": {},
        "files": {"sampler.py": 4000},
        "privileged": True,
        "required": True,
        "job": None,
        "rank": None,
        "window": None,
        "source": None,
        "flows": [],
        "status": 0,
        "failed": None,
    }
    return {
        "format": 3,
        "run": rundir.new_run_id(f"{number:08x}", began_ns),
        "experiment": f"e{number % EXPERIMENTS}",
        "outcome": "completed",
        "stage": "sealed",
        "error": None,
        "controller": {"host": "c", "pid": 1, "start": 1},
        "began_ns": began_ns,
        "ended_ns": began_ns + 10**10,
        "valid": number % 10 != 0,
        "reasons": [] if number % 10 else ["load: 9 % too low"],
        "point": f"{number % 97:08x}",
        "repetition": 1,
        "seed": 1,
        "scale": 100,
        "topology": {"kind": "local", "nodes": [{"name": "h1", "kind": "host"}] * 4, "links": []},
        "jobs": [
            {
                "name": "training",
                "workload": "ddp",
                "model": "resnet50",
                "compute": "emulated",
                "ranks": [{"rank": i, "node": f"h{i}"} for i in range(4)],
            }
        ],
        "launches": [launch] * 22,
        "artifacts": [{"path": "hosts/h1/x" * 4, "bytes": 1, "sha256": "0" * 64}] * 110,
        "windows": [
            {
                "name": "w1",
                "start_ns": began_ns,
                "end_ns": began_ns + 10**9,
                "wanted_iterations": 100,
                "iterations": {"training": {"first": 5, "last": 104}},
                "gates": [gate] * 24,
                "valid": number % 10 != 0,
                "reasons": [],
                "loads": [
                    {
                        "source": "iperf0",
                        "src": "h1",
                        "dst": "h5",
                        "requested_bps": load / 100,
                        "achieved_bps": load / 100,
                    }
                ],
                "training": [
                    {
                        "job": "training",
                        "ranks": 4,
                        "iterations": 100,
                        "sent_bytes": 1e6,
                        "theory_bytes": 1e6,
                        **{f"{key}{end}_s": 0.2 for key in ("mean", "p50", "p99") for end in ("", "_low", "_high")},
                    }
                ],
            }
        ],
        "phases": {"open": 0.2, "window": 1.0, "total": 9.0},
        "overhead_s": 1.1,
        "notes": [],
        "capture": None,
    }
