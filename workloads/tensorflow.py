"""TensorFlow's own ways to train on several hosts: MultiWorkerMirroredStrategy, and parameter servers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.core.fields import Size
from orchestrator.parts.launch import Launch, Line, Listening, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Bucket, Compute, Theory
from orchestrator.parts.topology import TASK_PORT, Job, Topology, in_url
from workloads.common import (
    collective_tasks,
    environments,
    rank_traffic,
    real_training,
    replicated_tasks,
    server_tasks,
    shipping,
    torch_ranks,
    trained_model,
)
from workloads.common.collective_tasks import Done, Ready
from workloads.common.placement import placement_problems, ranks
from workloads.common.real_training import RealConfig
from workloads.common.replicated_tasks import buckets
from workloads.rank.lifecycle import LayerPlan
from workloads.rank.tensorflow import mirrored, parameter_server
from workloads.readers.evaluations import read_evaluations
from workloads.readers.iteration_logs import LOG, read_iterations, read_training
from workloads.readers.spans import TRACE

NAME = "tensorflow"

_ENVIRONMENT = "tensorflow"
_MIRRORED = "tensorflow.mirrored"
_PARAMETER_SERVER = "tensorflow.parameter_server"

_COLLECTIVE_S = 900.0  # published iterations under burst traffic last up to 183 s
_MEET_S = 120.0


class Config(RealConfig):
    """A training with TensorFlow and a loop of its own, its tasks connected by gRPC."""

    strategy: Literal["multi-worker-mirrored", "parameter-server"]
    """`multi-worker-mirrored`: all workers hold the model and average their gradients in each iteration.
    `parameter-server`: servers hold it; each worker fetches all variables, computes, and sends the gradients, which a
    server applies when they arrive. That is asynchronous: workers do not wait for each other."""

    communication: Literal["auto", "ring", "nccl"] = "auto"
    """Multi-worker-mirrored: what averages gradients, TensorFlow's ring over gRPC or NCCL. `auto`: NCCL where each
    rank has a GPU of its own, else the ring."""

    pack: Annotated[Size, Field(ge=0)] = 0.0
    """Multi-worker-mirrored: gradients travel in packs of at least this size, each as soon as it is full; 0, which is
    TensorFlow's default: all together when the last one is there. Divided by the testbed's scale."""

    servers: list[str] | None = Field(default=None, min_length=1)
    """Parameter servers: the host of each; variables are placed on them in turn. Default: the testbed's first host.
    `hosts` are those of the workers."""

    order: Literal["any", "layer", "reverse"] | None = None
    """Parameter server: each layer of the forward pass waits for its own variables. `any`: TensorFlow fetches them all
    at once, in whatever order; `layer`: one after the other, enforced by the graph, those of the first layers first,
    which of a chain of layers is the order of TicTac's TIC and TAC; `reverse`: those of the last layers first. Default:
    the forward pass begins when all variables are there."""

    trace: bool = False
    """Parameter server: whether each worker records when it computes and when it receives and sends which tensor, by
    TensorFlow's own tracing. It costs some milliseconds a step."""

    checksum: bool = False
    """Multi-worker-mirrored: whether each rank logs the sum of all parameters after each iteration: equal sums show
    that gradients agree."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    serving = config.strategy == "parameter-server"
    if serving:
        return _server_problems(config, topology)
    found = real_training.problems(config, topology, known=(real_training.SMALL,))
    if config.trace:
        found.append(
            Problem(
                at=("trace",),
                message="TensorFlow tells of the transfers of a session alone, and multi-worker-mirrored has none",
                accepted="strategy: parameter-server, or no trace",
            )
        )
    if config.order is not None:
        found.append(
            Problem(
                at=("order",),
                message="workers of multi-worker-mirrored fetch no variables",
                accepted="strategy: parameter-server, or no order",
            )
        )
    if config.servers is not None:
        found.append(
            Problem(
                at=("servers",),
                message="all workers of multi-worker-mirrored hold the model, and there are no servers",
                accepted="no servers, or strategy: parameter-server",
            )
        )
    if config.communication == "nccl" and not found:
        found += [
            Problem(
                at=("communication",),
                message=f"nccl needs a GPU for each rank, and rank {rank.rank} on {rank.node} has none",
                accepted="ring, or hosts whose testbed entry has as many gpus as they have ranks",
            )
            for rank in ranks(config.hosts, topology)
            if rank.device == "cpu"
        ]
    return found


def _server_problems(config: Config, topology: Topology) -> list[Problem]:
    if config.compute == "real":
        message = "with parameter servers layers are emulated"
        accepted = "compute: emulated, or strategy: multi-worker-mirrored"
        return [Problem(at=("compute",), message=message, accepted=accepted)]
    found = trained_model.emulated_problems(config, topology, least=1) + real_training.real_option_problems(config)
    found += [
        replace(problem, at=("servers", *problem.at[1:]))
        for problem in placement_problems(config.servers, topology, least=1)
    ]
    for name, asked, idle in (
        ("communication", config.communication != "auto", "workers average nothing among themselves"),
        ("pack", config.pack > 0, "each gradient travels by itself"),
        ("checksum", config.checksum, "no worker has weights of its own"),
    ):
        if asked:
            message = f"with parameter servers {idle}"
            found.append(Problem(at=(name,), message=message, accepted="strategy: multi-worker-mirrored, or leave it"))
    if not found and set(_servers(config, topology)) >= {rank.node for rank in ranks(config.hosts, topology)}:
        found.append(
            Problem(
                at=("servers",),
                message="every worker's host is a server's too",
                accepted="hosts and servers of which at least one worker is on a host without a server",
            )
        )
    return found


def _servers(config: Config, topology: Topology) -> list[str]:
    if config.strategy != "parameter-server":
        return []
    return config.servers if config.servers is not None else [topology.hosts[0].name]


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return launches of the parameter servers where there are any, then one for each rank."""
    servers = _servers(config, topology)
    cluster = _cluster(job, servers, topology)
    program = _PARAMETER_SERVER if servers else _MIRRORED
    files = shipping.files(program, settings=_settings(config, topology, seed))
    flows = rank_traffic.training_flows(job, topology, others=servers)
    nccl = _by_nccl(config, job)
    return [
        *(_server(config, job, topology, index=index, cluster=cluster, files=files) for index in range(len(servers))),
        *(
            Launch(
                name=f"{job.name}-rank{rank.rank}",
                node=rank.node,
                role="rank",
                argv=shipping.argv(
                    _python(config, rank.node, topology), program, *(("--checksum",) if config.checksum else ())
                ),
                env={
                    "RANK": str(rank.rank),  # for messages of our own
                    **({"CUDA_VISIBLE_DEVICES": rank.device.removeprefix("cuda:")} if rank.device != "cpu" else {}),
                    **_env(config, cluster, kind="worker", index=rank.rank),
                    **(torch_ranks.nccl("auto", None, node=topology.node(rank.node)) if nccl else {}),
                    **config.env,
                },
                files=files,
                order=1,
                ready=Line("^ready"),
                ready_within_s=trained_model.READY_S,
                gate=True,
                follow=LOG,
                job=job.name,
                rank=rank.rank,
                footprint=real_training.footprint(config, topology, ranks=len(job.ranks), framework="tensorflow"),
                flows=flows if rank.rank == 0 else (),
                ports=(int(cluster["worker"][rank.rank].rpartition(":")[2]),),
            )
            for rank in job.ranks
        ),
    ]


