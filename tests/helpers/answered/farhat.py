"""Farhat and Ghobadi: three models over both libraries, their rings, and durations over rates and batches."""

from __future__ import annotations

from typing import Any

import numpy as np

Rows = list[dict[str, Any]]

RUNS, WORKERS = (1, 2, 3), 16
SIZES_MB = {"mobilenet_v2": 14.0, "resnet50": 102.0, "vgg16": 553.0}
LIBRARIES = ("gloo", "mpi")


def volumes(random: np.random.Generator) -> Rows:
    return [
        {
            "library": library,
            "ranks": WORKERS,
            "model": model,
            "model_bytes": size * 1e6,
            "theory_bytes": 30 * size * 1e6,
            "payload_bytes": 30e6 * size * random.normal(1.003, 0.001),
            "repetition": run,
        }
        for library in LIBRARIES
        for model, size in SIZES_MB.items()
        for run in RUNS
    ]


def edges(random: np.random.Generator) -> Rows:
    """Gloo sends to the worker before, Open MPI to the one after."""
    places = range(1, WORKERS + 1)
    return [
        {
            "library": library,
            "ranks": WORKERS,
            "model": "resnet50",
            "run": f"{library}{run}",
            "repetition": run,
            "src": f"h{src * 5 % 17}",
            "dst": f"h{dst * 5 % 17}",
            "src_worker": src,
            "dst_worker": dst,
            "payload_bytes": 2e8 * random.normal(1, 0.01) if dst == (src + step - 1) % WORKERS + 1 else 1e4,
            "theory_bytes": float("nan"),
        }
        for library, step in zip(LIBRARIES, (-1, 1), strict=True)
        for run in RUNS
        for src in places
        for dst in places
        if src != dst
    ]


def iterations(random: np.random.Generator) -> Rows:
    """Two rates of a model that is emulated, and two batches of one that computes."""
    points = [("resnet50", "emulated", 256, rate, 0.6, 0.6 + 0.8e9 / rate) for rate in (1e9, 2e9)]
    points += [("small_cnn", "real", batch, 1e9, batch / 400, 0.02 + batch / 400) for batch in (16, 64)]
    return [
        {
            "library": "gloo",
            "ranks": 4,
            "model": model,
            "computes": computes,
            "batch": batch,
            "link_bps": rate,
            "seconds": seconds * random.normal(1, 0.003),
            "compute_s": compute_s,
            "repetition": run,
        }
        for model, computes, batch, rate, compute_s, seconds in points
        for run in RUNS
    ]


def spans(_random: np.random.Generator) -> Rows:
    return [{"repetition": run, "run": f"r{run}", "lane": "compute", "span": "forward", "spans": 40.0} for run in RUNS]


FIRST = {
    "Observation (i): data an iteration over the model size": volumes,
    "Introduction: the ring of the workers against the launch order": edges,
    "Observation (ii): the duration of an iteration": iterations,
    "Introduction: what Horovod's Timeline displays": spans,
}
