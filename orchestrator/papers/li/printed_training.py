"""The training of the paper's table 3: GPT-3B with (p, t, d) = (4, 2, 4) on four machines of eight GPUs."""

from __future__ import annotations

from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from orchestrator.predict.network_costs import network
from orchestrator.predict.predicting import Subject
from workloads import ptd
from workloads.common.placement import ranks

MACHINES, GPUS = 4, 8


def subject(*, tensor: int = 2, data: int = 4, mapping: str = "default") -> Subject:
    """Return the paper's training as a subject of prediction, or the same split and placed otherwise."""
    names = [f"h{number}" for number in range(1, MACHINES + 1)]
    topology = Topology(
        kind="inventory",
        nodes=tuple(
            Node(name=name, rails=(Rail(address=f"10.0.0.{place}", device="eth0"),))
            for place, name in enumerate(names, 1)
        ),
        links=tuple(Link(host=name, device="eth0", rate=100e9) for name in names),
    )
    config = ptd.Config.model_validate(
        {
            "model": "gpt-3b",
            "pipeline": 4,
            "tensor": tensor,
            "data": data,
            "mapping": mapping,
            "recompute": True,
            "compute_time": "1s",
            "hosts": [name for name in names for _ in range(GPUS)],
        }
    )
    job = Job(name="training", index=0, ranks=ranks(config.hosts, topology))
    return Subject(
        config=config,
        workload="ptd",
        job=job,
        topology=topology,
        work=ptd.pipelined(config, topology),
        network=network(job, topology),
    )