def _settings(
    config: Config, topology: Topology, seed: int
) -> mirrored.MirroredSettings | parameter_server.ParameterServerSettings:
    if config.strategy == "parameter-server":
        trained = trained_model.emulated_settings(config, topology, seed=seed)
        return {**trained, "meet_s": _MEET_S, "trace": config.trace, "order": config.order}
    pack = round(config.pack / topology.scale)
    return {
        **real_training.settings(config, topology, seed=seed),
        "communication": config.communication,
        "pack_bytes": pack,
        "collective_s": _COLLECTIVE_S,
    }


def _server(
    config: Config,
    job: Job,
    topology: Topology,
    *,
    index: int,
    cluster: Mapping[str, list[str]],
    files: Mapping[str, bytes | Path],
) -> Launch:
    name = _servers(config, topology)[index]
    port = int(cluster["ps"][index].rpartition(":")[2])
    return Launch(
        name=f"{job.name}-server{index}",
        node=name,
        role="rank",
        argv=shipping.argv(_python(config, name, topology), _PARAMETER_SERVER, "--serve"),
        env=_env(config, cluster, kind="ps", index=index) | config.env,
        files=files,
        ready=Listening(port),
        ready_within_s=trained_model.READY_S,
        job=job.name,
    )


def _cluster(job: Job, servers: list[str], topology: Topology) -> dict[str, list[str]]:
    """Return the address and port of every task, each host's tasks on ports of their own."""
    seen: Counter[str] = Counter()

    def address(node: str) -> str:
        port = TASK_PORT + 100 * job.index + seen[node]
        seen[node] += 1
        return f"{in_url(topology.node(node).address)}:{port}"

    of_servers = [address(name) for name in servers]
    workers = [address(rank.node) for rank in job.ranks]
    return {"ps": of_servers, "worker": workers} if servers else {"worker": workers}


