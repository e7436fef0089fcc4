"""Bytes that a step of training sends: of all hosts, by theory, and from host to host."""

from __future__ import annotations

import math
from typing import Any

from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.questions.captured import summaries
from orchestrator.questions.iterations import chosen
from orchestrator.questions.registry import source
from orchestrator.questions.rows import Measured, Rows, by_run
from workloads.models import catalog

PARAMETER_BYTES = 4


@source
def volumes(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return bytes at full size that all hosts send in a step of the first training, by point and run.

    `payload_bytes` is TCP payload, each byte once; `layer2_bytes` all frames, acknowledgements and repetitions too;
    `theory_bytes` what the workload says that it sends (NaN where it does not); `model_bytes` the size of a model of
    the catalog with its classes (NaN of another one). Means over the captured windows of a run in which the training is
    alone; runs without captures are left out. `columns`, `defaults` and `where` as of `iterations`; a value of `where`
    may be a list of several.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        found = [
            (one.run, {"payload_bytes": one.volume.step_payload, "layer2_bytes": float(one.volume.wire.sum())})
            for one in summaries(measured, point)
        ]
        rows += by_run(point, found, {**keys, "theory_bytes": theory_bytes(point), "model_bytes": model_bytes(point)})
    return rows


@source
def edges(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return bytes at full size from host to host in a step of the first training: a row a pair, point and run.

    `src` and `dst` are hosts; `src_worker` and `dst_worker` their places among the hosts of ranks in the order of
    ranks, from 1 on (0: no rank runs there, such as a server's). `payload_bytes` and `layer2_bytes` as of `volumes`;
    `theory_bytes` where the workload says who sends what to whom, else NaN.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        found = summaries(measured, point)
        nodes = list(point.job.nodes)
        place = {node: number for number, node in enumerate(nodes, 1)}
        used = {end for one in found for pair in one.pairs for end in pair}
        hosts = [*nodes, *sorted(used - set(nodes))]
        theory = theory_pairs(point)
        unsaid = 0.0 if theory else math.nan
        for src in hosts:
            for dst in hosts:
                if src == dst:
                    continue
                values = [
                    (
                        one.run,
                        {
                            "payload_bytes": one.volume.edge(src, dst),
                            "layer2_bytes": one.volume.edge(src, dst, wire=True),
                        },
                    )
                    for one in found
                ]
                ends = {"src": src, "dst": dst, "src_worker": place.get(src, 0), "dst_worker": place.get(dst, 0)}
                rows += by_run(point, values, {**keys, **ends, "theory_bytes": theory.get((src, dst), unsaid)})
    return rows


def theory_bytes(point: MeasuredPoint) -> float:
    """Return the payload of all hosts in a step at full size by theory; NaN without one."""
    theory = point.job.theory
    if theory is None:
        return math.nan
    sent = sum(size for _, _, size in theory.pairs) or theory.bytes_per_iteration * len(point.job.ranks)
    return float(sent * point.scale)


def theory_pairs(point: MeasuredPoint) -> dict[tuple[str, str], float]:
    """Return the payload from node to node in a step at full size by theory; none where it does not say."""
    pairs = {} if point.job.theory is None else {(a, b): size for a, b, size in point.job.theory.pairs}
    return {pair: float(size * point.scale) for pair, size in pairs.items()}


def model_bytes(point: MeasuredPoint) -> float:
    """Return the size of a point's model with its classes; NaN where the catalog does not have it."""
    name = point.value("workload.*.model")
    if name not in catalog.names():
        return math.nan
    classes = int(point.value("workload.*.classes") or catalog.CLASSES)
    return float(PARAMETER_BYTES * catalog.with_classes(catalog.load(name), classes).parameters)
