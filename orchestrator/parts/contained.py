"""How a launch becomes one in a container: the same process, whose program and Python are an image's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from orchestrator.parts.launch import Container, Launch, Requirement
from orchestrator.parts.topology import Topology

_AGENTS = Path(__file__).parents[1] / "agents"
_PROGRAM = "container_rank.py"  # the container's first process, which the agent starts
_COMMAND_SCRIPT = "container_rc.sh"
_EXECUTE = b'exec "$@"\n'  # in the place of an image's entry point, which enroot runs else
_IN_IMAGES = ("program", "module")


def wrapped(launch: Launch, container: Container) -> Launch:
    """A launch in a container; its folder is the container's, too."""
    script = {_COMMAND_SCRIPT: _EXECUTE} if container.runtime == "enroot" else {}
    files = {**launch.files, _PROGRAM: _AGENTS / _PROGRAM, **script}
    return replace(launch, container=container, files=files)


def topology_of(topology: Topology, container: Container) -> Topology:
    """The testbed as who plans launches for the image sees it: its Python is on every node, this machine's is not."""
    nodes = tuple(replace(node, python=container.python) for node in topology.nodes)
    return replace(topology, nodes=nodes, image=container.image)


def requirements(needed: Iterable[Requirement], containers: dict[str, Container], *, by: str) -> Iterator[Requirement]:
    """What launches need whose nodes have these containers: the image, and in it programs and modules."""
    for node, container in containers.items():
        told = "see docs/images.md for what a host needs"
        yield Requirement(node=node, kind="program", what=_client(container), remedy=told, needed_by=by)
        yield Requirement(
            node=node, kind="image", what=container.image, container=container, remedy=_remedy(container), needed_by=by
        )
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
