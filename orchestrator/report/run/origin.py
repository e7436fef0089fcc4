"""Where a report's numbers are from: the run's provenance, and what was in force on each node."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from orchestrator.report.quantities import rate
from orchestrator.report.runs import Run

_OFFLOADS = ("tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload")


def provenance(run: Run) -> list[tuple[str, str]]:
    """What ran, when, from which commit, on which links."""
    manifest = run.manifest
    topology = manifest.get("topology") or {}
    began, ended = manifest.get("began_ns"), manifest.get("ended_ns")
    git = manifest.get("git") or {}
    phases = manifest.get("phases") or {}
    links = sorted({float(link["rate"]) for link in topology.get("links") or [] if link.get("rate")})
    rows = [
        ("run", run.id),
        ("began", _time(began) if began else ""),
        ("took", f"{(ended - began) / 1e9:.1f} s" if began and ended else ""),
        ("of which", ", ".join(f"{name} {seconds:.1f} s" for name, seconds in phases.items() if seconds >= 0.05)),
        ("command line", shlex.join(str(word) for word in manifest.get("argv") or [])),
        ("seed, repetition", f"{manifest.get('seed', '?')}, {manifest.get('repetition', '?')}"),
        ("git", ", ".join(f"{key} {value}" for key, value in git.items() if value not in (None, ""))),
        ("versions", ", ".join(f"{key} {value}" for key, value in (manifest.get("versions") or {}).items())),
        ("testbed", f"{topology.get('kind', '?')}, {len(run.hosts)} hosts, MTU {topology.get('mtu', '?')}"),
        ("links", ", ".join(rate(link) for link in links) + (f", divided by {run.scale}" if run.scale != 1 else "")),
    ]
    for job in manifest.get("jobs") or []:
        ranks = ", ".join(f"{rank['rank']} on {rank['node']}" for rank in job.get("ranks") or [])
        what = [str(job[key]) for key in ("workload", "model") if job.get(key)]
        if job.get("compute"):
            what.append(f"compute: {plain(job['compute'])}")
        rows.append((f"job {job['name']}", f"{', '.join(what)}; ranks {ranks}"))
        theory = job.get("theory") or {}
        if theory.get("source"):
            rows.append((f"theory for {job['name']}", str(theory["source"])))
    return [(key, value) for key, value in rows if value]


def plain(value: Any) -> str:
    """A value of a manifest in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(part)}" for key, part in value.items())
    return str(value)


def nodes(run: Run) -> list[dict[str, str]]:
    """What was in force on each node."""
    clocks = run.manifest.get("clocks") or {}
    found = []
    for node in (run.manifest.get("topology") or {}).get("nodes") or []:
        facts = run.facts(node["name"])
        clock = clocks.get(node["name"]) or {}
        found.append(
            {
                "name": node["name"]
                if node.get("kind", "host") in ("host", node["name"])
                else f"{node['name']} ({node['kind']})",
                "address": " ".join(str(node.get(key) or "") for key in ("address", "device")).strip(),
                "kernel": _kernel(facts.get("/proc/version")),
                "congestion": _congestion(facts, node.get("address")),
                "offloads": _offloads(facts.get("offloads")),
                "clock": ", ".join(
                    f"{when} {entry['offset_ns'] / 1e3:+.0f} ± {entry['uncertainty_ns'] / 1e3:.0f} µs"
                    + _synchronised(entry)
                    for when in ("before", "after")
                    if (entry := clock.get(when))
                ),
            }
        )
    return found


def _congestion(facts: Mapping[str, Any], address: str | None) -> str:
    """The congestion control of connections to other hosts: that of the route of the address, else the node's own."""
    routes = facts.get("routes")
    for route in routes if isinstance(routes, list) else []:
        if isinstance(route, dict) and route.get("prefsrc") == address and "gateway" not in route:
            for metrics in route.get("metrics") or []:
                if isinstance(metrics, dict) and metrics.get("congestion"):
                    return str(metrics["congestion"])
    return str(facts.get("/proc/sys/net/ipv4/tcp_congestion_control") or "")


def _synchronised(clock: Mapping[str, Any]) -> str:
    """What the node's own synchronisation said of its clock."""
    sources = (("chrony", "chrony_ns"), ("PTP", "ptp_ns"))
    bounds = [f"{name} ± {clock[key] / 1e3:.3g} µs" for name, key in sources if clock.get(key) is not None]
    return f" ({', '.join(bounds)})" if bounds else ""


def _kernel(version: Any) -> str:
    match = re.match(r"Linux version (\S+)", str(version or ""))
    return match.group(1) if match else ""


def _offloads(text: Any) -> str:
    states = dict(re.findall(r"^([a-z0-9-]+): (on|off)", str(text or ""), flags=re.MULTILINE))
    return ", ".join(f"{''.join(word[0] for word in name.split('-'))} {states[name]}" for name in _OFFLOADS
                     if name in states)  # fmt: skip


def _time(ns: float) -> str:
    return f"{datetime.fromtimestamp(ns / 1e9, tz=timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
