"""The key `container` of every workload: the image whose programs its processes run, and the host's folders in it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from orchestrator.core.fields import Model
from orchestrator.core.units import Mistake
from orchestrator.parts.launch import Container, Mount, Runtime
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Job, Topology

_IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._:/@#+-]{0,254}")
_WORDS = {"ro": False, "rw": True}


def _image(value: str) -> str:
    if not _IMAGE.fullmatch(value):
        accepted = "[REGISTRY/]NAME[:TAG], NAME@sha256:..., an id, or for enroot and pyxis a file"
        raise Mistake("not an image's name", accepted=accepted)
    return value


def _program(value: str) -> str:
    if not value or value.startswith("-") or "\0" in value:
        raise Mistake("not a program", accepted="a name such as python3, or a path in the image")
    return value


def mount_of(value: str) -> Mount:
    """Parse SOURCE[:TARGET][:rw]; raise Mistake for other texts."""
    source, *more = value.split(":")
    writable = _WORDS[more.pop()] if more and more[-1] in _WORDS else False
    target = more.pop() if more else source
    paths = [PurePosixPath(source), PurePosixPath(target)]
    if more or any(not path.is_absolute() or path.parent == path or ".." in path.parts for path in paths):
        accepted = "SOURCE[:TARGET][:rw] of absolute paths, such as /data or /scratch/me:/scratch:rw"
        raise Mistake("not a folder and where it is seen", accepted=accepted)
    if any(letter in value for letter in ',\0\n"'):
        raise Mistake("has a character that ends a path for container runtimes", accepted="a path without it")
    return Mount(source=str(paths[0]), target=str(paths[1]), writable=writable)


def _mount(value: str) -> str:
    mount_of(value)
    return value


class ContainerConfig(Model):
    """A container for each process of a workload, with its host's network, shared memory and RDMA devices."""

    image: Annotated[str, AfterValidator(_image)]
    """The image, which has to be on every host already: a run downloads none. Its content must be the same on all."""

    runtime: Runtime = "podman"
    """What runs it on the hosts. `pyxis` is inside a Slurm allocation alone."""

    python: Annotated[str, AfterValidator(_program)] = "python3"
    """The image's interpreter, 3.8 or later, which has what ranks import."""

    mounts: tuple[Annotated[str, AfterValidator(_mount)], ...] = Field(default=(), max_length=64)
    """Folders of the hosts that it sees: SOURCE[:TARGET][:rw], read-only unless `rw`. The folder of each process is
    there by itself, writable."""


def problems(config: ContainerConfig | None, topology: Topology) -> list[Problem]:
    """Find why hosts of the testbed cannot run such containers at all."""
    if config is None or topology.kind != "local":
        return []
    if topology.runtime:
        message = f"hosts are containers of {topology.runtime} themselves, and no container is in another"
        return [Problem(at=(), message=message, accepted="`image` of the testbed, or its runtime: namespaces")]
    if config.runtime != "podman":
        message = f"hosts of this machine have a network each, and {config.runtime} has this machine's alone"
        return [Problem(at=("runtime",), message=message, accepted="podman, or an inventory")]
    return []


def containers(config: ContainerConfig, job: Job) -> dict[str, Container]:
    """Return the container of each of a job's nodes; it has GPUs where a rank there computes on one."""
    mounts = tuple(map(mount_of, config.mounts))
    on_gpus = {rank.node for rank in job.ranks if rank.device.startswith("cuda")}
    return {
        node: Container(
            runtime=config.runtime, image=config.image, python=config.python, mounts=mounts, gpus=node in on_gpus
        )
        for node in job.nodes
    }
