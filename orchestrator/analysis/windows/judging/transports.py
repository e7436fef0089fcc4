"""Whether NCCL sent over what it was to send over: its log of connections against the variables of its ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.parts.rows import CONNECTIONS, Row
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.window_records import Gate

_SOCKETS = "NET/Socket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """What a job's ranks on NCCL were told to send over, and how many of their connections are over each network.

    `setting` is by variable and value what said so, and `forced` whether NCCL had no choice. `logged`: whether any rank
    kept a log of its connections. Keys of `networks` are what NCCL calls it, with the device: "NET/IB mlx5_0:1".
    `unread`: connections in the logs that no reader understood, and `example` the first of them.
    """

    job: str
    wanted: Literal["rdma", "tcp"]
    setting: str
    forced: bool
    logged: bool
    networks: Mapping[str, int]
    unread: int = 0
    example: str = ""


def found(manifest: Manifest, connections: Any, unread: Any) -> tuple[Transport, ...]:
    """Of each job that was told to, by the run's tables `nccl_connections` and `unread` (pyarrow)."""
    passed = _unread(manifest, unread)
    rows = connections.select(["job", "transport", "device"]).to_pylist()
    asked = [(job.name, _wanted(manifest, job.name)) for job in manifest.jobs]
    return tuple(
        Transport(
            job=name,
            wanted=wanted[0],
            setting=wanted[1],
            forced=wanted[2],
            logged=any(row["job"] == name for row in rows),
            networks=Counter(
                f"{row['transport']} {row['device']}".strip()
                for row in rows
                if row["job"] == name and row["transport"].startswith("NET/")
            ),
            unread=sum(row["count"] for row in passed.get(name, ())),
            example=next((row["text"] for row in passed.get(name, ())), ""),
        )
        for name, wanted in asked
        if wanted is not None
    )


def _unread(manifest: Manifest, unread: Any) -> dict[str, list[Row]]:
    """Of each job the rows that tell of connections in NCCL's logs which no reader understood."""
    job_of = {(launch.node, launch.name): launch.job for launch in manifest.launches}
    passed: dict[str, list[Row]] = {}
    for row in unread.to_pylist():
        job = job_of.get((row["node"], row["launch"]))
        if job and row["what"] == CONNECTIONS:
            passed.setdefault(job, []).append(row)
    return passed


def _wanted(manifest: Manifest, job: str) -> tuple[Literal["rdma", "tcp"], str, bool] | None:
    """What the variables of a job's ranks ask for, those that do it, and whether NCCL may take another way."""
    for launch in manifest.launches:
        if launch.job != job or launch.rank is None:
            continue
        net, devices = launch.env.get("NCCL_NET", ""), launch.env.get("NCCL_IB_HCA", "")
        if net.lower() == "socket" or launch.env.get("NCCL_IB_DISABLE") == "1":
            return "tcp", "NCCL_NET=Socket" if net else "NCCL_IB_DISABLE=1", True
        if net or devices:
            return "rdma", f"NCCL_NET={net}" if net else f"NCCL_IB_HCA={devices}", bool(net)
    return None


def judge_transports(jobs: Iterable[Transport]) -> Iterator[Gate]:
    """A gate for each job: all its connections between hosts are over what it was told to use.

    NCCL falls back to sockets without an error where it finds no RDMA device that it may use. Connections that could
    not be read are told; where NCCL had no choice they fail the gate.
    """
    for job in jobs:
        name = f"job {job.job}: NCCL"
        asked = f"{job.wanted.upper()} was asked for ({job.setting})"
        if job.unread:
            seen = f"connected by {_listed(job.networks)}, and by" if job.networks else "has"
            text = f"{name} {seen} {job.unread} connections that could not be read ({job.example}): {asked}"
            passed = False if job.forced or _lost(job) else None
            share = (_lost(job) + job.unread) / (sum(job.networks.values()) + job.unread)
            yield gate("transport", passed, text, measured=share, limit=0, required=job.forced)
            continue
        if not job.logged:
            text = f"{name}: not known whether it used what was asked for: {asked}, and no rank kept its log"
            yield gate("transport", None, text, measured=math.nan, limit=0, required=False)
            continue
        total = sum(job.networks.values())
        if not total:  # all its ranks are on one host
            continue
        lost = _lost(job)
        text = f"{name} connected by {_listed(job.networks)}"
        text += f", but {asked}" if lost else f", as {asked}"
        yield gate("transport", lost == 0, text, measured=lost / total, limit=0, required=job.forced)


def _lost(job: Transport) -> int:
    """The connections over what was not asked for."""
    sockets = sum(count for way, count in job.networks.items() if way.startswith(_SOCKETS))
    return sockets if job.wanted == "rdma" else sum(job.networks.values()) - sockets


def _listed(networks: Mapping[str, int]) -> str:
    return ", ".join(f"{way} ({count})" for way, count in sorted(networks.items()))
