"""Counters of switches' ports over time, asked over SNMP by a host of the testbed (IF-MIB, RFC 2863).

Ports are named after their switch ("leaf1:Ethernet4"), counters as in IF-MIB after "snmp.": ifHCInOctets,
ifHCOutOctets, ifInDiscards, ifOutDiscards, ifInErrors, ifOutErrors, seen from the switch, and sysUpTime of the switch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, model_validator

from orchestrator.core.fields import Duration, Model
from orchestrator.core.units import Mistake
from orchestrator.parts import samplers
from orchestrator.parts.launch import Footprint, Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.shared import named_hosts
from orchestrator.parts.shared.secret_source import SecretSource
from orchestrator.parts.topology import Node, Topology

NAME = "snmp"

_FILE = "switch.json"
_READY_S = 30.0  # three tries of each request until it is given up
_REMEDY = "pip install 'orch-testbed[snmp]' (gufo-snmp) into that Python, or name one that has it as `python`"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

_AUTH = MappingProxyType(
    {
        "md5": "Md5Key",
        "sha1": "Sha1Key",
        "sha224": "Sha224Key",
        "sha256": "Sha256Key",
        "sha384": "Sha384Key",
        "sha512": "Sha512Key",
    }
)
_PRIVACY = MappingProxyType({"des": "DesKey", "aes128": "Aes128Key", "aes192": "Aes192Key", "aes256": "Aes256Key"})


class User(Model):
    """A user of SNMPv3."""

    name: Annotated[str, Field(min_length=1, max_length=32)]
    """The user's name on the switch."""
    auth: Literal["md5", "sha1", "sha224", "sha256", "sha384", "sha512"] = "sha256"
    """What proves who asks."""
    auth_from: SecretSource
    """Where its password is: a variable of this command's environment, or a file, whose path has a '/' in it."""
    privacy: Literal["des", "aes128", "aes192", "aes256"] = "aes128"
    """What encrypts."""
    privacy_from: SecretSource | None = None
    """Where the password for that is. Default: nothing is encrypted."""


class Switch(Model):
    """A switch: how it is reached, and who may ask it."""

    address: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]{1,253}$")]
    """Its address or name on the management network."""
    port: int = Field(default=161, ge=1, le=65535)
    """UDP port of its agent."""
    community_from: SecretSource | None = None
    """For SNMPv2c, where the community is: a variable of this command's environment, or a file, whose path has a '/' in
    it. It is read when a run begins and never recorded."""
    user: User | None = None
    """For SNMPv3."""
    ports: tuple[Annotated[str, Field(min_length=1, max_length=255)], ...] | None = Field(default=None, min_length=1)
    """Ports by name (ifName or ifDescr), such as Ethernet4. Default: all."""

    @model_validator(mode="after")
    def _one_way(self) -> Switch:
        if (self.community_from is None) == (self.user is None):
            raise Mistake("says not in one way who asks", accepted="community_from (SNMPv2c) or user (SNMPv3)")
        return self


class Config(Model):
    """Counters of switches' ports, over SNMP."""

    switches: dict[Name, Switch] = Field(min_length=1)
    """The switches by name."""
    host: str | None = None
    """Host of the testbed that asks them. Default: the first."""
    python: str | None = Field(default=None, min_length=1)
    """Interpreter on that host that has gufo-snmp, 3.10 or later. Default: the host's own."""
    required: bool = False
    """Whether the run fails when this collector does."""
    every: Duration = 1.0
    """Time between samples. Many switches refresh their counters once in seconds."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = named_hosts.problems([] if config.host is None else [(("host",), config.host)], topology)
    return [*found, *samplers.interval_problems("every", config.every)]


def requirements(config: Config, topology: Topology) -> list[Requirement]:
    node = _asking(config, topology)
    return [
        Requirement(
            node=node.name,
            kind="module",
            what="gufo.snmp",
            python=node.python,
            remedy=_REMEDY,
            needed_by=f"collector {NAME}",
        )
    ]


def launches(config: Config, topology: Topology) -> list[Launch]:
    """Return a process a switch, so that one that does not answer holds up no other one."""
    node = _asking(config, topology)
    return [_launch(config, name, switch, node) for name, switch in config.switches.items()]


def _asking(config: Config, topology: Topology) -> Node:
    node = topology.node(config.host) if config.host is not None else topology.hosts[0]
    return node if config.python is None else replace(node, python=config.python)


def _launch(config: Config, name: str, switch: Switch, node: Node) -> Launch:
    started = samplers.sampler_launch(
        NAME, node, (f"{config.every:.9g}", _FILE), required=config.required, packages=True
    )
    user = switch.user
    asked = {
        "switch": name,
        "address": switch.address,
        "port": switch.port,
        "user": user.name if user else "",
        "auth": _AUTH[user.auth] if user else "",
        "privacy": _PRIVACY[user.privacy] if user and user.privacy_from else "",
        "ports": None if switch.ports is None else list(switch.ports),
    }
    return replace(
        started,
        name=f"{NAME}.{name}",
        files={**started.files, _FILE: json.dumps(asked).encode()},
        env_from=_secrets(switch),
        ready_within_s=_READY_S,
        footprint=Footprint(memory=25e6, start_s=0.1),
    )


def _secrets(switch: Switch) -> dict[str, str]:
    user = switch.user
    sources = {
        "SNMP_COMMUNITY": switch.community_from,
        "SNMP_AUTH": user.auth_from if user else None,
        "SNMP_PRIVACY": user.privacy_from if user else None,
    }
    return {name: source for name, source in sources.items() if source is not None}


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `counters`; values are the counters' own, cumulative."""
    return samplers.counter_rows(samplers.counters(output))
