"""Turns what came home into tables and verdicts; needs the run's folder alone, and runs as a process of its own.

The controller starts it while captures still drain, so that its imports cost nothing, and sends the folder's path when
everything is home: its memory goes when it is done, and a crash in it cannot take the run along.
"""

from __future__ import annotations

import ctypes
import json
import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis import homes
from orchestrator.analysis.capture import captures, flowbins, flowtable, sightings
from orchestrator.analysis.windows import windows
from orchestrator.analysis.windows.gates import Tolerances
from orchestrator.core.errors import CaptureError, OrchError
from orchestrator.parts import registry
from orchestrator.parts.collectors import tcpdump
from orchestrator.parts.launch import Flow
from orchestrator.parts.rows import TABLES, Home
from orchestrator.store import tables
from orchestrator.store.rundir import MANIFEST
from orchestrator.store.tables import TableWriter

GENERATORS = frozenset({"traffic.websearch", "traffic.replay"})
PROFILE_NS = 1_000_000  # what shows a burst of a millisecond


def reduce(folder: Path) -> dict[str, Any]:
    """Write the tables of a run and give what its manifest gains: windows with their verdicts, captures, notes."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    home_list = list(homes.places(folder, manifest))
    manifest["windows"] = homes.settled(manifest, home_list)
    notes: list[str] = []
    # Forked before anything else starts a thread: the compiled capture reader is shared, not loaded again.
    with ProcessPoolExecutor(
        os.cpu_count() or 1, mp_context=multiprocessing.get_context("fork"), initializer=_die_with_parent
    ) as pool:
        pending = [(home, _capture(pool, home, manifest)) for part, home in home_list if part == "collector.tcpdump"]
        profiles = [(home, _profile(pool, home, manifest)) for part, home in home_list if part == "collector.tcpdump"]
        fine = [(home, _fine(pool, home, manifest)) for part, home in home_list if part == "collector.tcpdump"]
        with TableWriter(folder / "tables", run=manifest["run"]) as writer:
            for part, home in home_list:
                _add_home(writer, part, home, manifest, notes)
            problems = [problem for home, result in pending for problem in _add_capture(writer, home, result)]
            for home, profile in profiles:
                _add_profile(writer, home, profile)
            _add_fine(writer, fine, manifest)
    outcome = windows.measure(folder / "tables", manifest, tolerances=_tolerances(manifest), problems=problems)
    with TableWriter(folder / "tables", run=manifest["run"]) as writer:
        for name, columns in outcome.tables.items():
            writer.add(name, columns)
    return {
        "windows": [_window(window, outcome) for window in manifest["windows"]],
        "capture": _capture_counts(folder),
        "notes": [*manifest.get("notes", []), *notes],
    }


def _add_home(writer: TableWriter, part: str, home: Home, manifest: Mapping[str, Any], notes: list[str]) -> None:
    try:
        for table, columns in homes.brought(part, home).items():
            rows = {**columns}
            if {"window_name", "iteration"} <= set(columns):
                rows["window_name"] = homes.windows_of(columns, home, manifest)
            writer.add(table, rows, node=home.node, launch=home.launch)
    except OrchError as error:
        notes.append(f"{home.node}: {home.launch}: {error.message}")


def _profile(pool: ProcessPoolExecutor, home: Home, manifest: Mapping[str, Any]) -> Future[Any] | None:
    """The capture of a host that a flow generator's own traffic passes, once more in short bins."""
    found = tcpdump.captured(home)
    address = {node["name"]: node.get("address") for node in manifest["topology"]["nodes"]}[home.node]
    flows = [
        Flow(**flow)
        for launch in manifest["launches"]
        if launch["part"] in GENERATORS
        for flow in launch["flows"]
        if address and address in (flow["src"], flow["dst"])
    ]
    if found is None or not flows:
        return None
    port, files = found
    return pool.submit(
        captures.reduce,
        files,
        port=port,
        addresses=[address] if address else [],
        flows=flows,
        offset_ns=home.offset_ns,
        bin_ns=PROFILE_NS,
        segment=int(manifest["topology"]["mtu"]),
    )


def _add_profile(writer: TableWriter, home: Home, pending: Future[Any] | None) -> None:
    if pending is None:
        return
    try:
        columns = pending.result()[1]
    except CaptureError:
        return  # the capture itself was read as well, and says so
    cross = [place for place, kind in enumerate(columns["kind"]) if kind == "cross"]
    picked = {name: np.asarray(columns[name])[cross] for name in TABLES["cross_packets"]}
    writer.add("cross_packets", picked, node=home.node, launch=home.launch)


