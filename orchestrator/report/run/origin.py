"""Where a report's numbers are from: the run's provenance, and what was in force on each node."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from orchestrator.core.opendata import JsonObject
from orchestrator.parts.topology import Node
from orchestrator.report.runs import Run
from orchestrator.report.tables import rate
from orchestrator.store.manifests import stayed
from orchestrator.store.manifests.host_records import Clock, Offset
from orchestrator.store.manifests.records import Git

_OFFLOADS = ("tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload")


def provenance(run: Run) -> list[tuple[str, str]]:
    """What ran, when, from which commit, on which links."""
    manifest = run.manifest
    topology, began, ended = manifest.topology, manifest.began_ns, manifest.ended_ns
    links = sorted({link.rate for link in topology.links if link.rate})
    rows = [
        ("run", run.id),
        ("began", _time(began) if began else ""),
        ("took", f"{(ended - began) / 1e9:.1f} s" if began and ended else ""),
        ("of which", ", ".join(f"{name} {took:.1f} s" for name, took in manifest.phases.items() if took >= 0.05)),
        ("command line", shlex.join(manifest.argv)),
        ("seed, repetition", f"{_or_unknown(manifest.seed)}, {_or_unknown(manifest.repetition)}"),
        ("git", _git(manifest.git)),
        ("versions", ", ".join(f"{key} {value}" for key, value in manifest.versions.items())),
        ("testbed", f"{topology.kind}, {len(run.hosts)} hosts, MTU {topology.mtu}"),
        ("links", ", ".join(rate(link) for link in links) + (f", divided by {run.scale}" if run.scale != 1 else "")),
    ]
    rows.append(("captures that stay", "; ".join(stayed.where(manifest))))
    for job in manifest.jobs:
        ranks = ", ".join(f"{rank.rank} on {rank.node}" for rank in job.ranks)
        what = [text for text in (job.workload, job.model) if text]
        if job.compute:
            what.append(f"compute: {job.compute}")
        rows.append((f"job {job.name}", f"{', '.join(what)}; ranks {ranks}"))
        if job.theory is not None:
            rows.append((f"theory for {job.name}", job.theory.source))
    return [(key, value) for key, value in rows if value]


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)


def _git(git: Git | None) -> str:
    known = {} if git is None else asdict(git)
    return ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)


def nodes(run: Run) -> list[dict[str, str]]:
    """What was in force on each node."""
    found = []
    for node in run.manifest.topology.nodes:
        facts = run.facts(node.name)
        clock = run.manifest.clocks.get(node.name, Clock())
        found.append(
            {
                "name": node.name if node.kind in ("host", node.name) else f"{node.name} ({node.kind})",
                "address": ", ".join(f"{rail.address} {rail.device}".strip() for rail in node.rails),
                "kernel": _kernel(facts.get("/proc/version")),
                "congestion": _congestion(facts, node),
                "offloads": _offloads(facts.get("offloads")),
                "clock": ", ".join(
                    f"{when} {offset.offset_ns / 1e3:+.0f} ± {offset.uncertainty_ns / 1e3:.0f} µs"
                    + _synchronised(offset)
                    for when, offset in (("before", clock.before), ("after", clock.after))
                    if offset is not None
                ),
            }
        )
    return found


def _congestion(facts: JsonObject, node: Node) -> str:
    """The congestion control of connections to other hosts: that of the data plane's route, else the node's own."""
    networks = {str(rail.network) for rail in node.rails[:1] if rail.address}
    found = [facts.get("routes"), facts.get("routes6")]  # the second have no source, but their network
    for route in (route for routes in found if isinstance(routes, list) for route in routes):
        if not isinstance(route, dict) or "gateway" in route:
            continue
        if route.get("prefsrc", "") in node.addresses or route.get("dst") in networks:
            for metrics in route.get("metrics") or []:
                if isinstance(metrics, dict) and metrics.get("congestion"):
                    return str(metrics["congestion"])
    return str(facts.get("/proc/sys/net/ipv4/tcp_congestion_control") or "")


def _synchronised(clock: Offset) -> str:
    """What the node's own synchronisation said of its clock."""
    known = (("chrony", clock.chrony_ns), ("PTP", clock.ptp_ns))
    offsets = [f"{name} ± {off_ns / 1e3:.3g} µs" for name, off_ns in known if off_ns is not None]
    return f" ({', '.join(offsets)})" if offsets else ""


def _kernel(version: Any) -> str:
    match = re.match(r"Linux version (\S+)", str(version or ""))
    return match.group(1) if match else ""


def _offloads(text: Any) -> str:
    states = dict(re.findall(r"^([a-z0-9-]+): (on|off)", str(text or ""), flags=re.MULTILINE))
    return ", ".join(
        f"{''.join(word[0] for word in name.split('-'))} {states[name]}" for name in _OFFLOADS if name in states
    )


def _time(ns: float) -> str:
    return f"{datetime.fromtimestamp(ns / 1e9, tz=timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
