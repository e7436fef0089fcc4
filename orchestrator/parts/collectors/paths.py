"""Paths of flows through a local fabric: over which uplink each leaf sent each flow, how much, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from orchestrator.core.fields import Duration, Model
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import RIGHTS
from orchestrator.parts import samplers
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.shared import fabric_routes
from orchestrator.parts.topology import Topology

NAME = "paths"

FILE = "fabric.json"
TEXTS = ("src", "dst", "spine", "to_leaf", "chosen")
WHOLE = ("src_port", "dst_port", "protocol", "packets", "bytes")


class Config(Model):
    """Paths of flows between leaves, as each leaf counts what it sends to its uplinks."""

    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 0.5
    """Time between samples; each takes a leaf some ten milliseconds of processor time."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = samplers.interval_problems("every", config.every)
    if topology.fabric is None:
        message = "the testbed has one switch, and so one path between two hosts"
        found.append(Problem(at=(), message=message, accepted="with `local: {fabric: ...}`"))
    elif not all(uplink.leaf_port for uplink in topology.fabric.uplinks):
        message = "no agent runs on the leaves, which alone know where they send a flow"
        found.append(Problem(at=(), message=message, accepted="a local fabric, or snmp for the counts of ports"))
    return found


def requirements(config: Config, topology: Topology) -> list[Requirement]:  # noqa: ARG001 - the protocol's
    found = []
    for leaf in fabric_routes.fabric_of(topology).leaves:
        found += [
            Requirement(node=leaf, kind="program", what=name, remedy=packages.remedy(name), needed_by=NAME)
            for name in ("nft", "ip")
        ]
        found.append(Requirement(node=leaf, kind="privilege", what="CAP_NET_ADMIN", remedy=RIGHTS, needed_by=NAME))
    return found


def launches(config: Config, topology: Topology) -> list[Launch]:
    found = []
    for leaf in fabric_routes.fabric_of(topology).leaves:
        launch = samplers.sampler_launch(
            NAME, topology.node(leaf), (f"{config.every:.9g}", FILE), required=config.required
        )
        files = {**launch.files, FILE: json.dumps(_seen(topology, leaf)).encode()}
        found.append(replace(launch, files=files, privileged=True))
    return found


def _seen(topology: Topology, leaf: str) -> Mapping[str, Mapping[str, object]]:
    """Return the fabric as a leaf sees it: spines by its ports, and of each host's address the leaf and its port."""
    hosts = {
        topology.node(link.host).address: [link.switch, link.switch_port if link.switch == leaf else ""]
        for link in topology.links
    }
    uplinks = fabric_routes.fabric_of(topology).uplinks_of(leaf)
    return {"uplinks": {uplink.leaf_port: uplink.spine for uplink in uplinks}, "hosts": hosts}


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `paths`: one a flow, spine and sample in which the leaf sent something of it."""
    import pyarrow as pa

    found = [table for _, table in samplers.csv_tables(output) if len(table)]
    if not found:
        return {}
    table = pa.concat_tables(found, promote_options="default")
    end_ns = table.column("time_ns").to_numpy() + output.offset_ns
    since_ns = samplers.numbers(table, "since_us") * 1e3
    return {
        "paths": {
            "begin_ns": samplers.wholes(end_ns - since_ns),
            "end_ns": end_ns,
            **{name: samplers.texts(table, name) for name in TEXTS},
            **{name: samplers.wholes(samplers.numbers(table, name)) for name in WHOLE},
        }
    }
