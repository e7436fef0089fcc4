"""The rate of a link: a token bucket on the host's device, on the switch port towards it, or at both ends of a link."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, model_validator

from orchestrator.core.fields import Duration, Model, Rate
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import RIGHTS
from orchestrator.core.opendata import JsonObject
from orchestrator.core.units import Mistake, rate_text
from orchestrator.parts.launch import Change, PresenceCheck, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import fabric_links, named_hosts, rails
from orchestrator.parts.topology import WIRE_HEADER_BYTES, Topology

NAME = "rate"

DEFAULT = "default"  # the state of a device whose root qdisc the kernel chose
DEFAULT_QUEUE_S = 0.005
LEAST_BURST_BYTES = 32 * 1024
OFFLOADED_BURST_BYTES = 128 * 1024
BURST_S = 0.5e-3
LEAST_QUEUE_PACKETS = 16
TICK_NS = 64  # unit in which the kernel reports a bucket's depth (PSCHED_SHIFT, include/net/pkt_sched.h)


class Config(Model):
    """A token bucket filter (tbf) at one end of one host's link, or at both of a fabric's, until the run ends."""

    where: Literal["nic", "switch-port"] = "nic"
    """Which end: the host's own device (what it sends), or the switch port towards it (what it receives)."""
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
        fabric_links.one_of(self.host, self.link)
        if self.link is not None and {"where", "rail"} & self.model_fields_set:
            raise Mistake("stands beside link", accepted="with host", at=("where" if self.rail is None else "rail",))
        return self


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket's parameters: bytes a second, depth in ticks of 64 ns at that rate, queue in bytes."""

    rate: int
    depth_ticks: int
    limit_bytes: int

    @property
    def depth_bytes(self) -> int:
        """A depth in bytes that the kernel turns into just these ticks, away from its rounding where it can be."""
        middle = round((self.depth_ticks + 0.5) * TICK_NS * self.rate / 1e9)
        if _ticks(self.rate, middle) == self.depth_ticks:
            return middle
        return -(-self.depth_ticks * TICK_NS * self.rate // 10**9)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What follows `tc qdisc replace dev X root`."""
        return (
            *("tbf", "rate", f"{self.rate * 8}bit"),
            *("burst", f"{self.depth_bytes}b", "limit", f"{self.limit_bytes}b"),
        )

    @property
    def state(self) -> str:
        """Canonical text: what `parse` returns for a device with this bucket at its root."""
        return f"tbf rate {self.rate} depth {self.depth_ticks} limit {self.limit_bytes}"


def bucket(rate_bps: float, *, queue_s: float, mtu: int, offloads: bool = False) -> Bucket:
    """Return a bucket for `rate_bps` (layer 2, scaled) whose queue holds `queue_s` seconds.

    Depth: 0.5 ms worth of the rate, so that a late timer costs nothing, and at least 32 KiB: at 1 Gbit/s of TCP over
    veth a bucket of 0.13 ms lost 1.2 % and one of 0.04 ms 13 %, while one of 0.26 ms and more lost nothing. With
    segmentation offloads at least 128 KiB, so that super-packets of 64 KiB need not be split. But never deeper than
    half the queue: at 50 Mbit/s with 32 KB of either, BBR took bursts for the link's rate, lost 4000 packets in 3 s
    and carried 41 Mbit/s; with a depth of 8 KB it carried 47.8. Queue: at least 16 full packets (or four
    super-packets), since packets do not shrink with the scale.
    """
    rate = max(1, int(rate_bps / 8))
    least = OFFLOADED_BURST_BYTES if offloads else LEAST_BURST_BYTES
    packet = 65536 if offloads else mtu + WIRE_HEADER_BYTES
    limit = max(int(rate * queue_s), (4 if offloads else LEAST_QUEUE_PACKETS) * packet)
    depth = min(max(least, math.ceil(rate * BURST_S)), limit // 2)
    return Bucket(rate, _ticks(rate, depth), limit)


def _presence(device: str, wanted: Bucket) -> PresenceCheck:
    """Return a bucket of this rate at the root; one of another rate is somebody else's."""
    read = ("tc", "-j", "-r", "qdisc", "show", "dev", device)
    return PresenceCheck(
        read=read, pattern=rf'"kind": *"tbf"[^{{}}]*"root": *true[^{{}}]*\{{[^{{}}]*"rate": *{wanted.rate}\b'
    )


def _ticks(rate: int, size: int) -> int:
    return size * 10**9 // (rate * TICK_NS)


def parse(output: str) -> str:
    """Return the state of a device's root from `tc -j -r qdisc show dev X`: "default", or a bucket's.

    ValueError for any other qdisc: it could not be put back as it was.
    """
    found: list[JsonObject] = json.loads(output or "[]")
    roots = [qdisc for qdisc in found if qdisc.get("root")]
    if not roots or roots[0]["handle"] == "0:":
        return DEFAULT
    root = roots[0]
    below = [qdisc["kind"] for qdisc in found if str(qdisc.get("parent", "")).startswith(root["handle"])]
    options = root.get("options", {})
    odd = sorted(set(options) - {"rate", "burst", "burst_raw", "lat", "limit"})
    if root["kind"] != "tbf" or below or odd or "burst_raw" not in options or "limit" not in options:
        what = " with ".join([str(root["kind"]), *below, *odd])
        raise ValueError(f"its root qdisc is {what}, which could not be put back: remove it first (tc qdisc del)")
    return Bucket(int(options["rate"]), int(str(options["burst_raw"]), 16), int(options["limit"])).state


def _bucket_of(state: str) -> Bucket:
    words = state.split()
    return Bucket(int(words[2]), int(words[4]), int(words[6]))


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
        return [(*root, *_bucket_of(old).arguments)]

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
