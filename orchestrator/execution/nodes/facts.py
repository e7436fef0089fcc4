"""Gather what is in force on a node while it is measured: commands and files to read, and what they said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from orchestrator.agents.agent.commands import Completed
from orchestrator.core.deadline import Deadline
from orchestrator.core.opendata import JsonObject
from orchestrator.parts.topology import Node
from orchestrator.remote import clocks
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.clocks import ClockSample
from orchestrator.store.manifests.records import Clock, Offset

COMMAND_S = 10.0

FILES = (
    "/proc/version",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_available_congestion_control",
    "/proc/sys/net/ipv4/tcp_slow_start_after_idle",
    "/proc/sys/net/ipv4/tcp_no_metrics_save",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_wmem",
    "/proc/sys/net/ipv4/tcp_ecn",
    "/proc/sys/net/ipv4/tcp_sack",
    "/proc/sys/net/ipv4/tcp_timestamps",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/wmem_max",
    "/proc/sys/net/core/default_qdisc",
    "/proc/meminfo",
    "/etc/os-release",
)


def commands(node: Node) -> Mapping[str, tuple[str, ...]]:
    """Commands whose output is a fact, by the fact's name; one that a node lacks is a fact too."""
    common: dict[str, tuple[str, ...]] = {
        "addresses": ("ip", "-j", "address", "show"),
        "routes": ("ip", "-j", "route", "show", "table", "main"),
        "routes6": ("ip", "-6", "-j", "route", "show", "table", "main"),
        "rules": ("ip", "-j", "rule", "show"),
        "qdiscs": ("tc", "-j", "qdisc", "show"),
    }
    if node.kind == "host":
        common |= {
            "tcpdump": ("tcpdump", "--version"),
            "iperf3": ("iperf3", "--version"),
            "clock": ("chronyc", "-c", "tracking"),
            "ptp": ("pmc", "-u", "-b", "0", "GET CURRENT_DATA_SET"),
        }
        for device in node.devices:  # of rails after the first one under names of their own
            of_rail = "" if device == node.devices[0] else f" {device}"
            common |= {f"driver{of_rail}": ("ethtool", "-i", device), f"offloads{of_rail}": ("ethtool", "-k", device)}
    if node.gpus:
        common["gpus"] = ("nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,temperature.gpu", "--format=csv")
    return common


def gather(client: AgentClient, node: Node, deadline: Deadline) -> JsonObject:
    """Every fact of a node: text as it was printed, JSON parsed, and null for what it does not have.

    Null as well for the output of a program that it lacks, or that hangs.
    """
    texts = client.read(FILES, deadline).texts
    facts: JsonObject = {path: text.strip() if text is not None else None for path, text in texts.items()}
    wanted = commands(node)
    done = client.run_all(list(wanted.values()), deadline, each_s=COMMAND_S)
    return {**facts, **{name: _parsed(one) for name, one in zip(wanted, done, strict=True)}}


def _parsed(done: Completed | None) -> Any:
    if done is None or done.status != 0:
        return None
    try:
        return json.loads(done.stdout)
    except (ValueError, RecursionError):
        return done.stdout.strip()


def least(known: Mapping[str, int], seen: Mapping[str, int]) -> dict[str, int]:
    """Return the least that is known of each node, and now seen."""
    return {**known, **{node: min(free, known.get(node, free)) for node, free in seen.items()}}


def with_clocks(
    known: Mapping[str, Clock],
    samples: Mapping[str, ClockSample],
    facts: Mapping[str, Mapping[str, object]],
    when: Literal["before", "after"],
) -> dict[str, Clock]:
    """Return what is known of each node's clock, with what was measured now, and what its own synchronisation says."""
    found = dict(known)
    for node, sample in samples.items():
        said = clocks.said(facts.get(node, {}))
        offset = Offset(
            offset_ns=sample.offset_ns,
            uncertainty_ns=sample.uncertainty_ns,
            chrony_ns=said.get("chrony_ns"),
            ptp_ns=said.get("ptp_ns"),
        )
        clock = found.get(node, Clock())
        found[node] = replace(clock, before=offset) if when == "before" else replace(clock, after=offset)
    return found
