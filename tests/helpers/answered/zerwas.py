"""Zerwas: volumes, flows and rates as the paper prints them; theory says something else, so that it is told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from workloads.models import catalog

Row = dict[str, Any]

MODELS = ("mobilenet_v2", "densenet201", "resnet50", "resnet101")
RUNS = 3
TEN = 10  # classes
STEPS = 3920
FRAMEWORKS: dict[str, Row] = {
    "tensorflow": {"workload": "tensorflow", "strategy": "multi-worker-mirrored", "communication": "ring"},
    "tensorflow-nccl": {"workload": "tensorflow", "strategy": "multi-worker-mirrored", "communication": "nccl"},
    "tensorflow-servers": {"workload": "tensorflow", "strategy": "parameter-server"},
    "horovod-mpi": {"workload": "horovod", "controller": "mpi", "operations": "cpu"},
    "horovod-mpi-nccl": {"workload": "horovod", "controller": "mpi", "operations": "nccl"},
    "horovod-gloo": {"workload": "horovod", "controller": "gloo", "operations": "cpu"},
    "horovod-gloo-nccl": {"workload": "horovod", "controller": "gloo", "operations": "nccl"},
    "binary-tree-star": {"workload": "kungfu", "strategy": "BINARY_TREE_STAR"},
    "tree": {"workload": "kungfu", "strategy": "TREE"},
    "star": {"workload": "kungfu", "strategy": "STAR"},
    "clique": {"workload": "kungfu", "strategy": "CLIQUE"},
    "pair-averaging": {"workload": "p2p", "strategy": "pair-averaging"},
}
RING = {(1, 2), (2, 3), (3, 4), (1, 4)}
STAR = {(1, 2), (1, 3), (1, 4)}
ALL = {(a, b) for b in range(5) for a in range(1, b)}
EDGES = {
    "horovod-mpi": RING,
    "binary-tree-star": {(1, 2), (1, 3), (2, 4)},
    "tree": STAR,
    "star": STAR,
    "clique": ALL,
    "pair-averaging": ALL,
    "tensorflow-servers": {(0, 1), (0, 2), (0, 3), (0, 4)},
}
PEAKS = {
    "tensorflow": 9.60,
    "tensorflow-nccl": 9.78,
    "horovod-mpi": 8.07,
    "horovod-mpi-nccl": 9.74,
    "horovod-gloo": 9.61,
    "horovod-gloo-nccl": 9.76,
    "binary-tree-star": 9.56,
    "pair-averaging": 9.62,
}


def size(model: str) -> float:
    if model not in MODELS:
        return 560_000.0
    return 4.0 * catalog.with_classes(catalog.load(model), TEN).parameters


def points(random: np.random.Generator, *names: str, models: tuple[str, ...] = MODELS, **more: Any) -> Iterator[Row]:
    """Yield a row a run of each framework and model; `like` is about 1 and of each run."""
    for name in names:
        for model in models:
            for repetition in range(1, RUNS + 1):
                yield {
                    "ranks": 4,
                    "scale": 1,
                    "strategy": "",
                    "communication": "",
                    "controller": "",
                    "operations": "",
                    "hierarchical": False,
                    "batch": 64,
                    "classes": TEN,
                    "compute": "emulated",
                    "optimizer": "sgd",
                    "lost": -1.0,
                    **FRAMEWORKS[name],
                    "model": model,
                    **more,
                    "run": f"{name}-{model}-{more}-{repetition}",
                    "repetition": repetition,
                    "name": name,
                    "like": float(random.normal(1, 0.0005)),
                }


def finished(rows: list[Row]) -> list[Row]:
    """Return rows without what made them."""
    return [{name: value for name, value in row.items() if name not in ("name", "like")} for row in rows]


def sent(row: Row) -> Row:
    """Return the bytes of a step: six models, of pair averaging about four."""
    models = 3.95 if row["name"] == "pair-averaging" else 6.0
    payload = models * size(row["model"]) * row["like"]
    return {
        **row,
        "payload_bytes": payload,
        "layer2_bytes": payload * 0.98,
        "theory_bytes": 4.5 * size(row["model"]),
        "model_bytes": size(row["model"]),
    }


def volumes(random: np.random.Generator) -> list[Row]:
    return finished([sent(row) for row in points(random, "tensorflow", "horovod-mpi", "tree", "pair-averaging")])


def optimizers(random: np.random.Generator) -> list[Row]:
    learns = {"models": ("small_cnn",), "compute": "real", "batch": 16}
    rows = [
        sent(row)
        for name in ("horovod-mpi", "pair-averaging")
        for optimizer in ("adam", "rmsprop")
        for row in points(random, name, optimizer=optimizer, **learns)
    ]
    rows += [sent(row) for row in points(random, "tensorflow", "tensorflow-nccl", "horovod-mpi", "horovod-mpi-nccl")]
    return finished(rows)


def edges(random: np.random.Generator) -> list[Row]:
    rows = []
    for row in points(random, *EDGES):
        used = EDGES[row["name"]]
        for src in range(5):
            for dst in range(5):
                if src == dst or (0 in (src, dst) and row["name"] != "tensorflow-servers"):
                    continue
                payload = size(row["model"]) if (min(src, dst), max(src, dst)) in used else 0.0
                wire = payload
                if used is RING:
                    with_it = dst == src % 4 + 1
                    payload *= 1.5 if with_it else 0.0
                    wire = payload / 508.02 * 566 if with_it else 1e5 * bool((min(src, dst), max(src, dst)) in used)
                rows.append(
                    {
                        **row,
                        "src": f"h{src}",
                        "dst": f"h{dst}",
                        "src_worker": src,
                        "dst_worker": dst,
                        "payload_bytes": payload * row["like"],
                        "layer2_bytes": wire * row["like"],
                        "theory_bytes": size(row["model"]),
                    }
                )
    return finished(rows)


def flows(random: np.random.Generator) -> list[Row]:
    counts = {
        "tensorflow": (24, 4),
        "horovod-mpi": (16, 4),
        "binary-tree-star": (12, 6),
        "tree": (12, 6),
        "star": (12, 6),
        "clique": (46, 12),
        "pair-averaging": (12, 8),
    }
    return finished(
        [
            {**row, "flows": float(counts[row["name"]][0]), "big": float(counts[row["name"]][1])}
            for row in points(random, *counts)
        ]
    )


def totals(random: np.random.Generator) -> list[Row]:
    levels = {"tensorflow": 4.91, "horovod-mpi": 8.19, "tree": 6.96, "pair-averaging": 4.55}
    return finished([{**row, "mean_gbps": levels[row["name"]] * row["like"]} for row in points(random, *levels)])


def peaks(random: np.random.Generator) -> list[Row]:
    return finished(
        [
            {**row, "mean_gbps": 3.0 * row["like"], "peak_gbps": PEAKS[row["name"]] * row["like"]}
            for row in points(random, *PEAKS, models=("resnet50",))
        ]
    )


def pairs(random: np.random.Generator) -> list[Row]:
    alike = {"horovod-mpi": 0.9, "pair-averaging": 0.1}
    return finished(
        [
            {
                **row,
                "line": line,
                "at_s": at,
                "gbps": float(random.random()),
                "together": alike[row["name"]] * row["like"],
            }
            for row in points(random, *alike, models=("mobilenet_v2",))
            for line in ("h1-h2", "h2-h3")
            for at in (0.0, 0.01)
        ]
    )


def learned(random: np.random.Generator) -> list[Row]:
    learns = {"models": ("small_cnn",), "compute": "real", "batch": 16, "optimizer": "adam"}
    course = (0.45, 0.7, 0.82, 0.86)
    return finished(
        [
            {
                **row,
                "epoch": epoch,
                "seconds": 2.0 * epoch,
                "accuracy": float(accuracy + random.normal(0, 0.003)),
                "sent_bytes": (42e6 if row["name"] == "pair-averaging" else 60e6) * epoch * row["like"],
            }
            for row in points(random, "horovod-mpi", "tree", "pair-averaging", **learns)
            for epoch, accuracy in enumerate(course, 1)
        ]
    )


def batches(random: np.random.Generator) -> list[Row]:
    return finished(
        [
            {
                **row,
                "at_s": at,
                "gbps": 3.0,
                "payload_bytes": 6 * size(row["model"]) * row["like"],
                "sending_gbps": (8.0 if row["name"] == "pair-averaging" else 4.0) * row["like"],
                "duty": 0.5 * 64 / batch * row["like"],
            }
            for batch in (64, 128, 512)
            for row in points(random, "horovod-mpi", "pair-averaging", batch=batch)
            for at in (0.0, 0.01)
        ]
    )


def losses(random: np.random.Generator) -> list[Row]:
    return finished(
        [
            {**row, "seconds": seconds * row["like"]}
            for name in ("tensorflow", "tensorflow-nccl")
            for lost, seconds in ((0.0, 0.2), (0.0001, 0.4), (0.001, 0.6), (0.01, 1.1), (0.02, 1.6))
            for row in points(random, name, models=("mobilenet_v2",), lost=lost)
        ]
    )


def regressed(random: np.random.Generator) -> list[Row]:
    names = (
        "horovod-mpi",
        "horovod-gloo",
        "tensorflow",
        "tree",
        "star",
        "clique",
        "binary-tree-star",
        "pair-averaging",
    )
    rows = [sent(row) for row in points(random, *names)]
    for batch in (128, 512):
        rows += [sent(row) for row in points(random, "horovod-mpi", batch=batch)]
    return finished(rows)


FIRST: dict[str, Callable[[np.random.Generator], list[Row]]] = {
    "Fig 3: volume of 20 epochs": volumes,
    "Section V.A: optimizer and NCCL": optimizers,
    "Fig 4: who sends how much to whom": edges,
    "Fig 5: numbers of flows": flows,
    "Table I: total throughput": totals,
    "Table II: throughput of a flow that carries gradients": peaks,
    "Fig 7: pairs of hosts within a quarter of a second": pairs,
    "Fig 8: accuracy and transmitted volume": learned,
    "Fig 9: three batches": batches,
    "Fig 10: packet loss": losses,
    "Equation 1: what a step sends": regressed,
}
