"""Run ranks that our agents start under external launchers: torchrun, mpirun and srun.

A launcher tells each rank who it is in the job, by environment variables, and supervises it. So each rank stays a
launch of its own, with its folder, gate, log and exit status; what the launcher starts in its place is a stub, which
gives the rank the launcher's environment and lives as long as the rank does (`rank/mpi/stub.py`). No host needs ssh to
another.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

from orchestrator.parts.launch import Flow, Launch, Line, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import RENDEZVOUS_PORT, Job, Node, Rank, Topology
from workloads.common import mpi_ranks, rank_traffic, shipping
from workloads.common.mpi_ranks import Mpi

Launcher = Literal["torchrun", "mpirun", "srun"]

MEET_S = mpi_ranks.MEET_S
_READY_S = 2 * MEET_S
_STUB = "mpi.stub"
_LAUNCHER = "external.launcher"
# Runs the stub from the archive of the rank, in the words of a shell. srun may be there before the rank, whose folder
# no other rank of the run has the name of, and whose archive is whole once it has an output.
_STUB_OF_SRUN = (
    'until set -- "{work}/$ORCH_RUN".*"/$MPI_RANK$SLURM_PROCID/stdout"; [ -e "$1" ]; do sleep 0.1; done; '
    'exec {python} -u "${{1%/*}}/{archive}" {stub} srun'
)


def problems(launcher: Launcher | None, hosts: list[str], *, contained: bool = False) -> list[Problem]:
    """Find placements of ranks that a launcher cannot make; `contained` is whether they are in containers."""
    if launcher == "mpirun":
        return mpi_ranks.problems(hosts)
    if launcher == "srun" and contained:
        message = "srun starts its processes on the hosts, outside of the image"
        return [Problem(at=("launcher",), message=message, accepted="torchrun or mpirun, or no container")]
    changes = sum(before != after for before, after in pairwise(hosts))
    if launcher == "torchrun" and changes + 1 > len(set(hosts)):
        message = "torchrun numbers the ranks of a host one after the other"
        return [
            Problem(at=("hosts",), message=message, accepted="each host's ranks together, such as [h1, h1, h2, h2]")
        ]
    return []


def launches(
    launcher: Launcher, job: Job, topology: Topology, *, program: str | None, env: Mapping[str, str]
) -> list[Launch]:
    """Return the launches that start the stubs: torchrun on each host, mpirun or srun on the first one."""
    if launcher == "mpirun":
        return mpi_ranks.launches(_mpi(program, env), job, topology)
    if launcher == "torchrun":
        return [_torchrun(job, topology, topology.node(name), program, env) for name in job.nodes]
    return [_srun(job, topology, program, env)]


def rank_env(launcher: Launcher, job: Job, rank: Rank, topology: Topology, *, program: str | None) -> dict[str, str]:
    """Return variables with the name by which a rank's stub calls it, and with Open MPI's ports."""
    if launcher == "mpirun":
        return mpi_ranks.rank_env(_mpi(program, {}), job, rank, topology)
    return {"MPI_NAME": mpi_ranks.rank_name(job, rank.rank)}


def programs(launcher: Launcher | None) -> tuple[str, ...]:
    """Return programs for each rank's archive beside the rank's own: srun brings no files to other hosts."""
    return (_STUB,) if launcher == "srun" else ()


def flows(launcher: Launcher | None, job: Job, topology: Topology) -> tuple[Flow, ...]:
    """Return the flows of the ranks; with Open MPI its launches have them."""
    return () if launcher == "mpirun" else rank_traffic.flows(job, topology, port=RENDEZVOUS_PORT + job.index)


def requirements(
    launcher: Launcher, job: Job, topology: Topology, *, program: str | None, by: str
) -> list[Requirement]:
    """Return the requirement of the launcher, where it is started."""
    if launcher == "mpirun":
        remedy = "install Open MPI 4.1 there, or say with `launcher_program` where its mpirun is"
        return mpi_ranks.requirements(_mpi(program, {}), job, remedy=remedy, needed_by=by)
    if launcher == "srun":
        remedy = "run inside of a Slurm allocation, on hosts that have Slurm's srun"
        return [Requirement(node=job.nodes[0], kind="program", what=program or "srun", remedy=remedy, needed_by=by)]
    if program is not None:
        remedy = "correct `launcher_program`"
        return [Requirement(node=name, kind="program", what=program, remedy=remedy, needed_by=by) for name in job.nodes]
    remedy = "pip install torch, or name a torchrun as `launcher_program`"
    return [
        Requirement(
            node=name, kind="module", what="torch", python=topology.node(name).python, remedy=remedy, needed_by=by
        )
        for name in job.nodes
    ]


def _mpi(program: str | None, env: Mapping[str, str]) -> Mpi:
    """Return Open MPI's settings: TCP between hosts, on known ports; the command chooses its algorithms."""
    return Mpi(mpirun=program or "mpirun", algorithm=None, transport="tcp", rdma_device=None, env=env)


