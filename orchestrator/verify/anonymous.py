"""What a verification says without any name, address, user or path: one JSON file that can be given away.

Nothing that a host, a file or a person named is copied: the file is made of numbers, of versions that are digits, and
of words of this project. Names of drivers, of their counters and of what hosts lack are others' words: each is left out
unless it looks like one, and where a name of the testbed's stands in it.
"""

from __future__ import annotations

import json
import math
import platform
import re
from collections.abc import Collection
from importlib import metadata
from pathlib import Path
from typing import Any

from orchestrator.core.errors import StoreError
from orchestrator.core.opendata import JsonObject
from orchestrator.parts.topology import Topology
from orchestrator.store import atomic
from orchestrator.verify.claims import Claim, DeviceSeen, Figure, HostSeen, Judged
from orchestrator.verify.verifying import Verified

FORMAT = 1
MOST_COUNTERS = 2000  # of a device
LEAST_INSIDE = 4  # letters of a name that is looked for within words
_COUNTER = re.compile(r"(?:(?:ethtool|rdma)\.)?[a-z][a-z0-9_]{0,60}")
_LACK = re.compile(r"[A-Za-z][A-Za-z0-9_.>= -]{0,40}")
_DRIVER = re.compile(r"[a-z][a-z0-9_]{1,20}")


def data(found: Verified) -> JsonObject:
    """Return the verification as data without names."""
    private = _private(found.topology)
    return {
        "format": FORMAT,
        "orch": metadata.version("orch-testbed"),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "quick": found.quick,
        "seconds": round(found.seconds),
        "testbed": _testbed(found.topology),
        "hosts": [_host(one) for one in found.evidence.hosts],
        "devices": [_device(one, private) for one in found.evidence.devices],
        "claims": [_claim(claim, judged, private) for claim, judged in found.judged],
    }


def write(found: Verified, path: Path) -> None:
    """Write the file; StoreError where it cannot be written."""
    try:
        atomic.write(path, (json.dumps(data(found), indent=1) + "\n").encode())
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from None


def _private(topology: Topology) -> frozenset[str]:
    """Return the words by which the testbed calls its hosts, switches and devices."""
    words = {node.name for node in topology.nodes} | {device for node in topology.nodes for device in node.devices}
    words |= {word for node in topology.nodes for device in node.rdma for word in (device, device.partition(":")[0])}
    return frozenset(word.lower() for word in words)


def _testbed(topology: Topology) -> JsonObject:
    fabric = topology.fabric
    return {
        "kind": topology.kind,
        "containers": topology.runtime if topology.runtime in ("podman", "docker") else "",
        "hosts": len(topology.hosts),
        "rails": topology.rails,
        "gpus": [host.gpus for host in topology.hosts],
        "rdma": sum(bool(host.rdma) for host in topology.hosts),
        "links_bps": sorted({link.rate for link in topology.links}),
        "scale": topology.scale,
        "mtu": topology.mtu,
        "leaves": len(fabric.leaves) if fabric else 0,
        "spines": len(fabric.spines) if fabric else 0,
    }


def _host(one: HostSeen) -> JsonObject:
    return {
        "reached": not one.trouble,
        "reached_s": _number(one.reached_s),
        "offset_s": _number(one.offset_s),
        "uncertainty_s": _number(one.uncertainty_s),
        "kernel": one.kernel,
        "python": one.python,
    }


def _device(one: DeviceSeen, private: Collection[str]) -> JsonObject:
    driver = one.driver.lower()
    counters = sorted(name for name in one.counters if _COUNTER.fullmatch(name) and not _names(name, private))
    return {
        "driver": driver if _DRIVER.fullmatch(driver) and not _names(driver, private) else "",
        "counters": counters[:MOST_COUNTERS],
        "counters_left_out": len(one.counters) - len(counters[:MOST_COUNTERS]),
    }


def _names(word: str, private: Collection[str]) -> bool:
    """Whether a name of the testbed's stands in a word; a short one as a part between its marks."""
    parts = re.split(r"[^a-z0-9]", word.lower())
    return any(name in parts or (len(name) >= LEAST_INSIDE and name in word.lower()) for name in private)


def _claim(claim: Claim, judged: Judged, private: Collection[str]) -> JsonObject:
    """Return a claim and its judgement by what our own code says of it: no message, which has names in it."""
    return {
        "name": claim.name,
        "verdict": judged.verdict,
        "code": judged.code,
        "lack": sorted(one for one in judged.lack if _LACK.fullmatch(one) and not _names(one, private)),
        "figures": list(map(_figure, judged.figures)),
    }


def _figure(figure: Figure) -> JsonObject:
    limit = None if figure.limit is None else _number(figure.limit)
    return {"what": figure.what, "value": _number(figure.value), "unit": figure.unit, "limit": limit}


def _number(value: float) -> Any:
    """Return a figure to six digits; None where it is not known."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
