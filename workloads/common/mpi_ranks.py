"""Launch the ranks of an Open MPI job: its mpirun and daemons under our own processes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from orchestrator.parts.launch import Flow, Launch, Line, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import MPI_PORT, Job, Rail, Rank, Topology
from workloads.common import rank_traffic, shipping
from workloads.common.rank_traffic import Pairs

Algorithm = Literal["ring", "recursive-doubling", "rabenseifner"]

MEET_S = 60.0  # for mpirun, its daemons, its stubs and our ranks to find each other
SPARE_PORTS = 8  # of those ranks take tensors on: others may still be busy with connections that have ended

# After the ports at which the ranks of a host take tensors: mpirun's and its daemons', and where a daemon is asked for.
_DAEMON_AT = 91
_DAEMON_PORTS = 8  # as the last runs' are not free at once
_COMMAND_AT = 99
_MOST_RANKS = _DAEMON_AT - SPARE_PORTS

_STARTER, _DAEMON = "mpi.mpirun", "mpi.daemon"
_STARTED_BY_MPIRUN = ("mpi.rsh_agent", "mpi.stub")
_STARTED_S = 2 * MEET_S  # first the daemons have to meet, then the ranks
_ALL_REDUCE = {"ring": "4", "recursive-doubling": "3", "rabenseifner": "6"}
_RANK_SETTINGS = {
    "coll": "basic,inter,libnbc,self,sync,tuned",  # others choose algorithms of their own
    "coll_tuned_use_dynamic_rules": "1",
    "coll_tuned_allgather_algorithm": "4",  # ring
    "coll_tuned_reduce_scatter_algorithm": "3",  # ring
    "coll_tuned_alltoall_algorithm": "2",  # pairwise
    "coll_tuned_bcast_algorithm": "6",  # binomial
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mpi:
    """How a job uses Open MPI; without an `algorithm` of its own it chooses them itself."""

    mpirun: str
    algorithm: Algorithm | None
    transport: Literal["auto", "tcp", "rdma"]
    rdma_device: str | None
    env: Mapping[str, str]
    tensors: bool = True  # go over it; else ranks meet and agree by it, and what else they send goes another way


def problems(hosts: Sequence[str]) -> list[Problem]:
    """Find hosts with more ranks than ports."""
    return [
        Problem(
            at=("hosts",),
            message=f"{name} has {count} ranks, and each takes its tensors on a port of its own",
            accepted=f"at most {_MOST_RANKS} ranks a host",
        )
        for name, count in Counter(hosts).items()
        if count > _MOST_RANKS
    ]


def launches(mpi: Mpi, job: Job, topology: Topology) -> list[Launch]:
    """Return the launches of mpirun at the host of rank 0, then of a daemon at each other host.

    The ranks are launches of their own: they call `join.join` before they initialize MPI.
    """
    first, *others = job.nodes
    port = str(_port(job) + _COMMAND_AT)
    listening = {name: (_DAEMON, topology.node(name).address, port) for name in others}
    daemons = [
        _helper(mpi, job, topology, host=host, name=f"{job.name}-daemon-{host}", command=command)
        for host, command in listening.items()
    ]
    lowest = _port(job) + _DAEMON_AT
    command = (_STARTER, str(lowest), str(lowest + _DAEMON_PORTS - 1), *_command(mpi, job, topology))
    started = _helper(mpi, job, topology, host=first, name=f"{job.name}-mpirun", command=command)
    return [
        replace(started, ready=Line("^rank 0 joined"), ready_within_s=_STARTED_S, flows=_flows(mpi, job, topology)),
        *daemons,
    ]


def _called(job: Job, topology: Topology, name: str) -> str:
    """Return mpirun's name of a host: its address, or with IPv6 one of a block that nobody has (RFC 1112, class E).

    In a word of `--host` it takes what follows the first colon for a number of slots.
    """
    if topology.ip == 4:
        return topology.node(name).address
    place = job.nodes.index(name)
    return f"240.0.{place >> 8}.{place & 255}" if place else "localhost"


def _helper(mpi: Mpi, job: Job, topology: Topology, *, host: str, name: str, command: tuple[str, ...]) -> Launch:
    node = topology.node(host)
    return Launch(
        name=name,
        node=node.name,
        role="rank",
        argv=shipping.argv(node.python, *command),
        env={
            "MPI_RANK": rank_name(job, ""),
            "MPI_MEET_S": f"{MEET_S:g}",
            "MPI_DAEMON_PORT": str(_port(job) + _COMMAND_AT),
            "MPI_HOSTS": json.dumps({_called(job, topology, name): topology.node(name).address for name in job.nodes}),
            **({"OMPI_MCA_oob_tcp_disable_ipv4_family": "1"} if topology.ip == 6 else {}),
            "OMPI_MCA_oob_tcp_if_include": _network(node.first),
            "PYTHONDONTWRITEBYTECODE": "1",
            **mpi.env,
        },
        files=shipping.files(command[0], *_STARTED_BY_MPIRUN),
        run_key="MPI_RUN_KEY",
        job=job.name,
    )


def _command(mpi: Mpi, job: Job, topology: Topology) -> tuple[str, ...]:
    """Return the command of mpirun, with a stub for each rank on its host; each host finds its own stub."""
    settings = {
        "plm": "rsh",  # even where a batch system is at hand
        "plm_rsh_no_tree_spawn": "1",
        "plm_rsh_pass_environ_mca_params": "0",  # each host has its own
    }
    return (
        *(mpi.mpirun, "--allow-run-as-root", "--bind-to", "none", "--leave-session-attached", "--wdir", "/"),
        *(word for name, value in settings.items() for word in ("--mca", name, value)),
        *("--map-by", "seq", "--host", ",".join(_called(job, topology, rank.node) for rank in job.ranks)),
        *("sh", "-c", 'exec "$MPI_PYTHON" "$MPI_PROGRAMS" mpi.stub'),
    )


def rank_name(job: Job, rank: int | str) -> str:
    """Return the name of a rank's launch, by which it also joins the job."""
    return f"{job.name}-rank{rank}"


