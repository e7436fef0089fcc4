"""A link between a leaf and a spine that goes down within a window, and comes up again."""

from __future__ import annotations

import json

from pydantic import Field, model_validator

from orchestrator.core.fields import Duration, Model
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import RIGHTS
from orchestrator.core.opendata import JsonObject
from orchestrator.core.units import Mistake, duration_text
from orchestrator.parts.launch import Change, During, PresenceCheck, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import fabric_links, fabric_routes, named_hosts
from orchestrator.parts.topology import Topology, Uplink

NAME = "link"


class Config(Model):
    """An uplink that is down for a part of a window: what waited in its queues is lost.

    Its leaf and all others route around it from then on, as a routing protocol has them do once it has noticed, and
    flows that used it go over other uplinks.
    """

    name: str
    """Name of the link between a leaf and a spine, such as leaf1-spine2."""
    down: Duration = Field(ge=0)
    """When it goes down, from the beginning of the window."""
    up: Duration = Field(gt=0)
    """When it comes up again, from the beginning of the window."""
    window: str = ""
    """The window in which it does; each one when left out."""

    @model_validator(mode="after")
    def _in_order(self) -> Config:
        if self.up <= self.down:
            raise Mistake(f"{duration_text(self.up)} is not after down", accepted="a later time", at=("up",))
        return self


def problems(config: Config, topology: Topology) -> list[Problem]:
    fabric = topology.fabric
    if fabric is not None and config.name not in {uplink.name for uplink in fabric.uplinks}:
        accepted = named_hosts.one_of(uplink.name for uplink in fabric.uplinks)
        message = f"there is no link {config.name!r} between a leaf and a spine"
        return [Problem(at=("name",), message=message, accepted=accepted)]
    found = [
        Problem(at=("name",), message=one.message, accepted=one.accepted)
        for one in fabric_links.problems(config.name, topology)
    ]
    if not found and fabric is not None and len(fabric.spines) == 1:
        message = "without its only spine a leaf reaches no other"
        found.append(Problem(at=("name",), message=message, accepted="a fabric of two spines or more"))
    return found


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - every leaf routes anew
    by, remedy = f"condition {NAME}", packages.remedy("ip")
    found = []
    for leaf in fabric_routes.fabric_of(topology).leaves:
        found.append(Requirement(node=leaf, kind="program", what="ip", remedy=remedy, needed_by=by))
        found.append(Requirement(node=leaf, kind="privilege", what="CAP_NET_ADMIN", remedy=RIGHTS, needed_by=by))
    return found


def changes(config: Config, topology: Topology) -> list[Change]:
    fabric = fabric_routes.fabric_of(topology)
    uplink = next(uplink for uplink in fabric.uplinks if uplink.name == config.name)
    event = f"link {uplink.name} down"
    during = During(event=event, begin_s=config.down, end_s=config.up, window=config.window)
    others = [leaf for leaf in fabric.leaves if leaf != uplink.leaf]
    return [_down(uplink, topology, during), *(_around(leaf, uplink, topology, during) for leaf in others)]


def _down(uplink: Uplink, topology: Topology, during: During) -> Change:
    """Return the change of the leaf's own port, with which its routes over it go; they are made again after it."""
    fabric, port = fabric_routes.fabric_of(topology), uplink.leaf_port
    again = fabric_routes.nexthop(topology, uplink)
    again += [fabric_routes.group_line(fabric, leaf) for leaf in fabric.leaves if leaf != uplink.leaf]
    read = ("ip", "-j", "link", "show", "dev", port)
    return Change(
        node=uplink.leaf,
        name=f"link {uplink.leaf}:{port}",
        kind=NAME,
        read=read,
        parse=parse_link,
        apply=lambda _: [("ip", "link", "set", "dev", port, "down")],
        undo=lambda _: [("ip", "link", "set", "dev", port, "up"), *(("ip", *line.split()) for line in again)],
        expect=lambda _: "down",
        presence=lambda _: PresenceCheck(read=read, pattern='"operstate": *"DOWN"'),
        during=during,
    )


def parse_link(output: str) -> str:
    """Return whether a device is "up" or "down", from `ip -j link show dev X`; ValueError where it is not told."""
    found = _only(output)
    if "flags" not in found:
        raise ValueError("ip does not tell whether the device is up")
    return "up" if "UP" in str(found["flags"]) else "down"


def _around(leaf: str, uplink: Uplink, topology: Topology, during: During) -> Change:
    """Return the change by which another leaf sends to the link's leaf over the other spines."""
    fabric = fabric_routes.fabric_of(topology)
    number = str(fabric_routes.group(fabric, uplink.leaf))
    spine = str(fabric.spines.index(uplink.spine) + 1)
    read = ("ip", "-j", "nexthop", "show", "id", number)

    def without(old: str) -> str:
        kept = [one for one in old.split("/") if one != spine]
        if not kept or kept == old.split("/"):
            raise ValueError(f"its nexthops are {old}: there is no other way, or this one is not used")
        return "/".join(kept)

    def put(members: str) -> list[tuple[str, ...]]:
        return [("ip", "nexthop", "replace", "id", number, "group", members)]

    return Change(
        node=leaf,
        name=f"routes of {leaf} to {uplink.leaf}",
        kind=NAME,
        read=read,
        parse=parse_group,
        apply=lambda old: put(without(old)),
        undo=put,
        expect=without,
        presence=lambda old: PresenceCheck(read=read, pattern=_members_pattern(without(old))),
        during=during,
    )


def _members_pattern(members: str) -> str:
    return '"group": *\\[' + ",".join(rf'\{{"id": *{one}\}}' for one in members.split("/")) + "\\]"


def parse_group(output: str) -> str:
    """Return the members of a group of nexthops ("1/2"), from `ip -j nexthop show id N`; ValueError for others."""
    try:
        return "/".join(str(int(member["id"])) for member in _only(output)["group"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"ip does not tell the nexthops of a group: {error!r}") from None


def _only(output: str) -> JsonObject:
    """Return the one object that ip prints."""
    found = json.loads(output or "[]")
    if not isinstance(found, list) or len(found) != 1 or not isinstance(found[0], dict):
        raise ValueError(f"ip tells of no single object: {output.strip()[:80]}")
    return dict(found[0])