def _capture(pool: ProcessPoolExecutor, home: Home, manifest: Mapping[str, Any]) -> Future[Any] | None:
    found = tcpdump.captured(home)
    if found is None:
        return None
    port, files = found
    topology = manifest["topology"]
    nodes = {node["name"]: node for node in topology["nodes"]}
    address = nodes[home.node].get("address")
    peers = [
        nodes[link["host"]]["address"]
        for link in topology["links"]
        if (link["switch"], link["switch_port"]) == (home.node, port)
    ]
    flows = [Flow(**flow) for launch in manifest["launches"] for flow in launch["flows"]]
    flows.sort(key=lambda flow: flow.port is None)  # a training names hosts alone, and cross traffic may join the same
    return pool.submit(
        captures.reduce,
        files,
        port=port,
        addresses=[address] if address else [],
        peers=peers,
        flows=flows,
        offset_ns=home.offset_ns,
        segment=int(manifest["topology"]["mtu"]),
    )


def _add_fine(
    writer: TableWriter, fine: Sequence[tuple[Home, Future[Any] | None]], manifest: Mapping[str, Any]
) -> None:
    seen = {}
    for home, result in fine:
        if result is not None:
            columns, seen[home.node] = result.result()
            writer.add("flow_packets", columns, node=home.node, launch=home.launch)
    addresses = {node["name"]: node.get("address") or "" for node in manifest["topology"]["nodes"]}
    writer.add("one_way", sightings.one_way(seen, addresses))


def _fine(pool: ProcessPoolExecutor, home: Home, manifest: Mapping[str, Any]) -> Future[Any] | None:
    found = tcpdump.captured(home)
    if found is None:
        return None
    port, files = found
    return pool.submit(
        flowbins.reduce, files, port=port, offset_ns=home.offset_ns, segment=int(manifest["topology"]["mtu"])
    )


def _add_capture(writer: TableWriter, home: Home, pending: Future[Any] | None) -> list[str]:
    if pending is None:
        return []  # it never began: its launch says so
    try:
        capture_flows, packets, problems = pending.result()
    except CaptureError as error:
        return [f"{home.node}: {home.launch}: {error.message}"]
    writer.add("capture_flows", capture_flows, node=home.node, launch=home.launch)
    writer.add("packets", packets, node=home.node, launch=home.launch)
    return [f"{home.node}: {problem}" for problem in problems]


def _tolerances(manifest: Mapping[str, Any]) -> dict[str, Tolerances]:
    asked = manifest["validity"]
    return {
        window["window"]: Tolerances(
            load=_share(asked["load"]),
            load_course=_share(asked.get("load_course", Tolerances().load_course)),
            capture_drops=asked["capture_drops"],
            capture_nic=asked["capture_nic"],
            min_iterations=min(asked["min_iterations"], window["wanted_iterations"] or asked["min_iterations"]),
            clock_s=asked["clock"],
            drift=_share(asked.get("drift", Tolerances().drift)),
            processor=_share(asked.get("processor", Tolerances().processor)),
            launch_late_s=asked.get("launch_late", 0.01),
        )
        for window in manifest["windows"]
    }


def _share(asked: float | str) -> float | None:
    """A limit, or None for the word that switches its gate off."""
    return None if isinstance(asked, str) else asked


def _window(window: Mapping[str, Any], outcome: windows.Outcome) -> dict[str, Any]:
    name = window["window"]

    def rows(table: str) -> list[dict[str, Any]]:
        columns = outcome.tables[table]
        picked = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        mine = [row for row in picked if row.pop("window_name") == name]
        return [{key: _finite(value) for key, value in row.items()} for row in mine]

    (verdict,) = rows("windows")
    return {
        **window,
        "loads": rows("loads"),
        "training": rows("training"),
        "variation": rows("variation"),
        "processors": rows("processors"),
        "gates": [gate.as_data() for gate in outcome.gates[name]],
        "valid": verdict["valid"],
        "reasons": verdict["reasons"].splitlines(),
    }


def _finite(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _capture_counts(folder: Path) -> dict[str, int] | None:
    found = tables.read(folder / "tables", "captures").to_pylist()
    if not found:
        return None
    return {key: sum(row[key] for row in found) for key in ("captured", "received", "dropped")}


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, in whatever way (Linux, PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


def main() -> int:
    """Warm up, wait for a folder on standard input, reduce it, and print the result as JSON."""
    _die_with_parent()
    flowtable.warm()
    registry.found("collector")
    line = sys.stdin.readline().strip()
    if not line:
        return 0
    try:
        result: dict[str, Any] = {"ok": reduce(Path(json.loads(line)))}
    except OrchError as error:
        result = {"error": error.message, "hint": error.hint}
    except OSError as error:
        result = {"error": f"{error.filename or line}: {error.strerror}", "hint": None}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
