"""Segmentation and receive offloads of hosts: switched off, so that captures, queues and counters see frames."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from orchestrator.core.units import Model
from orchestrator.parts import hosts, offload_change
from orchestrator.parts.launch import Change, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.topology import Node, Topology

NAME = "offloads"


class Config(Model):
    """TSO, GSO, GRO, and LRO where a driver has it, of hosts' data-plane devices, until the run ends.

    Costs processor time for each frame; the wire carries the same frames with and without.
    """

    state: Literal["off"] = Field()
    """What they are to be."""
    hosts: tuple[str, ...] = ()
    """Only these hosts; default: all."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        return {"anyOf": [schema["properties"]["state"], schema], "description": schema["description"]}

    @model_validator(mode="before")
    @classmethod
    def _bare_state(cls, value: Any) -> Any:
        return {"state": value} if isinstance(value, str) else value


def problems(config: Config, topology: Topology) -> list[Problem]:
    return hosts.problems(hosts.listed("hosts", config.hosts), topology)


def _nodes(config: Config, topology: Topology) -> list[Node]:
    return [host for host in topology.hosts if not config.hosts or host.name in config.hosts]


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    by = f"condition {NAME}"
    return [need for node in _nodes(config, topology) for need in offload_change.requirements(node.name, by)]


def changes(config: Config, topology: Topology) -> list[Change]:
    return [offload_change.off(NAME, node.name, node.device) for node in _nodes(config, topology)]