def rank_env(mpi: Mpi, job: Job, rank: Rank, topology: Topology) -> dict[str, str]:
    """Return variables with a rank's name, transport, ports and algorithms."""
    node = topology.node(rank.node)
    settings: dict[str, str] = {}
    if mpi.algorithm is not None:
        settings = {**_RANK_SETTINGS, "coll_tuned_allreduce_algorithm": _ALL_REDUCE[mpi.algorithm]}
    if topology.kind == "local":
        settings["mpi_yield_when_idle"] = "1"  # ranks that wait would keep others from the processors they share
    if mpi.transport == "rdma":
        devices = mpi.rdma_device or ",".join(node.rdma)
        device = {"UCX_NET_DEVICES": devices} if devices else {}
        env = {"UCX_TLS": "rc,sm,self", **device}
        settings |= {"pml": "ucx", "osc": "ucx", "btl": "^openib"}
    else:
        env = {}
        settings |= {
            "pml": "ob1",
            "btl": "self,tcp",
            "btl_tcp_if_include": ",".join(map(_network, node.rails)),
            **({"btl_tcp_disable_family": "4"} if topology.ip == 6 else {}),
            # It listens by both, whatever it is told to connect by.
            **{f"btl_tcp_port_min_v{version}": str(_port(job)) for version in (4, 6)},
            **{f"btl_tcp_port_range_v{version}": str(_tensor_ports(job)) for version in (4, 6)},
        }
    return (
        env | {"MPI_NAME": rank_name(job, rank.rank)} | {f"OMPI_MCA_{name}": value for name, value in settings.items()}
    )


def _network(rail: Rail) -> str:
    """Return the network of a rail as its host sees it, or the device there.

    A network of one address Open MPI takes for any, and of IPv6 it knows none.
    """
    network = rail.network
    return rail.device if network.version == 6 or network.num_addresses == 1 else str(network)


def _port(job: Job) -> int:
    return MPI_PORT + 100 * job.index


def _tensor_ports(job: Job) -> int:
    return max(Counter(rank.node for rank in job.ranks).values()) + SPARE_PORTS


def _flows(mpi: Mpi, job: Job, topology: Topology) -> tuple[Flow, ...]:
    """Return the flows of mpirun and its daemons, then those of the ranks."""
    base = _port(job)
    control = list(range(base + _DAEMON_AT, base + _COMMAND_AT + 1))
    ranks = [] if mpi.transport == "rdma" else list(range(base, base + _tensor_ports(job)))  # RDMA shows no ports
    if mpi.tensors and ranks:
        training = tuple(Flow(kind="training", name=job.name, port=port) for port in ranks)
    else:
        control += ranks
        training = rank_traffic.training_flows(job, topology)
    return (*(Flow(kind="control", name=job.name, port=port) for port in control), *training)


def requirements(mpi: Mpi, job: Job, *, remedy: str, needed_by: str) -> list[Requirement]:
    """Return requirements of mpirun at the host of rank 0, and of its daemon at the others."""
    folder = str(PurePosixPath(mpi.mpirun).parent) if "/" in mpi.mpirun else ""
    daemon = f"{folder}/orted" if folder else "orted"
    return [
        Requirement(node=name, kind="program", what=daemon if place else mpi.mpirun, remedy=remedy, needed_by=needed_by)
        for place, name in enumerate(job.nodes)
    ]


def all_reduce(algorithm: Algorithm, world: int, size: float) -> Pairs:
    """Return the bytes between ranks of an all-reduce of `size` bytes by an algorithm of Open MPI (coll/tuned).

    Its rings turn from each rank to the next. Ranks beyond a power of two take part through a neighbour (Thakur et al.,
    2005, section 4).
    """
    if algorithm == "ring":
        return rank_traffic.turned(rank_traffic.ring(world, 2 * (world - 1) / world * size))
    power = 1 << (world.bit_length() - 1)
    extra = world - power
    halving = algorithm == "rabenseifner"
    # Of each pair of the first 2 x extra ranks one stands for both.
    member = [2 * place + (0 if halving else 1) if place < extra else place + extra for place in range(power)]
    parts: list[Pairs] = []
    for even in range(0, 2 * extra, 2):
        odd = even + 1
        to_member = {(odd, even): size, (even, odd): size / 2} if halving else {(even, odd): size}
        parts += [to_member, {(even, odd) if halving else (odd, even): size}]
    share = size
    distance = 1
    while distance < power:
        share /= 2
        each = 2 * share if halving else size  # there, and on the way back
        parts.append({(member[place], member[place ^ distance]): each for place in range(power)})
        distance *= 2
    return rank_traffic.summed(parts)


def between_hosts(job: Job, algorithm: Algorithm, size: float) -> Pairs:
    """Return the bytes between hosts of a hierarchical all-reduce: each rank reduces its part with counterparts."""
    places: dict[int, list[int]] = defaultdict(list)
    for rank in job.ranks:
        places[rank.local_rank].append(rank.rank)
    return rank_traffic.summed(
        {(members[a], members[b]): sent for (a, b), sent in pairs.items()}
        for members in places.values()
        for pairs in [all_reduce(algorithm, len(members), size / len(places))]
    )
