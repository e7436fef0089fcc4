"""Bandwidth of collective operations over message sizes, with the ranks and groups that carried them out."""

from __future__ import annotations

from typing import Any

from orchestrator.experiment import fitting, loading
from orchestrator.predict import inputs
from orchestrator.questions.messages import runs_of
from orchestrator.questions.registry import source
from orchestrator.questions.rows import REPETITION, RUN, Measured, Row, Rows, meets
from orchestrator.report.run import collectives
from workloads import collective
from workloads.common import placement, torch_ranks
from workloads.common.collective_traffic import members


@source
def bandwidth(measured: Measured, *, where: dict[str, Any] | None = None) -> Rows:
    """Return times and bandwidths of runs of `collective` at full size: a row a message size, point and run.

    `bytes` is the message as nccl-tests counts it, `seconds` the time of one operation (mean over ranks), `bus_bps` and
    `algorithm_bps` bandwidths as nccl-tests defines them (bit/s), `utilization` the bus bandwidth as a share of the
    slowest link. `groups` work at once, each of `group_ranks` ranks on `group_hosts` hosts; `placement` says that in
    words. `ranks`, `hosts`, `link_bps`, `backend` and `transport` are of the benchmark.
    """
    rows: Rows = []
    for point in measured.points:
        if point.job.workload != collective.NAME:
            continue
        keys = _keys(point)
        if not meets(keys, where or {}):
            continue
        for repetition, run in enumerate(runs_of(point), 1):
            for one in collectives.operation_timings(run):
                found = {"operation": one.operation, "bytes": one.bytes, "seconds": one.seconds}
                share = one.bus_bps / keys["link_bps"]
                rates = {"bus_bps": one.bus_bps, "algorithm_bps": one.algorithm_bps}
                rows.append({**keys, RUN: run.id, REPETITION: repetition, **found, **rates, "utilization": share})
    return rows


def _keys(point: Any) -> Row:
    experiment = loading.sealed(point.windows[0].entry.path)
    topology = fitting.topology_of(experiment)
    config = experiment.all_jobs()[0].workload.config
    ranks = placement.ranks(config.hosts, topology)
    nodes = [rank.node for rank in ranks]
    groups = members(len(nodes), config.groups)
    hosts = max(len({nodes[rank] for rank in group}) for group in groups)
    several = f"{len(groups)} groups" if len(groups) > 1 else "a group"
    where = "within hosts" if hosts == 1 else f"across {hosts} hosts"
    return {
        "ranks": len(nodes),
        "hosts": len(set(nodes)),
        "groups": len(groups),
        "group_ranks": len(groups[0]),
        "group_hosts": hosts,
        "placement": f"{several} of {len(groups[0])} {where}",
        "link_bps": float(min(topology.link(node).rate for node in nodes)),
        "backend": config.backend if config.backend not in inputs.TORCH else torch_ranks.backend_of(config, ranks),
        "transport": config.transport,
        "dilation": point.manifest.dilation,
    }
