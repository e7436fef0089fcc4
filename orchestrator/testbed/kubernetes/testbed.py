"""Uses pods of a Kubernetes cluster as a testbed: each agent is the program of one `kubectl exec`.

What keeps such a channel honest is the agent's own protocol, as kubectl and the API server promise little: frames have
lengths, so that output that is cut off shows (kubernetes/kubernetes#124571); either side pings every two seconds, so
that no proxy finds the stream idle, and one that is silent is given up, as kubectl stays when its pod is gone
(kubernetes/kubernetes#129144). An agent whose kubectl was killed may see no end of its input
(kubernetes/kubernetes#89031): it ends once it has heard nothing for `SILENCE_S`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from orchestrator.core.deadline import Deadline
from orchestrator.parts.protocols import Channel
from orchestrator.remote.transport.bootstrap import agent_argv
from orchestrator.remote.transport.local import ProcessChannel
from orchestrator.testbed.kubernetes.kubectl import Kubectl
from orchestrator.testbed.kubernetes.spec import KubernetesSpec, Pods, topology

API = "the cluster's API server"


def agent_channel(kubectl: Kubectl, pod: str, container: str, *, python: str) -> ProcessChannel:
    """Start an agent in a pod and return its channel; the first answer tells whether it runs."""
    by_hand = shlex.join(kubectl.exec_argv(pod, container, [python, "-V"]))
    return ProcessChannel(kubectl.exec_argv(pod, container, agent_argv(python)), way=(API,), by_hand=by_hand)


class KubernetesTestbed:
    """A testbed of pods that exist before and after the run."""

    __test__ = False

    def __init__(self, spec: KubernetesSpec, pods: Pods) -> None:
        self.topology = topology(spec, pods)
        self._python = spec.python
        self._pods = pods
        self._kubectl = Kubectl(context=spec.context or "", namespace=pods.namespace)
        self._channels: list[Channel] = []

    def open(self, run_folder: Path, deadline: Deadline) -> None:
        """Do nothing: the pods run already, and see nothing of `run_folder`."""

    def connect(self, node: str, deadline: Deadline) -> Channel:  # noqa: ARG002 - the protocol's
        """Start an agent in a host's pod."""
        host = self._pods.hosts[node]
        channel = agent_channel(self._kubectl, host.pod, host.container, python=self._python)
        self._channels.append(channel)
        return channel

    def local_folder(self, node: str) -> Path | None:  # noqa: ARG002 - the protocol's
        return None

    def about(self) -> Mapping[str, str]:
        hosts = self._pods.hosts.items()
        return {
            "namespace": self._pods.namespace,
            "pods": " ".join(f"{name}={host.pod}" for name, host in hosts),
            "nodes": " ".join(f"{name}={host.node}" for name, host in hosts),
        }

    def close(self) -> None:
        """Close the channels that are left; each agent ends its pod's part of the run."""
        while self._channels:
            self._channels.pop().close()
