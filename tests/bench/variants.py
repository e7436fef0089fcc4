"""Whether trainings in ways that no test runs send what theory says: precisions, schedules, strategies, frameworks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from tests.bench.commands import OrchRun, only_job, orch_run, training
from tests.bench.figure import Figure, Settings
from workloads import moe

SMALL = {"model": "mobilenet_v2", "compute_time": "60ms"}
GPT = {"layers": 3, "hidden": 768, "sequence": 512, "vocabulary": 50257}
PTD = {
    "model": GPT, "pipeline": 2, "tensor": 2, "data": 2, "batch": 4, "microbatches": 4, "compute_time": "60ms",
    "hosts": ["h1", "h1", "h2", "h2", "h3", "h3", "h4", "h4"],
}  # fmt: skip
# Tensor ranks on different hosts: most of what they say crosses the network.
APART = [[p, t, d] for t in range(2) for p in range(2) for d in range(2)]
MOE = {"model": {**GPT, "layers": 4}, "experts": 6, "compute_time": "60ms"}
SERVERS = {**SMALL, "strategy": "parameter-server", "servers": 2}
MIRRORED = {**SMALL, "strategy": "multi-worker-mirrored"}
# Workers beside a server would go ahead of the others, which have more to fetch.
SERVED = {**SMALL, "strategy": "parameter-server", "hosts": ["h1", "h2", "h3"], "servers": ["h4", "h5", "h6"]}

SCALED = {"link": "25gbit", "scale": 100}
FULL = {"link": "1gbit"}  # where messages that would be scaled are too small beside what frames them

# What it is, hosts and their links, workload.
VARIANTS: tuple[tuple[str, int, dict[str, Any], dict[str, Any]], ...] = (
    ("ddp, bf16", 3, FULL, {"ddp": {**SMALL, "compression": "bf16"}}),
    ("fsdp, parameters kept", 3, SCALED, {"fsdp": {**SMALL, "reshard": False}}),
    ("ptd, recomputed", 4, SCALED, {"ptd": {**PTD, "recompute": True}}),
    ("ptd, every rank's place given", 4, SCALED, {"ptd": {**PTD, "mapping": APART}}),
    ("ptd, bf16", 4, SCALED, {"ptd": {**PTD, "precision": "bf16"}}),
    ("ptd, fp32", 4, SCALED, {"ptd": {**PTD, "precision": "fp32"}}),
    ("moe, one expert a token", 3, SCALED, {"moe": {**MOE, "top": 1}}),
    ("moe, three experts a token", 3, SCALED, {"moe": {**MOE, "top": 3}}),
    ("moe, bf16", 3, SCALED, {"moe": {**MOE, "precision": "bf16"}}),
    ("moe, fp32", 3, SCALED, {"moe": {**MOE, "precision": "fp32"}}),
    ("p2p, tree", 4, SCALED, {"p2p": {**SMALL, "strategy": "tree"}}),
    ("p2p, two servers, first layers first", 4, SCALED, {"p2p": {**SERVERS, "order": "layer"}}),
    ("p2p, two servers, in any order", 4, SCALED, {"p2p": {**SERVERS, "order": "random"}}),
    ("deepspeed, ZeRO-2, bf16", 3, SCALED, {"deepspeed": {**SMALL, "zero_stage": 2, "precision": "bf16"}}),
    ("deepspeed, ZeRO-3, bf16", 3, FULL, {"deepspeed": {**SMALL, "zero_stage": 3, "precision": "bf16"}}),
    (
        "deepspeed, pipelines whose replicas are on two hosts", 4, SCALED,
        {"deepspeed": {**SMALL, "pipeline_stages": 2, "microbatches": 4, "activation": "100kb", "batch": 8}},
    ),
    ("horovod, PyTorch, fp16, Gloo", 3, FULL, {"horovod": {**SMALL, "compression": "fp16"}}),
    ("horovod, PyTorch, fp16, MPI", 3, FULL, {"horovod": {**SMALL, "compression": "fp16", "controller": "mpi"}}),
    ("horovod, TensorFlow, fp16", 3, FULL, {"horovod": {**SMALL, "compression": "fp16", "framework": "tensorflow"}}),
    ("tensorflow, packs of 1 MB", 3, FULL, {"tensorflow": {**MIRRORED, "pack": "1mb"}}),
    ("tensorflow, three servers on hosts of their own", 6, FULL, {"tensorflow": SERVED}),
)  # fmt: skip


def measure(settings: Settings) -> Iterator[Figure]:
    """TCP payload that the captures saw leave a rank, mean over ranks and iterations, as it was at the run's scale."""
    for number, (what, hosts, links, workload) in enumerate(VARIANTS):
        run = orch_run(
            training(
                hosts,
                name=f"variant-{number}",
                testbed={"local": {"hosts": hosts, **links}},
                workload=workload,
                collect=["tcpdump", "nic"],
                measure={"warmup": 2, "iterations": settings.times(30, 10), "at_most": "120s"},
            ),
            settings.scratch,
        )
        sent = only_job(run)["bytes_per_iteration"]
        theory = _routed(run, workload["moe"]) if "moe" in workload else sent["theory_raw"]
        yield Figure(
            what=what,
            unit="kB",
            values=(sent["measured_raw"] / 1e3,),
            against="theory",
            reference=(theory / 1e3,),
            note=f"{sent['measured_raw'] / theory - 1:+.2%}",
        )
        shutil.rmtree(run.path)


def _routed(run: OrchRun, workload: dict[str, Any]) -> float:
    """A rank's bytes with tokens as the gates routed them, where theory takes gates for even."""
    ranks = len(run.manifest["jobs"][0]["ranks"])
    reduced = moe.traffic(moe.Config.model_validate(workload), ranks, run.manifest["scale"])["data"]
    rows = [row for row in pq.read_table(run.path / "tables/routing.parquet").to_pylist() if row["window_name"] == "w1"]
    routed = sum(row["bytes"] for row in rows if row["rank"] != row["peer"])
    return (sum(reduced.values()) + routed / len({row["iteration"] for row in rows})) / ranks
