"""Finds the pods of a testbed and their properties: data plane, GPUs and rights."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TestbedError
from orchestrator.core.units import rate_text
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed import data_plane
from orchestrator.testbed.data_plane import HostFacts
from orchestrator.testbed.kubernetes.kubectl import FoundPod, Kubectl
from orchestrator.testbed.kubernetes.spec import KubernetesSpec, Pods
from orchestrator.testbed.kubernetes.testbed import agent_channel

LEARN_S = 60.0
EACH_S = 0.5  # more for each pod


def learn(spec: KubernetesSpec) -> Pods:
    """Return the pods that a file describes with their properties, asked once of agents in all of them.

    TestbedError where there is none, where one has no such device or several, or where they differ in what must be the
    same in all.
    """
    return _learned(spec.model_copy(update={"pods": None}).model_dump_json())


@functools.cache
def _learned(text: str) -> Pods:
    """Return what `learn` returns, cached by the model's text: one process asks pods once."""
    spec = KubernetesSpec.model_validate_json(text)
    kubectl = Kubectl(context=spec.context or "", namespace=spec.namespace or "")
    pods = kubectl.pods(spec.label, container=spec.container or "")
    deadline = Deadline.after(LEARN_S + EACH_S * len(pods))
    by_name = {pod.name: pod for pod in pods}
    found = fanout.each(
        list(by_name),
        lambda name: _asked(spec, kubectl, by_name[name], deadline),
        deadline=deadline,
        what="asking the pods",
    )
    return summed_up(spec, pods, found)


def summed_up(spec: KubernetesSpec, pods: Sequence[FoundPod], found: Mapping[str, HostFacts]) -> Pods:
    """Return the pods with what each said, in their order; pure."""
    mtu, rights = data_plane.common_mtu(found), data_plane.common_rights(found)
    hosts: dict[str, Mapping[str, object]] = {}
    owners: dict[str, str] = {}
    for place, pod in enumerate(pods, 1):
        one = found[pod.name]
        if (other := owners.setdefault(one.data.address.partition("/")[0], pod.name)) != pod.name:
            message = f"pods {other} and {pod.name} have the same address {one.data.address} on {one.data.device}"
            raise TestbedError(message, hint="measure a network in which each pod has its own address")
        rate = rate_text(data_plane.rate_of(spec, pod.name, one))
        hosts[f"h{place}"] = {
            "pod": pod.name,
            "container": pod.container,
            "node": pod.node,
            "data": one.data,
            "link": rate,
            "gpus": one.gpus,
        }
    return Pods.model_validate({"namespace": pods[0].namespace, "mtu": mtu, "rights": rights, "hosts": hosts})


def _asked(spec: KubernetesSpec, kubectl: Kubectl, pod: FoundPod, deadline: Deadline) -> HostFacts:
    node = Node(name=pod.name, python=spec.python, work=spec.work)
    channel = agent_channel(kubectl, pod.name, pod.container, python=spec.python)
    client = AgentClient(node, channel, run=f"kubernetes-{time.time_ns()}", holder={}, on_event=lambda _: None)
    try:
        client.hello(deadline)
        try:
            return data_plane.facts_of(spec, client, deadline, gpus=pod.gpus)
        finally:
            client.remove(deadline)
    finally:
        client.close(deadline)
