"""Overlap of communication with computing, by rank: what there is, and what there could be (headroom)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc

from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.analysis.traffic import hidden
from orchestrator.questions.captured import Captured, windows
from orchestrator.questions.iterations import chosen
from orchestrator.questions.registry import source
from orchestrator.questions.rows import Measured, Rows, by_run
from workloads.models import catalog

_BY_LAYER = ("ddp", "horovod", "kungfu")  # send each gradient once, when the backward pass has made it


@source
def overlap(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return how much of its communication each rank of the first training hides: a row a rank, point and run.

    Shares (0 to 1): `of_time` of the time of collectives during which the rank computed, where the ranks' spans tell
    (DDP, Horovod's Timeline; else NaN); `of_bytes` of the payload that left its host while it computed, by captures;
    `could` of the payload that could leave while it computes within an iteration, by theory: each gradient as soon as
    the backward pass has made it, at the rate of the link (analysis/traffic/hidden.py; NaN of models that the catalog
    does not have, and of workloads other than ddp, horovod and kungfu); `across` likewise if gradients might be sent
    beside the next iteration's passes too: all that computing lasts long enough for. Seconds an iteration: `seconds`
    (mean), `compute_s` (forward and backward), `sending_s` (the rank's payload at the rate of its host's links). Means
    over captured windows of a run; ranks that share a host are left out, since a capture does not tell them apart.
    `columns`, `defaults` and `where` as of `volumes`.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        found: dict[int, list[tuple[str, dict[str, float]]]] = {}
        for one in windows(point):
            for rank, values in _ranks(point, one):
                found.setdefault(rank, []).append((one.run.id, values))
        for rank, of in sorted(found.items()):
            rows += by_run(point, of, {**keys, "rank": rank})
    return rows


def _ranks(point: MeasuredPoint, one: Captured) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the ranks of a captured window that have a host of their own, with the values of each."""
    job = point.job
    hosts = {rank.rank: rank.node for rank in job.ranks}
    logs = one.run.table("iterations")
    timed = {
        row.rank: math.nan if row.overlapped is None else row.overlapped
        for row in one.window.record.variation
        if row.job == job.name
    }
    seconds = float(one.window.iterations(job.name).seconds.mean())
    for sent in hidden.hidden(one.traffic, logs, job=job.name, hosts=hosts):
        forward_s, backward_s = _passes(one, job.name, sent.rank)
        bytes_s = _link_bps(point, hosts[sent.rank]) / 8
        sending_s = sent.sent * point.scale / one.steps / bytes_s if bytes_s else math.nan
        compute_s = forward_s + backward_s
        yield (
            sent.rank,
            {
                "of_time": timed.get(sent.rank, math.nan),
                "of_bytes": sent.share,
                "could": hidden.could_hide(
                    _layers(point), forward_s=forward_s, backward_s=backward_s, sending_s=sending_s
                ),
                "across": min(1.0, compute_s / sending_s) if sending_s > 0 else math.nan,
                "seconds": seconds,
                "compute_s": compute_s,
                "sending_s": sending_s,
            },
        )


def _passes(one: Captured, job: str, rank: int) -> tuple[float, float]:
    """Return the mean times of a rank's forward and backward passes in the iterations of a window that count."""
    logs, part = one.run.table("iterations"), one.window.record.iterations[job]
    number = logs["iteration"]
    inside = pc.and_(pc.greater_equal(number, part.first), pc.less_equal(number, part.last))
    mine = logs.filter(pc.and_(pc.and_(pc.equal(logs["job"], job), pc.equal(logs["rank"], rank)), inside))
    forward, backward = (pc.mean(mine[name]).as_py() for name in ("forward_s", "backward_s"))
    return (math.nan if forward is None else forward), (math.nan if backward is None else backward)


def _link_bps(point: MeasuredPoint, host: str) -> float:
    """Return the rate of all links of a host at full size; 0 where it is not known."""
    return float(sum(link.rate or 0 for link in point.manifest.topology.links if link.host == host))


def _layers(point: MeasuredPoint) -> list[tuple[float, float]]:
    """Return FLOPs and parameters of each layer of a point's model; none where theory does not say when they travel."""
    name = point.value("workload.*.model")
    if point.job.workload not in _BY_LAYER or name not in catalog.names():
        return []
    return [(float(layer.flops), float(sum(layer.sizes))) for layer in catalog.load(name).layers]
