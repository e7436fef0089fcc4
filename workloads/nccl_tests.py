"""NVIDIA's nccl-tests: benchmarks of collective operations on NCCL, as ranks of an Open MPI job, one for each GPU."""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from orchestrator.parts.launch import Launch, Line, Requirement, Stop
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Job, Rank, Topology
from workloads.common import environments, mpi_ranks, shipping, torch_ranks
from workloads.common.mpi_ranks import Mpi
from workloads.rank.external.nccl_tests import NcclTestsSettings
from workloads.readers.iteration_logs import LOG

PROGRAMS = {
    "all-reduce": "all_reduce_perf",
    "all-gather": "all_gather_perf",
    "reduce-scatter": "reduce_scatter_perf",
    "all-to-all": "alltoall_perf",
    "broadcast": "broadcast_perf",
}

_PROGRAM = "external.nccl_tests"
_GRACE_S = 5.0
_ALIGNED = 16  # bytes of a rank's share, so that the programs round nothing down
_BUILD = "build github.com/NVIDIA/nccl-tests there with `make MPI=1`, and give the workload its folder as `nccl_tests`"
_OPEN_MPI = "install the Open MPI that nccl-tests was built with, and give the workload its program as `mpirun`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One operation over message sizes in bytes, each the same multiple of the one before."""

    operation: str
    sizes: tuple[int, ...]
    repeats: int
    folder: str | None
    mpirun: str
    transport: Literal["auto", "tcp", "rdma"]
    rdma_device: str | None
    evidence: Mapping[str, str]  # variables that have NCCL write of itself
    env: Mapping[str, str]

    @property
    def program(self) -> str:
        """The program's path on the hosts, or its name where it is on their PATH."""
        name = PROGRAMS[self.operation]
        return f"{self.folder.rstrip('/')}/{name}" if self.folder else name

    @property
    def mpi(self) -> Mpi:
        """The Open MPI job by which its ranks meet; NCCL sends the messages."""
        return Mpi(mpirun=self.mpirun, algorithm="ring", transport="tcp", rdma_device=None, env=self.env, tensors=False)


def problems(operations: Sequence[str], asked: Sequence[float], placed: Sequence[Rank]) -> list[Problem]:
    """Find ranks without a GPU, more than one operation, and sizes that its programs cannot take."""
    found = torch_ranks.gpu_problems(placed, at="backend", asked="nccl-tests", instead="gloo")
    if len(operations) > 1:
        message = "a program of nccl-tests does one operation, again and again"
        found.append(Problem(at=("operations",), message=message, accepted="one of them"))
    if _factor(asked) is None:
        message = "nccl-tests gets from one size to the next by the same whole factor"
        found.append(Problem(at=("sizes",), message=message, accepted="such as [1mb, 4mb, 16mb]"))
    return found


def _factor(asked: Sequence[float]) -> int | None:
    """Return the factor from each size to the next, None where that is no whole number above one."""
    if len(asked) == 1:
        return 2
    factor = round(asked[1] / asked[0])
    same = all(math.isclose(after, before * factor) for before, after in pairwise(asked))
    return factor if same and factor > 1 else None


def sizes(asked: Sequence[float], world: int, scale: int) -> tuple[int, ...]:
    """Return the sizes measured for the requested ones: the first rounded up to whole shares, then by the factor."""
    whole = _ALIGNED * world
    first = whole * max(1, math.ceil(asked[0] / scale / whole))
    factor = _factor(asked) or 1
    return tuple(first * factor**place for place in range(len(asked)))


def operations_in_a_pass(repeats: int) -> int:
    """Return how often a program runs the operation at each size, out of place and then in place.

    Once before the clock starts, `repeats` times in one go, and once more with its result compared (its common.cu).
    """
    return 2 * (1 + repeats + 1)


def launches(benchmark: Benchmark, job: Job, topology: Topology) -> list[Launch]:
    """Return launches of mpirun and its daemons, then of a program for each rank that starts nccl-tests at the gate."""
    settings: NcclTestsSettings = {
        "argv": [
            *(benchmark.program, "-b", str(benchmark.sizes[0]), "-e", str(benchmark.sizes[-1])),
            *("-f", str(_factor(benchmark.sizes)), "-n", str(benchmark.repeats), "-w", "1", "-g", "1"),
            *("-d", "float", "-c", "1", "-a", "1", "-N", "0"),  # compared; mean over ranks; for good
        ],
        "cwd": None,
        "file": None,
        "first_within_s": torch_ranks.READY_S,
        "grace_s": _GRACE_S,
        "join_s": mpi_ranks.MEET_S,
        "operation": benchmark.operation,
        "sizes": list(benchmark.sizes),
        "repeats": benchmark.repeats,
        "world": len(job.ranks),
        "link_bps": min(topology.link(rank.node).rate / topology.wire_scale for rank in job.ranks),
    }
    files = shipping.files(_PROGRAM, settings=settings)
    return [
        *mpi_ranks.launches(benchmark.mpi, job, topology),
        *(
            Launch(
                name=mpi_ranks.rank_name(job, rank.rank),
                node=rank.node,
                role="rank",
                argv=shipping.argv(topology.node(rank.node).python, _PROGRAM),
                env=_env(benchmark, job, rank, topology),
                files=files,
                ready=Line("^ready"),
                ready_within_s=torch_ranks.READY_S,
                gate=True,
                follow=LOG if rank.rank == 0 else None,  # which alone prints
                stop=Stop(signals=((signal.SIGTERM, _GRACE_S + 2.0),)),
                job=job.name,
                rank=rank.rank,
            )
            for rank in job.ranks
        ),
    ]


def _env(benchmark: Benchmark, job: Job, rank: Rank, topology: Topology) -> dict[str, str]:
    return {
        "RANK": str(rank.rank),  # for messages of our own
        "NCCL_TESTS_DEVICE": rank.device.partition(":")[2],
        "PYTHONDONTWRITEBYTECODE": "1",
        **mpi_ranks.rank_env(benchmark.mpi, job, rank, topology),
        **torch_ranks.nccl(benchmark.transport, benchmark.rdma_device, node=topology.node(rank.node)),
        **benchmark.evidence,
        **benchmark.env,
    }


def requirements(benchmark: Benchmark, job: Job, topology: Topology, *, needed_by: str) -> list[Requirement]:
    """Return requirements of the program and data-plane device on every host, of mpirun and of its daemons."""
    needed = []
    for name in job.nodes:
        needed += [
            Requirement(node=name, kind="program", what=benchmark.program, remedy=_BUILD, needed_by=needed_by),
            *environments.device_requirements(topology.node(name), needed_by=needed_by),
        ]
    return [*needed, *mpi_ranks.requirements(benchmark.mpi, job, remedy=_OPEN_MPI, needed_by=needed_by)]
