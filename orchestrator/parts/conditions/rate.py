"""The rate of a link: a token bucket on the host's device, on the switch port towards it, or at both ends of a link."""

from __future__ import annotations

from pydantic import Field, model_validator

from orchestrator.core.fields import Duration, Model, Rate
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import RIGHTS
from orchestrator.core.units import rate_text
from orchestrator.parts.launch import Change, PresenceCheck, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import fabric_links, named_hosts, rails
from orchestrator.parts.shared.token_bucket import DEFAULT, Bucket, bucket, of_state, parse
from orchestrator.parts.topology import Topology

NAME = "rate"
DEFAULT_QUEUE_S = 0.005


class Config(Model):
    """A token bucket filter (tbf) at one end of one host's link, or at both of a fabric's, until the run ends."""

    where: rails.Where | None = None
    """Which end: the host's own device (what it sends), unless it is the switch port towards it (what it receives)."""
    host: str | None = None
    """The host whose link it is."""
    link: str | None = None
    """A link of a fabric by its name, such as leaf1-spine2, instead of a host's: each direction has the rate."""
    rail: int | None = Field(default=None, ge=0)
    """Which of the host's links, by the number of its rail, from 0; each of them when left out."""
    rate: Rate = Field(gt=0)
    """Rate on layer 2 (Ethernet header included, no FCS or preamble), unscaled."""
    queue: Duration = Field(default=DEFAULT_QUEUE_S, gt=0)
    """The longest that a packet may wait in the bucket's queue."""

    @model_validator(mode="after")
    def _somewhere(self) -> Config:
        fabric_links.one_of(self.host, self.link, where=self.where, rail=self.rail)
        return self


def _presence(device: str, wanted: Bucket) -> PresenceCheck:
    """Return a bucket of this rate at the root; one of another rate is somebody else's."""
    read = ("tc", "-j", "-r", "qdisc", "show", "dev", device)
    return PresenceCheck(
        read=read, pattern=rf'"kind": *"tbf"[^{{}}]*"root": *true[^{{}}]*\{{[^{{}}]*"rate": *{wanted.rate}\b'
    )


def problems(config: Config, topology: Topology) -> list[Problem]:
    if config.link is not None:
        found = fabric_links.problems(config.link, topology)
        return found or _too_fast(config, fabric_links.links(topology)[config.link].rate, f"the link {config.link}")
    host = config.host or ""
    if found := named_hosts.problems([(("host",), host)], topology):
        return found
    link = topology.link(host)
    found = _too_fast(config, link.rate, f"the link of {host}")
    found += rails.problems(config.rail, topology)
    if config.where == "switch-port" and not link.switch_port:
        found.append(
            Problem(
                at=("where",),
                message=f"no agent runs on the switch of {host}, so nothing can be set there",
                accepted="nic, or a local testbed",
            )
        )
    return found


def _too_fast(config: Config, rate: float, what: str) -> list[Problem]:
    if config.rate <= rate:
        return []
    message = f"{rate_text(config.rate)} is more than {what} carries"
    return [Problem(at=("rate",), message=message, accepted=f"at most {rate_text(rate)}")]


def _places(config: Config, topology: Topology) -> list[tuple[str, str]]:
    """Return node and device of each end that gets a bucket."""
    if config.link is not None:
        return list(fabric_links.links(topology)[config.link].ends)
    return rails.ends(config.host or "", config.where, topology, rail=config.rail)


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    by = f"condition {NAME}"
    places = _places(config, topology)
    found = []
    for node in dict.fromkeys(node for node, _ in places):
        found += [
            Requirement(node=node, kind="program", what="tc", remedy=packages.remedy("tc"), needed_by=by),
            Requirement(node=node, kind="privilege", what="CAP_NET_ADMIN", remedy=RIGHTS, needed_by=by),
        ]
    return [
        *found,
        *(
            Requirement(node=node, kind="device", what=device, remedy="name a device that exists", needed_by=by)
            for node, device in places
        ),
    ]


def changes(config: Config, topology: Topology) -> list[Change]:
    return [_change(config, topology, node, device) for node, device in _places(config, topology)]


def _change(config: Config, topology: Topology, node: str, device: str) -> Change:
    wanted = bucket(
        config.rate / topology.wire_scale, queue_s=config.queue, mtu=topology.mtu, offloads=topology.kind != "local"
    )
    root = ("tc", "qdisc", "replace", "dev", device, "root")

    def undo(old: str) -> list[tuple[str, ...]]:
        if old == DEFAULT:
            return [("tc", "qdisc", "del", "dev", device, "root")]
        return [(*root, *of_state(old).arguments)]

    return Change(
        node=node,
        name=f"rate of {node}:{device}",
        kind=NAME,
        read=("tc", "-j", "-r", "qdisc", "show", "dev", device),
        parse=parse,
        apply=lambda _: [(*root, *wanted.arguments)],
        undo=undo,
        expect=lambda _: wanted.state,
        presence=lambda _: _presence(device, wanted),
    )