def _torchrun(job: Job, topology: Topology, node: Node, program: str | None, env: Mapping[str, str]) -> Launch:
    """Return the launch of torchrun on one host, with the store for all on the first host's data-plane address."""
    started = (program,) if program else (node.python, "-m", "torch.distributed.run")
    command = (
        *started,
        f"--nnodes={len(job.nodes)}",
        f"--nproc-per-node={sum(rank.node == node.name for rank in job.ranks)}",
        f"--node-rank={job.nodes.index(node.name)}",
        f"--master-addr={topology.node(job.nodes[0]).address}",
        f"--master-port={RENDEZVOUS_PORT + job.index}",
        f"--local-addr={node.address}",
        "--max-restarts=0",
        *(shipping.ARCHIVE, _STUB, "torchrun"),
    )
    return Launch(
        name=f"{job.name}-torchrun-{node.name}",
        node=node.name,
        ports=(RENDEZVOUS_PORT + job.index,) if node.name == job.nodes[0] else (),
        role="rank",
        argv=shipping.argv(node.python, _LAUNCHER, *command),
        env=_helper_env(job, env),
        files=shipping.files(_LAUNCHER, _STUB),
        ready=Line(r"^rank \d+ joined"),
        ready_within_s=_READY_S,
        job=job.name,
    )


def _srun(job: Job, topology: Topology, program: str | None, env: Mapping[str, str]) -> Launch:
    """Return the launch of srun: one step of this allocation, with a stub for each rank on the rank's host."""
    first = topology.node(job.nodes[0])
    work = first.work.replace("{uid}", "$(id -u)").rstrip("/")
    stub = _STUB_OF_SRUN.format(work=work, archive=shipping.ARCHIVE, python=shlex.quote(first.python), stub=_STUB)
    hosts = [topology.node(rank.node).of_slurm for rank in job.ranks]
    command = (
        *(
            program or "srun",
            "--overlap",
            "--mem=0",
            "--cpu-bind=none",
            "--export=ALL",
            "--kill-on-bad-exit=1",
            "--overcommit",
        ),
        *("--chdir=/", f"--nodes={len(job.nodes)}", f"--ntasks={len(hosts)}"),
        *("--distribution=arbitrary", f"--nodelist={','.join(hosts)}", "sh", "-c", stub),
    )
    return Launch(
        name=f"{job.name}-srun",
        node=first.name,
        role="rank",
        argv=shipping.argv(first.python, _LAUNCHER, *command),
        env=_helper_env(job, env),
        files=shipping.files(_LAUNCHER),
        ready=Line(r"^rank \d+ joined"),
        ready_within_s=_READY_S,
        job=job.name,
    )


def _helper_env(job: Job, env: Mapping[str, str]) -> dict[str, str]:
    return {
        "MPI_RANK": mpi_ranks.rank_name(job, ""),
        "MPI_MEET_S": f"{MEET_S:g}",
        "PYTHONDONTWRITEBYTECODE": "1",
        **env,
    }
