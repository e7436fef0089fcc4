"""Gate `transport`: NCCL sent over what it was to send over, by its log of connections and its ranks' variables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from orchestrator.parts.rows import CONNECTIONS, Row
from orchestrator.store.manifests.records import Gate, Manifest
from orchestrator.validity.declaration import GateSpec, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "transport"
ORDER = 150
GATES = (
    GateSpec(
        name="transport",
        passes="NCCL connected hosts by the transport that was requested, RDMA or sockets",
        limit="every connection in its log",
        required=False,
        remedy="Look into `nccl.*.log` of a rank for why NCCL found no RDMA device that it may use. With `transport: "
        "rdma` or `tcp` a window fails by it, since NCCL had no choice.",
    ),
)
_SOCKETS = "NET/Socket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The transport that a job's ranks on NCCL were told to use: the variable, its value, and whether it is binding."""

    transport: Literal["rdma", "tcp"]
    setting: str
    forced: bool


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each job that was told: all its connections between hosts are over what it was told to use.

    NCCL falls back to sockets without an error where it finds no RDMA device that it may use. Connections that could
    not be read are told; where NCCL had no choice they fail the gate.
    """
    manifest = window.manifest
    requests = {job.name: request for job in manifest.jobs if (request := _request(manifest, job.name)) is not None}
    if not requests:
        return
    rows = window.table("nccl_connections").select(["job", "transport", "device"]).to_pylist()
    unread = _unread(manifest, window.table("unread").to_pylist())
    for job, request in requests.items():
        yield from _judged(job, request, [row for row in rows if row["job"] == job], unread.get(job, []))


def _judged(job: str, request: Request, rows: list[Row], unread: list[Row]) -> Iterator[Gate]:
    """Judge by a job's rows of `nccl_connections`, and those of `unread` that no reader understood."""
    name = f"job {job}: NCCL"
    asked = f"{request.transport.upper()} was asked for ({request.setting})"
    # By what NCCL calls it, with the device: "NET/IB mlx5_0:1".
    networks = Counter(
        f"{row['transport']} {row['device']}".strip() for row in rows if row["transport"].startswith("NET/")
    )
    total, sockets = sum(networks.values()), sum(n for way, n in networks.items() if way.startswith(_SOCKETS))
    lost = sockets if request.transport == "rdma" else total - sockets
    if unread_count := sum(row["count"] for row in unread):
        seen = f"connected by {_listed(networks)}, and by" if networks else "has"
        text = f"{name} {seen} {unread_count} connections that could not be read ({unread[0]['text']}): {asked}"
        passed = False if request.forced or lost else None
        share = (lost + unread_count) / (total + unread_count)
        yield verdict("transport", passed, text, measured=share, limit=0, required=request.forced)
    elif not rows:
        text = f"{name}: not known whether it used what was asked for: {asked}, and no rank kept its log"
        yield verdict("transport", None, text, measured=math.nan, limit=0, required=False)
    elif total:  # else all its ranks are on one host
        text = f"{name} connected by {_listed(networks)}"
        text += f", but {asked}" if lost else f", as {asked}"
        yield verdict("transport", lost == 0, text, measured=lost / total, limit=0, required=request.forced)


def _unread(manifest: Manifest, rows: list[Row]) -> dict[str, list[Row]]:
    """Return, by job, the rows on connections in NCCL's logs which no reader understood."""
    job_of = {(launch.node, launch.name): launch.job for launch in manifest.launches}
    passed: dict[str, list[Row]] = {}
    for row in rows:
        job = job_of.get((row["node"], row["launch"]))
        if job and row["what"] == CONNECTIONS:
            passed.setdefault(job, []).append(row)
    return passed


def _request(manifest: Manifest, job: str) -> Request | None:
    """Return the transport that the variables of a job's ranks ask for; None where they ask for none."""
    for launch in manifest.launches:
        if launch.job != job or launch.rank is None:
            continue
        net, devices = launch.env.get("NCCL_NET", ""), launch.env.get("NCCL_IB_HCA", "")
        if net.lower() == "socket" or launch.env.get("NCCL_IB_DISABLE") == "1":
            return Request(transport="tcp", setting="NCCL_NET=Socket" if net else "NCCL_IB_DISABLE=1", forced=True)
        if net or devices:
            setting = f"NCCL_NET={net}" if net else f"NCCL_IB_HCA={devices}"
            return Request(transport="rdma", setting=setting, forced=bool(net))
    return None


def _listed(networks: Mapping[str, int]) -> str:
    return ", ".join(f"{way} ({count})" for way, count in sorted(networks.items()))