def _env(config: Config, cluster: Mapping[str, list[str]], *, kind: str, index: int) -> dict[str, str]:
    return {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}),
        "OMP_NUM_THREADS": str(config.threads),
        "PYTHONDONTWRITEBYTECODE": "1",
        **environments.QUIET_TENSORFLOW,
    }


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    return environments.requirements(
        ("tensorflow",),
        (*job.nodes, *_servers(config, topology)),
        topology,
        given=config.python,
        environment=_ENVIRONMENT,
        needed_by=NAME,
    )


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Return the bytes of gradients and variables alone; gRPC's and TensorFlow's own messages come on top."""
    if config.strategy == "parameter-server":
        return _parameter_server_theory(config, job, topology)
    moved = trained_model.parameters(config, topology)
    world = len(job.ranks)
    edge = 2 * (world - 1) / world * moved * trained_model.BYTES_PER_PARAMETER
    source = "ring all-reduce, 2 (N-1)/N x parameters x 4 bytes (Salamy, eq. 3.1), without gRPC's framing"
    # A rank fetches what it lacks from the one before it: so TensorFlow's ring turns with the ranks.
    pairs = {(rank, (rank + 1) % world): edge for rank in range(world)}
    return rank_traffic.theory(
        job, pairs, parameters=moved, source=source, spread="even" if _by_nccl(config, job) else "first"
    )


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph | str:
    """Return an iteration as tasks: packs of gradients, by default one once the last is there; or a worker's steps."""
    if config.compute == "real":
        return real_training.UNPREDICTED
    layers = trained_model.layers(config, topology)
    if config.strategy == "parameter-server":
        return server_tasks.fetching(
            len(job.ranks),
            _servers(config, topology),
            layers,
            element_bytes=trained_model.BYTES_PER_PARAMETER,
            order=_fetched(config, sum(len(sizes) for _, _, sizes in layers)),
            one_by_one=config.order in ("layer", "reverse"),
        )
    return _mirrored_tasks(config, job, topology, layers)


computes = real_training.computes


def computed_tasks(config: Config, job: Job, topology: Topology, compute: Compute) -> TaskGraph:
    """Return the same of multi-worker-mirrored with these times of computing."""
    layers = real_training.layers(config, topology, compute)
    return _mirrored_tasks(config, job, topology, layers, step_s=compute.step_s)


def _fetched(config: Config, variables: int) -> list[int] | None:
    """Return the order in which variables are fetched; None where the forward pass waits for all of them."""
    if config.order is None:
        return None
    if config.order == "any":
        return server_tasks.shuffled(variables)
    return list(range(variables)) if config.order == "layer" else list(reversed(range(variables)))


def _mirrored_tasks(
    config: Config, job: Job, topology: Topology, layers: Sequence[LayerPlan], *, step_s: float = 0.0
) -> TaskGraph:
    world = len(job.ranks)
    backward_s = sum(backward_s for _, backward_s, _ in layers)
    each = trained_model.BYTES_PER_PARAMETER
    packs: Sequence[Bucket] = (Bucket(size=trained_model.parameters(config, topology) * each, ready_s=backward_s),)
    if config.pack:
        packs = buckets(layers, cap=config.pack / topology.scale, first=None, element_bytes=each)
    by_nccl = _by_nccl(config, job)

    def reduce(graph: TaskGraph, _number: int, size: float, ready: Ready) -> Done:
        if by_nccl:
            return collective_tasks.ring_all_reduce(graph, range(world), size, ready)
        return replicated_tasks.turning(graph, range(world), size, ready)

    return replicated_tasks.overlapped(
        world,
        packs,
        reduce,
        forward_s=sum(forward_s for forward_s, _, _ in layers),
        backward_s=backward_s,
        step_s=step_s,
    )


def _by_nccl(config: Config, job: Job) -> bool:
    """Return whether gradients go by NCCL, over all rails of a host; gRPC uses one address of a host."""
    if config.strategy == "parameter-server" or config.communication == "ring":
        return False
    return config.communication == "nccl" or all(rank.device != "cpu" for rank in job.ranks)


def _parameter_server_theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Return the bytes with parameter servers: a worker gets all variables and sends all gradients each iteration."""
    servers = _servers(config, topology)
    variables = [size for _, _, sizes in trained_model.layers(config, topology) for size in sizes]
    pairs: dict[tuple[str, str], float] = {}
    for worker in job.ranks:
        for index, server in enumerate(servers):
            size = float(trained_model.BYTES_PER_PARAMETER * sum(variables[index :: len(servers)]))
            for way in ((server, worker.node), (worker.node, server)):
                if server != worker.node:
                    pairs[way] = pairs.get(way, 0.0) + size
    hosts = {rank.node for rank in job.ranks}
    sent = sum(size for (src, _), size in pairs.items() if src in hosts)
    return Theory(
        bytes_per_iteration=sent / len(job.ranks),
        parameters=sum(variables),
        source="parameter servers, each worker fetches all variables and sends all gradients, variables placed in turn",
        pairs=tuple((src, dst, size) for (src, dst), size in pairs.items()),
        spread="first",
    )


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    tables = read_training(output) if (output.folder / TRACE).exists() else read_iterations(output)
    return {**tables, **read_evaluations(output)}


def _python(config: Config, node: str, topology: Topology) -> str:
    return environments.interpreter(config.python, _ENVIRONMENT, topology.node(node), topology)
