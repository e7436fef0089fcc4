"""Asks a cluster by the program kubectl which pods there are, and gives the command that starts a program in one.

The user's kubeconfig decides which cluster that is and how it lets the user in: by certificates, tokens or a plugin.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from orchestrator.core.errors import TestbedError

ASK_S = 30.0
_REQUEST_S = 20  # of the API server, for one answer
_MOST_BYTES = 1 << 27  # of an answer: ten thousand pods have less
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
# Where those that make pods for a job write a pod's place: Job (indexed), StatefulSet, the operators of Kubeflow.
_INDEXES = (
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
)
_REMEDIES = (
    (
        r"cannot (list|get) resource \"pods\"",
        "let the user `get` and `list` `pods` there, and `create` `pods/exec`: a Role and its RoleBinding",
    ),
    (r"context .* does not exist", "see `kubectl config get-contexts`, and correct `context`"),
    (
        r"localhost:8080|no configuration has been provided|current-context",
        "set KUBECONFIG to the kubeconfig of the cluster; in a pod, give it a service account",
    ),
    (r"unable to parse requirement|invalid selector", "correct `label`: one such as job-name=train"),
    (r"refused|no such host|i/o timeout|unable to connect|no route to host", "see `kubectl cluster-info`"),
    (r"unauthorized|must be logged in|expired", "log in to the cluster: see `kubectl auth can-i list pods`"),
)


class _Resources(msgspec.Struct):
    limits: dict[str, str | int] = {}


class _Container(msgspec.Struct):
    name: str
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _PodSpec(msgspec.Struct):
    containers: list[_Container]
    nodeName: str = ""  # noqa: N815 - the API's


class _Owner(msgspec.Struct):
    kind: str


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletionTimestamp: str = ""  # noqa: N815 - the API's
    ownerReferences: list[_Owner] = []  # noqa: N815 - the API's


class _Status(msgspec.Struct):
    phase: str = ""


class _Item(msgspec.Struct):
    metadata: _Metadata
    spec: _PodSpec
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Item]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPod:
    """A pod that runs: where, which of its containers has the agent, its GPUs, and its place where it has one."""

    name: str
    namespace: str
    node: str
    container: str
    gpus: int
    index: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """The program kubectl, for one cluster and namespace; those that it takes by itself where they are empty."""

    context: str = ""
    namespace: str = ""

    def words(self) -> list[str]:
        """Return the words of its command line, up to the command."""
        words = ["kubectl"]
        if self.context:
            words.append(f"--context={self.context}")
        if self.namespace:
            words.append(f"--namespace={self.namespace}")
        return words

    def exec_argv(self, pod: str, container: str, program: Sequence[str]) -> list[str]:
        """Return the command that runs a program in a pod, with standard input and without a terminal."""
        return [*self.words(), "exec", "--stdin", pod, f"--container={container}", "--", *program]

    def pods(self, label: str, *, container: str = "") -> list[FoundPod]:
        """Return the pods with a label that run, in the order of their indexes, or else of their names.

        Those of a DaemonSet, whose names are chosen at random, come in the order of their machines' names.

        Those that have ended are left out. TestbedError where there is none, where one does not run yet or is about to
        end, where two share a machine, or where one has no such container.
        """
        told = self._ask("get", "pods", f"--selector={label}", "--output=json", f"--request-timeout={_REQUEST_S}s")
        return running(told, label=label, container=container)

    def _ask(self, *arguments: str) -> bytes:
        argv = [*self.words(), *arguments]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_S, check=False)
        except FileNotFoundError:
            raise TestbedError("no program kubectl here", hint="install kubectl, and set KUBECONFIG") from None
        except subprocess.TimeoutExpired:
            raise TestbedError("the cluster does not answer", argv=argv, hint="see `kubectl cluster-info`") from None
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace")
            hint = next((text for pattern, text in _REMEDIES if re.search(pattern, said, re.IGNORECASE)), None)
            raise TestbedError("kubectl failed", argv=argv, tail=said, hint=hint or f"see {shlex.join(argv)}")
        return done.stdout


def running(told: bytes, *, label: str, container: str = "") -> list[FoundPod]:
    """Return the pods that run of a list of the API (`kubectl get pods --output=json`); pure, errors as of `pods`."""
    wait = f"kubectl wait --for=condition=Ready --timeout=5m pod --selector={shlex.quote(label)}"
    if len(told) > _MOST_BYTES:
        raise TestbedError(f"kubectl's list of pods has {len(told)} bytes", hint="narrow `label`")
    try:
        listed = msgspec.json.decode(told, type=_List).items
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise TestbedError(f"kubectl's list of pods cannot be read: {error}", hint="see `kubectl version`") from None
    current = [item for item in listed if item.status.phase not in ("Succeeded", "Failed")]
    if not current:
        message = f"no pod has the label {label}" if not listed else f"all {len(listed)} pods of {label} have ended"
        raise TestbedError(message, hint="create them, or correct `label` and `namespace`")
    for item in current:
        if item.metadata.deletionTimestamp:
            raise TestbedError(f"pod {item.metadata.name} is being deleted", hint="wait until it is gone")
        if item.status.phase != "Running":
            raise TestbedError(f"pod {item.metadata.name} is {item.status.phase or 'not running'}", hint=wait)
    found = [_pod(item, container) for item in current]
    _refuse_shared(found)
    places = [pod.index for pod in found]
    if None not in places and len(set(places)) == len(places):
        return sorted(found, key=lambda pod: pod.index or 0)
    if all(_of_daemon_set(item.metadata) for item in current):
        return sorted(found, key=lambda pod: _natural(pod.node))
    return sorted(found, key=lambda pod: _natural(pod.name))


def _pod(item: _Item, container: str) -> FoundPod:
    """Return a pod, with the container that is asked for, or its first one."""
    named = {one.name: one for one in item.spec.containers}
    chosen = named.get(container or next(iter(named), ""))
    if chosen is None:
        raise TestbedError(
            f"pod {item.metadata.name} has no container {container!r}", hint=f"it has {', '.join(named) or 'none'}"
        )
    limits = chosen.resources.limits
    return FoundPod(
        name=item.metadata.name,
        namespace=item.metadata.namespace,
        node=item.spec.nodeName,
        container=chosen.name,
        gpus=sum(_whole(limits.get(name)) or 0 for name in _GPUS),
        index=next((_whole(place) for place in _places(item.metadata) if place is not None), None),
    )


def _places(metadata: _Metadata) -> list[str | None]:
    return [metadata.labels.get(name, metadata.annotations.get(name)) for name in _INDEXES]


def _of_daemon_set(metadata: _Metadata) -> bool:
    return any(owner.kind == "DaemonSet" for owner in metadata.ownerReferences)


def _refuse_shared(found: Sequence[FoundPod]) -> None:
    """Refuse two pods on one machine: what they send each other never leaves it."""
    first: dict[str, str] = {}
    for pod in found:
        if pod.node in first:
            raise TestbedError(
                f"pods {first[pod.node]} and {pod.name} share the machine {pod.node}",
                hint="spread them by podAntiAffinity, as in pods.yml of `orch init kubernetes`",
            )
        first[pod.node] = pod.name


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which train-10 comes after train-9."""
    return [(int(word) if word.isdigit() else -1, word) for word in re.split(r"(\d+)", name)]


def _whole(value: str | int | None) -> int | None:
    return int(value) if value is not None and re.fullmatch(r"\d{1,9}", str(value), re.ASCII) else None
