"""Finds the properties of an allocation's hosts: their data plane, GPUs and rights."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from functools import partial

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.units import rate_text
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed import data_plane
from orchestrator.testbed.data_plane import HostFacts
from orchestrator.testbed.slurm import job as jobs
from orchestrator.testbed.slurm.spec import Allocation, SlurmSpec
from orchestrator.testbed.slurm.testbed import Step

LEARN_S = 60.0
EACH_S = 0.5  # more for each host
GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def learn(spec: SlurmSpec) -> Allocation:
    """Return the properties of this process's allocation, asked once of agents on all of its hosts.

    TestbedError where it is in none, where a host has no such device or several, or where they differ in what must be
    the same on all.
    """
    return _learned(spec.model_copy(update={"allocation": None}).model_dump_json(), jobs.id_here())


@functools.cache
def _learned(text: str, _job: str) -> Allocation:
    """Return what `learn` returns, cached by the model's text and the job: one process asks hosts once."""
    spec, job = SlurmSpec.model_validate_json(text), jobs.current()
    deadline = Deadline.after(LEARN_S + EACH_S * len(job.nodes))
    step = Step(job, job.nodes, python=spec.interpreter)
    try:
        found = fanout.each(
            job.nodes, partial(_asked, spec, step, deadline), deadline=deadline, what="asking the hosts"
        )
    finally:
        step.close()
    return summed_up(spec, job.id, found)


def summed_up(spec: SlurmSpec, job: str, found: Mapping[str, HostFacts]) -> Allocation:
    """Return an allocation from the properties of each of its nodes, in their order; pure."""
    mtu = data_plane.common_mtu(found)
    hosts = {
        f"h{place}": {
            "node": node,
            "data": one.data,
            "link": rate_text(data_plane.rate_of(spec, node, one)),
            "gpus": one.gpus,
        }
        for place, (node, one) in enumerate(found.items(), 1)
    }
    rights = data_plane.common_rights(found)
    return Allocation.model_validate({"job": job, "mtu": mtu, "rights": rights, "hosts": hosts})


def _asked(spec: SlurmSpec, step: Step, deadline: Deadline, name: str) -> HostFacts:
    node = Node(name=name, python=spec.interpreter, work=spec.work)
    run = f"slurm-{time.time_ns()}"
    client = AgentClient(node, step.channel(name, deadline), run=run, holder={}, on_event=lambda _: None)
    try:
        client.hello(deadline)
        try:
            return data_plane.facts_of(spec, client, deadline, gpus=_gpus(client, deadline))
        finally:
            client.remove(deadline)
    finally:
        client.close(deadline)


def _gpus(client: AgentClient, deadline: Deadline) -> int:
    """Return how many GPUs the job has on the host, by the variables that Slurm sets for frameworks."""
    for name in GPUS:
        said = client.run(("printenv", name), deadline, privileged=False).stdout.strip()
        if said and said != "NoDevFiles":
            return len(said.split(","))
    return 0
