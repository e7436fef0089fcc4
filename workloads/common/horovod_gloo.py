"""What tells a rank of Horovod on Gloo its place in the job, and where the ranks meet."""

from __future__ import annotations

from orchestrator.parts.topology import RENDEZVOUS_PORT, Job, Rank, Topology, in_url

_TIMEOUT_S = 900  # published iterations under burst traffic last up to 183 s


def rank_env(job: Job, rank: Rank, topology: Topology) -> dict[str, str]:
    """The variables that `horovodrun` would set for a rank."""
    node = topology.node(rank.node)
    across = [other.node for other in job.ranks if other.local_rank == rank.local_rank]
    return {
        "HOROVOD_HOSTNAME": rank.node,
        "HOROVOD_RANK": str(rank.rank),
        "HOROVOD_SIZE": str(len(job.ranks)),
        "HOROVOD_LOCAL_RANK": str(rank.local_rank),
        "HOROVOD_LOCAL_SIZE": str(sum(other.node == rank.node for other in job.ranks)),
        "HOROVOD_CROSS_RANK": str(across.index(rank.node)),
        "HOROVOD_CROSS_SIZE": str(len(across)),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": in_url(topology.node(job.ranks[0].node).address),
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(RENDEZVOUS_PORT + job.index),
        "HOROVOD_GLOO_IFACE": node.first.device,  # it takes one alone
        "HOROVOD_TIMEOUT_SECONDS": str(_TIMEOUT_S),
    }
