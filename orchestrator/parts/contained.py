"""Put a launch into a container: the same process, with the program and Python of an image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.core.machines import packages
from orchestrator.parts.launch import Container, Launch, Requirement
from orchestrator.parts.topology import Topology

_AGENTS = Path(__file__).parents[1] / "agents"
_PROGRAM = "container_rank.py"  # the container's first process, which the agent starts
_COMMAND_SCRIPT = "container_rc.sh"
_EXECUTE = b'exec "$@"\n'  # in the place of an image's entry point, which enroot runs else
_IN_IMAGES = ("program", "module")


def wrapped(launch: Launch, containers: Mapping[str, Container]) -> Launch:
    """Return a launch in the container of its node, whose folder is the container's, too.

    As it is where there are none.

    A server of a job may be on a node that has no rank, and so no container of its own: it gets one without GPUs.
    """
    other = next((replace(one, gpus=False) for one in containers.values()), None)
    container = containers.get(launch.node, other)
    if container is None:
        return launch
    script = {_COMMAND_SCRIPT: _EXECUTE} if container.runtime == "enroot" else {}
    files = {**launch.files, _PROGRAM: _AGENTS / _PROGRAM, **script}
    return replace(launch, container=container, files=files)


def topology_of(topology: Topology, containers: Mapping[str, Container]) -> Topology:
    """Return the testbed as plans for the image see it: its Python is on every node, this machine's is not."""
    container = next(iter(containers.values()), None)
    if container is None:
        return topology
    nodes = tuple(replace(node, python=container.python) for node in topology.nodes)
    return replace(topology, nodes=nodes, image=container.image)


def requirements(needed: Iterable[Requirement], containers: dict[str, Container], *, by: str) -> Iterator[Requirement]:
    """Give what launches need whose nodes have these containers: the image, and in it programs and modules."""
    for node, container in containers.items():
        client = _client(container)
        remedy = packages.remedy(client) if client in packages.NAMES else f"install {client} on {node}"
        yield Requirement(node=node, kind="program", what=client, remedy=remedy, needed_by=by)
        yield Requirement(
            node=node, kind="image", what=container.image, container=container, remedy=_remedy(container), needed_by=by
        )
    yield from in_images(needed, containers)


def in_images(needed: Iterable[Requirement], containers: Mapping[str, Container]) -> Iterator[Requirement]:
    """Give what is needed on nodes, with programs and modules in the image of a node's container where it has one."""
    for need in needed:
        own = containers.get(need.node) if need.kind in _IN_IMAGES else None
        yield replace(need, container=own, remedy=f"build it into the image {own.image}") if own else need


def _client(container: Container) -> str:
    return "srun" if container.runtime == "pyxis" else container.runtime


def _remedy(container: Container) -> str:
    name, image = container.runtime, container.image
    if name in ("podman", "docker"):
        return f"on each host: {name} pull {image}, or build it there; a run downloads none"
    return f"put the squashfs of {image} where every host sees it: enroot import"
