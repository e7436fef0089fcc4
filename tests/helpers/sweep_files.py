"""Sweep files that tests start from, and runs of them as a controller would have left them."""

from __future__ import annotations

import time
from pathlib import Path

from orchestrator.store.rundir import new_run_id
from tests.helpers import manifests

SWEEP = """\
name: s
axes:
  traffic.0.iperf.load: {values: [0, 100, 200], unit: mbit}
  workload.ddp.model: [resnet50, vgg16]
experiment:
  testbed: {local: {hosts: 3, link: 1gbit, scale: 10}}
  workload: {ddp: {model: resnet50, hosts: [h1, h2]}}
  traffic:
    - iperf: {from: h1, to: h3, load: 200mbit}
  measure: {warmup: 5, iterations: 10}
"""


def write(folder: Path, text: str = SWEEP, **more: str) -> Path:
    """A sweep file; `more` are further lines at its top."""
    path = folder / "s.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in more.items()) + text)
    return path


def window(name: str, *, valid: bool = True, achieved: float = 1.0, requested: float = 10e6, mean_s: float = 0.1):
    """A window's record in a manifest."""
    return {
        "name": name,
        "start_ns": 10**18,
        "end_ns": 10**18 + 2 * 10**9,
        "loads": [
            {
                "source": "iperf0",
                "src": "h1",
                "dst": "h3",
                "requested_bps": requested,
                "achieved_bps": requested * achieved,
            }
        ]
        if requested
        else [],
        "training": [
            {
                "job": "training",
                "iterations": 10,
                "sent_bytes": 1.0,
                "theory_bytes": 1.0,
                **{f"{what}{end}_s": mean_s for what in ("mean", "p50", "p99") for end in ("", "_low", "_high")},
            }
        ],
        "gates": [],
        "valid": valid,
        "reasons": [] if valid else ["the load is missed"],
    }


def leave(results: Path, about: dict, *, windows=(), outcome="completed", sealed=True, **more) -> Path:
    """The folder of a run of a sweep, `about` being what its manifest says of it."""
    number = len(list((results / about["name"]).glob("*")))
    folder = manifests.begun(
        results,
        new_run_id("cafe0123", time.time_ns()) + f"-{number}",
        experiment=about["name"],
        began_ns=time.time_ns(),
        scale=10,
        valid=outcome == "completed" and all(one["valid"] for one in windows),
        phases={"total": 12.0, "window": 2.0 * len(windows)},
        windows=list(windows),
        sweep=about,
        **{"outcome": outcome, "stage": "sealed", **more},
    )
    return folder.seal() if sealed else folder.path
