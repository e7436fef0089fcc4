"""What an experiment says of a testbed on this machine: its hosts, their links, and what runs them."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from orchestrator.core.fields import Duration, Model, Rate
from orchestrator.core.units import Mistake, rate_text
from orchestrator.parts.shared import named_hosts

LEAST_RATE = 1e6  # bit/s of a link as it is set up
NAMESPACES: Final = "namespaces"

_HOST = re.compile(r"[a-z][a-z0-9-]{0,30}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")


def _checked_host(value: str) -> str:
    if not _HOST.fullmatch(value) or value == "switch":
        accepted = "a small letter, then at most 30 small letters, digits or '-'; 'switch' is taken"
        raise Mistake("not a host name", accepted=accepted)
    return value


def _checked_image(value: str) -> str:
    if not _IMAGE.fullmatch(value):
        raise Mistake("not an image's name", accepted="[REGISTRY/]NAME[:TAG] or an id, as `podman images` tells them")
    return value


def _checked_program(value: str) -> str:
    if not value or value.startswith("-") or "\0" in value:
        raise Mistake("not a program", accepted="a name such as python3, or a path")
    return value


def _checked_folder(value: str) -> str:
    path = PurePosixPath(value)
    if not path.is_absolute() or path.parent == path or ".." in path.parts or "\0" in value:
        raise Mistake("not a folder of this machine", accepted="an absolute path such as /data/imagenet")
    return str(path)


HostName = Annotated[str, AfterValidator(_checked_host)]
ImageName = Annotated[str, AfterValidator(_checked_image)]
Program = Annotated[str, AfterValidator(_checked_program)]
Folder = Annotated[str, AfterValidator(_checked_folder)]
RuntimeName = Literal["namespaces", "podman", "docker"]


class LocalTestbed(Model):
    """Hosts on this machine, behind a switch of their own: network namespaces, or containers of an image."""

    hosts: (
        Annotated[int, Field(strict=True, ge=2, le=64)]
        | Annotated[tuple[HostName, ...], Field(min_length=2, max_length=64)]
    )
    """How many hosts (named h1, h2, ...), or their names."""
    link: Rate
    """Capacity of both ends of every host's link."""
    links: dict[HostName, Rate] = Field(default_factory=dict)
    """Capacity of single hosts' links where it differs."""
    rails: int = Field(default=1, ge=1, le=8)
    """How many links each host has, each of that capacity and on a switch of its own, as hosts with several NICs."""
    ip: Literal[4, 6] = 4
    """Version of IP of the data plane."""
    scale: int = Field(default=1, ge=1, le=1_000_000)
    """Divides every rate and size of the experiment; durations stay."""
    mtu: int = Field(default=1500, ge=1280, le=9000)
    """Largest IP packet, bytes."""
    offloads: bool = False
    """Keep segmentation offloads on: cheaper, but captures show super-packets and queues count them whole."""
    queue: Duration = Field(default=0.005, gt=0)
    """Longest queueing delay at a link's end: the queue holds that many seconds of its rate."""
    runtime: RuntimeName = NAMESPACES
    """What hosts are: network namespaces of this machine, or containers that podman or docker runs."""
    image: ImageName | None = None
    """Image of the hosts, with its own Python and frameworks: one that is here, as a run downloads none. Default: ours,
    with this machine's programs and Python, read-only."""
    python: Program | None = None
    """The image's interpreter, 3.8 or later, which has what ranks need. Default: python3."""
    mounts: tuple[Folder, ...] = ()
    """Folders of this machine that containers see, read-only, at the same path: data sets, say."""

    @model_validator(mode="after")
    def _of_containers(self) -> LocalTestbed:
        for key in ("image", "mounts"):
            if getattr(self, key) and self.runtime == NAMESPACES:
                raise Mistake("is for containers", accepted="with runtime: podman or runtime: docker", at=(key,))
        if self.python is not None and self.image is None:
            raise Mistake("is of an image", accepted="with image: NAME", at=("python",))
        return self

    @model_validator(mode="after")
    def _possible(self) -> LocalTestbed:
        names = self.names
        for place, name in enumerate(names):
            if name in names[:place]:
                raise Mistake(f"{name!r} stands here twice", accepted="each name once", at=("hosts", place))
        for name in self.links:
            if name not in names:
                raise Mistake(named_hosts.absent(name), accepted=named_hosts.one_of(names), at=("links", name))
        rates: list[tuple[tuple[str, ...], float]] = [(("link",), self.link)]
        rates += [(("links", name), rate) for name, rate in self.links.items()]
        for at, rate in rates:
            if rate < LEAST_RATE:
                raise Mistake(f"{rate_text(rate)} is too slow", accepted=f"{rate_text(LEAST_RATE)} or more", at=at)
        slowest = min(rate for _, rate in rates)
        if slowest / self.scale < LEAST_RATE:
            raise Mistake(
                f"{self.scale} leaves a link of less than {rate_text(LEAST_RATE)}",
                accepted=f"at most {int(slowest / LEAST_RATE)} with these links",
                at=("scale",),
            )
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"h{i}" for i in range(1, self.hosts + 1)) if isinstance(self.hosts, int) else self.hosts

    def rate_of(self, host: str) -> float:
        """Capacity of the host's link in bit/s, unscaled."""
        return self.links.get(host, self.link)
