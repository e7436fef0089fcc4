"""Keep what devices' counters count, as `orch doctor` measured it, for later runs: a file in the user's cache.

A reading holds as long as all that may change it is as it was: the device (its address of layer 2), its driver and
firmware, the kernel, its offloads and its MTU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.core.opendata import JsonObject
from orchestrator.parts.topology import Node
from orchestrator.store import atomic, digests
from orchestrator.store.manifests import coding
from orchestrator.store.manifests.records import DeviceReading

MOST = 4096  # states of devices that are kept, the latest


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """A host's device as it is, with all that may change what its counters count."""

    host: str
    device: str
    address: str
    mtu: int
    kernel: str
    driver: str
    offloads: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReading:
    """The readings of a device in this state, by direction, "in" and "out", and when they were measured (ns)."""

    state: DeviceState
    counts: Mapping[str, tuple[str, ...]]
    when_ns: coding.Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    readings: tuple[KeptReading, ...] = field(default=())


def state(facts: JsonObject, node: Node, device: str) -> DeviceState | None:
    """Return the state of a node's device by the node's facts (`facts.gather`); None where they lack a part of it."""
    of_rail = "" if device == node.devices[0] else f" {device}"
    texts = [facts.get(name) for name in ("/proc/version", f"driver{of_rail}", f"offloads{of_rail}")]
    links = facts.get("addresses")
    link = next((one for one in links if isinstance(one, dict) and one.get("ifname") == device), {}) if links else {}
    address, mtu = link.get("address"), link.get("mtu")
    if not all(isinstance(text, str) and text for text in (*texts, address)) or not isinstance(mtu, int):
        return None
    kernel, driver, offloads = map(str, texts)
    return DeviceState(
        host=node.name, device=device, address=str(address), mtu=mtu, kernel=kernel, driver=driver, offloads=offloads
    )


def kept() -> Mapping[DeviceState, KeptReading]:
    """Return all readings that are kept; none where the file is missing or damaged."""
    return {one.state: one for one in _read()}


def keep(found: Iterable[KeptReading]) -> None:
    """Add readings to those that are kept; OSError where the file cannot be written."""
    if (place := _place()) is None:
        return
    new = {one.state: one for one in found}
    known = [one for one in _read() if one.state not in new]
    place.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(place, coding.sealed(_Kept(readings=(*known, *new.values())[-MOST:]), indent=1))


def of_nodes(facts: Mapping[str, JsonObject], nodes: Iterable[Node]) -> tuple[DeviceReading, ...]:
    """Return the kept readings that hold of these nodes' devices, by the facts of each node."""
    known = kept()
    return tuple(_of_devices(known, facts, nodes)) if known else ()


def _of_devices(
    known: Mapping[DeviceState, KeptReading], facts: Mapping[str, JsonObject], nodes: Iterable[Node]
) -> Iterator[DeviceReading]:
    for node in nodes:
        for device in node.devices:
            now = state(facts.get(node.name, {}), node, device)
            if now is None or (one := known.get(now)) is None:
                continue
            for way, counts in one.counts.items():
                yield DeviceReading(node=node.name, port=device, direction=way, counts=counts, when_ns=one.when_ns)


def _place() -> Path | None:
    cache = digests.cache()
    return cache / "device-readings.json" if cache else None


def _read() -> tuple[KeptReading, ...]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if place := _place():
            return coding.decoded(place.read_bytes(), _Kept).readings
    return ()
