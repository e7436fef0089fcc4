"""Describes hosts that are pods: the keys of `testbed: kubernetes`, facts of the pods, and the topology."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from orchestrator.core.fields import Model, Rate
from orchestrator.core.units import Mistake
from orchestrator.parts.topology import WORK, Link, Node, Topology
from orchestrator.testbed import inventory
from orchestrator.testbed.data_plane import DataPlane
from orchestrator.testbed.inventory import Absolute, Data, Name

# Names of objects (RFC 1123) and selectors, as Kubernetes' "Object Names and IDs" and "Labels and Selectors" have them.
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")
_SELECTOR = re.compile(r"[A-Za-z0-9!][\w./=!,() -]{0,511}\Z", re.ASCII)
_CONTEXT = re.compile(r"[^\s-]\S{0,252}\Z")


def object_name(value: str) -> str:
    """Return a pod's name, which is as long as a name in DNS may be."""
    if not _SUBDOMAIN.match(value):
        raise Mistake("not the name of a pod", accepted="at most 253 small letters, digits, '-' and '.'")
    return value


def _label(value: str) -> str:
    if not _LABEL.match(value):
        raise Mistake("not a name in Kubernetes", accepted="at most 63 small letters, digits and '-'")
    return value


def _selector(value: str) -> str:
    if not _SELECTOR.match(value):
        raise Mistake("not a label selector", accepted="one such as job-name=train, as for kubectl -l")
    return value


def _context(value: str) -> str:
    if not _CONTEXT.match(value):
        raise Mistake("not the name of a context", accepted="one that `kubectl config get-contexts` lists")
    return value


Label = Annotated[str, AfterValidator(_label)]
Pod = Annotated[str, AfterValidator(object_name)]


class PodHost(Model):
    """A pod, with its properties when it was asked."""

    pod: Pod
    """Its name."""

    container: Label
    """Its container in which the agent runs."""

    node: str
    """The machine that it runs on, as Kubernetes calls it."""

    data: Data
    """Its end of the data plane."""

    link: Rate
    """Rate of its link."""

    gpus: int = Field(default=0, ge=0)
    """GPUs that its container is given."""


class Pods(Model):
    """Facts of pods, found by agents in them: written with the results, and not by hand."""

    namespace: Label
    """The namespace that they are in."""

    mtu: int = Field(ge=576, le=65535)
    """MTU of the data plane, in bytes."""

    rights: tuple[str, ...] = ()
    """What an agent may do in every pod, of what parts ask for."""

    hosts: dict[Name, PodHost] = Field(min_length=1)
    """h1, h2, ... in the order of their indexes, or else of their names."""


class KubernetesSpec(DataPlane):
    """Pods of a Kubernetes cluster that run already: h1, h2, ... in the order of their indexes."""

    KEY: ClassVar[str] = "kubernetes"
    LOOK: ClassVar[str] = "kubectl exec POD -- ip -br address"

    label: Annotated[str, AfterValidator(_selector)]
    """Label selector of the pods, such as job-name=train, as for `kubectl -l`."""

    namespace: Label | None = None
    """The namespace that they are in; that of the context when left out."""

    context: Annotated[str, AfterValidator(_context)] | None = None
    """Context of the kubeconfig; the current one when left out."""

    container: Label | None = None
    """Container of each pod in which its agent runs; the first one when left out."""

    python: str = Field(default="python3", min_length=1)
    """Python interpreter in the container, 3.8 or later: a name or a path."""

    work: Absolute = WORK
    """Absolute folder in each container under which runs make theirs; `{uid}` in it is the user's number there."""

    pods: Pods | None = None
    """What the pods said of themselves: filled in by the run."""


def topology(spec: KubernetesSpec, pods: Pods) -> Topology:
    """Return the topology of the testbed for the plan."""
    nodes, links = [], []
    for name, host in pods.hosts.items():
        rails = (inventory.rail(host.data),)
        nodes.append(
            Node(name=name, rails=rails, python=spec.python, gpus=host.gpus, work=spec.work, scheduled=host.pod)
        )
        links.append(Link(host=name, device=host.data.device, rate=host.link))
    return Topology(kind="kubernetes", nodes=tuple(nodes), links=tuple(links), mtu=pods.mtu, rights=pods.rights)
