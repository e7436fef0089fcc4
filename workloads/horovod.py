"""Horovod on PyTorch or TensorFlow over Gloo, each rank started by us, with emulated compute."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.launch import Launch, Line, Listening, Requirement
from orchestrator.protocols import Problem, Theory
from orchestrator.rows import Columns, Home
from orchestrator.topology import RENDEZVOUS_PORT, Job, Rank, Topology
from orchestrator.units import Duration, Size
from workloads import between, emulated_training, environments, modelled
from workloads.emulated_training import EmulatedConfig
from workloads.horovod_timeline import read_timeline
from workloads.iterations import LOG, read_iterations

NAME = "horovod"

TIMELINE = "timeline.json"

_ELEMENT_BYTES = {"none": modelled.BYTES_PER_PARAMETER, "fp16": 2}

_FILES = {
    "torch": ("horovod_torch.py", "emulated.py"),
    "tensorflow": ("horovod_tensorflow.py", "emulated_tensorflow.py"),
}
_RENDEZVOUS = "horovod_rendezvous.py"
_GLOO_TIMEOUT_S = 900  # published iterations under burst traffic last up to 183 s


class Config(EmulatedConfig):
    """A training with Horovod: a background thread of each rank fuses gradients and reduces them, cycle by cycle."""

    framework: Literal["torch", "tensorflow"] = "torch"
    """What Horovod averages gradients for: PyTorch's optimizer, or TensorFlow's gradient tape in a graph."""

    fusion: Annotated[Size, Field(ge=0)] = 64 * 2.0**20
    """Fusion threshold: gradients that are ready in one cycle are reduced together up to this size; 0: each by itself.
    Divided by the testbed's scale."""

    cycle_time: Annotated[Duration, Field(gt=0)] = 1e-3
    """Time between two rounds in which the ranks agree on what is ready. Each costs control traffic, which no scale
    divides."""

    compression: Literal["none", "fp16"] = "none"
    """What happens to gradients before they travel: `fp16` halves their floats."""

    checksum: bool = False
    """Whether each rank logs the sum of all parameters after each iteration: equal sums show that gradients agree."""

    timeline: bool = False
    """Whether rank 0 writes Horovod's Timeline, `timeline.json` in its folder, for chrome://tracing or Perfetto; what
    it tells of measured iterations is in the run's own timeline, too."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = emulated_training.problems(config, topology)
    hosts = config.hosts or []
    split = [i for i, name in enumerate(hosts) if i and name != hosts[i - 1] and name in hosts[:i]]
    found += [
        Problem(
            at=("hosts", index),
            message=f"Horovod numbers the ranks of a host one after the other, and {hosts[index]} was named before",
            accepted="the ranks of each host side by side, such as [h1, h1, h2, h2]",
        )
        for index in split
    ]
    return found


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """The rendezvous server at the host of rank 0, then a launch for each rank."""
    told = emulated_training.told(config, topology, seed=seed) | {
        "threads": config.threads,
        "compression": config.compression,
    }
    options = ("--checksum",) if config.checksum else ()
    program, model = _FILES[config.framework]
    files = emulated_training.files(program, model) | {"config.json": json.dumps(told).encode()}
    return [
        _rendezvous(config, job, topology),
        *(
            Launch(
                name=f"{job.name}-rank{rank.rank}",
                node=rank.node,
                role="rank",
                argv=(_python(config, rank.node, topology), "-u", program, *options),
                env=_env(config, job, rank, topology),
                files=files,
                order=1,
                ready=Line("^ready"),
                ready_within_s=emulated_training.READY_S,
                gate=True,
                follow=LOG,
                job=job.name,
                rank=rank.rank,
            )
            for rank in job.ranks
        ),
    ]


def _rendezvous(config: Config, job: Job, topology: Topology) -> Launch:
    first = topology.node(job.ranks[0].node)
    ranks_of = Counter(rank.node for rank in job.ranks)
    hosts = ",".join(f"{name}:{count}" for name, count in ranks_of.items())
    port = RENDEZVOUS_PORT + job.index
    return Launch(
        name=f"{job.name}-rendezvous",
        node=first.name,
        role="rank",
        argv=(
            *(_python(config, first.name, topology), "-u", _RENDEZVOUS),
            *(first.address, str(port), hosts, str(len(job.ranks))),
        ),
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        files={_RENDEZVOUS: emulated_training.TRAINING / _RENDEZVOUS},
        ready=Listening(port),
        ready_within_s=emulated_training.READY_S,
        job=job.name,
        flows=between.flows(job, topology, port=port),
    )


def _env(config: Config, job: Job, rank: Rank, topology: Topology) -> dict[str, str]:
    node = topology.node(rank.node)
    across = [other.node for other in job.ranks if other.local_rank == rank.local_rank]
    env = {
        "RANK": str(rank.rank),  # for messages of our own
        "HOROVOD_HOSTNAME": rank.node,
        "HOROVOD_RANK": str(rank.rank),
        "HOROVOD_SIZE": str(len(job.ranks)),
        "HOROVOD_LOCAL_RANK": str(rank.local_rank),
        "HOROVOD_LOCAL_SIZE": str(sum(other.node == rank.node for other in job.ranks)),
        "HOROVOD_CROSS_RANK": str(across.index(rank.node)),
        "HOROVOD_CROSS_SIZE": str(len(across)),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": topology.node(job.ranks[0].node).address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(RENDEZVOUS_PORT + job.index),
        "HOROVOD_GLOO_IFACE": node.device,
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(_GLOO_TIMEOUT_S),
        "HOROVOD_FUSION_THRESHOLD": str(round(config.fusion / topology.scale)),
        "HOROVOD_CYCLE_TIME": f"{config.cycle_time * 1e3:g}",
        "OMP_NUM_THREADS": str(config.threads),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if config.timeline:  # rank 0 alone writes; a rank that is not told of it waits for the others for ever
        env |= {"HOROVOD_TIMELINE": TIMELINE, "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    if config.framework == "tensorflow":
        env |= environments.QUIET_TENSORFLOW
    return env | config.env


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    return environments.requirements(
        (config.framework, "horovod"), job.nodes, topology, given=config.python, environment=config.framework,
        needed_by=NAME,
    )  # fmt: skip


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Bytes of the gradients alone; what ranks agree on in each cycle uses the same connections and comes on top."""
    moved = modelled.parameters(config, topology)
    world = len(job.ranks)
    each = _ELEMENT_BYTES[config.compression]
    return between.theory(
        job,
        between.ring(world, 2 * (world - 1) / world * moved * each),
        parameters=moved,
        source=f"ring all-reduce, 2 (N-1)/N x parameters x {each} bytes (Salamy, eq. 3.1), without Horovod's control "
        "traffic, so much a cycle at any scale",
    )


def read(home: Home) -> Mapping[str, Columns]:
    tables = read_iterations(home)
    return {**tables, **read_timeline(home, TIMELINE, tables["iterations"])}


def _python(config: Config, node: str, topology: Topology) -> str:
    return environments.interpreter(config.python, config.framework, topology.node(node), topology)
