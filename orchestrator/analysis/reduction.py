"""Turns the output of launches into tables and verdicts; needs the run's folder alone; a process of its own.

The controller starts it while captures still drain, so that its imports cost nothing, and sends the folder's path when
everything is output: its memory goes when it is done, and a crash in it cannot take the run along.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis import launch_outputs
from orchestrator.analysis.capture import captures, flowbins, flowtable, sightings
from orchestrator.analysis.windows import windows
from orchestrator.analysis.windows.gates import Tolerances
from orchestrator.core.errors import CaptureError, OrchError
from orchestrator.parts import registry
from orchestrator.parts.collectors import tcpdump
from orchestrator.parts.rows import TABLES, LaunchOutput
from orchestrator.store import tables
from orchestrator.store.manifest import FILE, encoded, load
from orchestrator.store.records import CaptureCounts, Manifest, Reduced, Reply
from orchestrator.store.tables import TableWriter

GENERATORS = frozenset({"traffic.websearch", "traffic.replay"})
PROFILE_NS = 1_000_000  # what shows a burst of a millisecond


def reduce(folder: Path) -> Reduced:
    """Write the tables of a run and give what its manifest gains: windows with their verdicts, captures, notes."""
    manifest = load(folder / FILE)
    outputs = list(launch_outputs.located(folder, manifest))
    manifest = replace(manifest, windows=launch_outputs.settled(manifest, outputs))
    notes: list[str] = []
    # Forked before anything else starts a thread: the compiled capture reader is shared, not loaded again.
    with ProcessPoolExecutor(
        os.cpu_count() or 1, mp_context=multiprocessing.get_context("fork"), initializer=_die_with_parent
    ) as pool:
        pending = [
            (output, _capture(pool, output, manifest)) for part, output in outputs if part == "collector.tcpdump"
        ]
        profiles = [
            (output, _profile(pool, output, manifest)) for part, output in outputs if part == "collector.tcpdump"
        ]
        fine = [(output, _fine(pool, output, manifest)) for part, output in outputs if part == "collector.tcpdump"]
        with TableWriter(folder / "tables", run=manifest.run) as writer:
            for part, output in outputs:
                _add_output(writer, part, output, manifest, notes)
            problems = [problem for output, result in pending for problem in _add_capture(writer, output, result)]
            for output, profile in profiles:
                _add_profile(writer, output, profile)
            _add_fine(writer, fine, manifest)
    outcome = windows.measure(folder / "tables", manifest, tolerances=_tolerances(manifest), problems=problems)
    with TableWriter(folder / "tables", run=manifest.run) as writer:
        for name, columns in outcome.tables.items():
            writer.add(name, columns)
    return Reduced(windows=outcome.windows, capture=_capture_counts(folder), notes=(*manifest.notes, *notes))


def _add_output(writer: TableWriter, part: str, output: LaunchOutput, manifest: Manifest, notes: list[str]) -> None:
    try:
        for table, columns in launch_outputs.rows_of(part, output).items():
            rows = {**columns}
            if {"window_name", "iteration"} <= set(columns):
                rows["window_name"] = launch_outputs.windows_of(columns, output, manifest)
            writer.add(table, rows, node=output.node, launch=output.launch)
    except OrchError as error:
        notes.append(f"{output.node}: {output.launch}: {error.message}")


def _profile(pool: ProcessPoolExecutor, output: LaunchOutput, manifest: Manifest) -> Future[Any] | None:
    """The capture of a host that a flow generator's own traffic passes, once more in short bins."""
    found = tcpdump.captured(output)
    if found is None:
        return None
    port, files = found
    addresses, _ = _ends(manifest, output.node, port)
    flows = [
        flow
        for launch in manifest.launches
        if launch.part in GENERATORS
        for flow in launch.flows
        if {flow.src, flow.dst} & set(addresses)
    ]
    if not flows:
        return None
    return pool.submit(
        captures.reduce,
        files,
        port=port,
        addresses=addresses,
        flows=flows,
        offset_ns=output.offset_ns,
        bin_ns=PROFILE_NS,
        segment=manifest.topology.mtu,
    )


def _add_profile(writer: TableWriter, output: LaunchOutput, pending: Future[Any] | None) -> None:
    if pending is None:
        return
    try:
        columns = pending.result()[1]
    except CaptureError:
        return  # the capture itself was read as well, and says so
    cross = [place for place, kind in enumerate(columns["kind"]) if kind == "cross"]
    picked = {name: np.asarray(columns[name])[cross] for name in TABLES["cross_packets"]}
    writer.add("cross_packets", picked, node=output.node, launch=output.launch)


def _capture(pool: ProcessPoolExecutor, output: LaunchOutput, manifest: Manifest) -> Future[Any] | None:
    found = tcpdump.captured(output)
    if found is None:
        return None
    port, files = found
    addresses, peers = _ends(manifest, output.node, port)
    flows = [flow for launch in manifest.launches for flow in launch.flows]
    flows.sort(key=lambda flow: flow.port is None)  # a training names hosts alone, and cross traffic may join the same
    return pool.submit(
        captures.reduce,
        files,
        port=port,
        addresses=addresses,
        peers=peers,
        flows=flows,
        offset_ns=output.offset_ns,
        segment=manifest.topology.mtu,
    )


def _ends(manifest: Manifest, node: str, port: str) -> tuple[list[str], list[str]]:
    """The addresses of a node at a port, and at a switch's port those of the host behind it."""
    topology = manifest.topology
    own = [rail.address for rail in topology.node(node).rails if rail.address and rail.device in ("", port)]
    behind = [link for link in topology.links if (link.switch, link.switch_port) == (node, port)]
    return own, [
        rail.address for link in behind for rail in topology.node(link.host).rails if rail.device in ("", link.device)
    ]


def _add_fine(writer: TableWriter, fine: Sequence[tuple[LaunchOutput, Future[Any] | None]], manifest: Manifest) -> None:
    seen = []
    for output, result in fine:
        if result is not None:
            columns, sighted = result.result()
            seen.append((output.node, sighted))
            writer.add("flow_packets", columns, node=output.node, launch=output.launch)
    writer.add("one_way", sightings.one_way(seen, {node.name: node.addresses for node in manifest.topology.nodes}))


def _fine(pool: ProcessPoolExecutor, output: LaunchOutput, manifest: Manifest) -> Future[Any] | None:
    found = tcpdump.captured(output)
    if found is None:
        return None
    port, files = found
    return pool.submit(flowbins.reduce, files, port=port, offset_ns=output.offset_ns, segment=manifest.topology.mtu)


def _add_capture(writer: TableWriter, output: LaunchOutput, pending: Future[Any] | None) -> list[str]:
    if pending is None:
        return []  # it never began: its launch says so
    try:
        capture_flows, packets, problems = pending.result()
    except CaptureError as error:
        return [f"{output.node}: {output.launch}: {error.message}"]
    writer.add("capture_flows", capture_flows, node=output.node, launch=output.launch)
    writer.add("packets", packets, node=output.node, launch=output.launch)
    return [f"{output.node}: {problem}" for problem in problems]


def _tolerances(manifest: Manifest) -> dict[str, Tolerances]:
    limits, usual = manifest.validity, Tolerances()
    return {
        window.name: Tolerances(
            load=_share(limits.load, usual.load),
            load_course=_share(limits.load_course, usual.load_course),
            capture_drops=limits.capture_drops,
            capture_nic=limits.capture_nic,
            min_iterations=min(limits.min_iterations, window.wanted_iterations or limits.min_iterations),
            clock_s=limits.clock,
            drift=_share(limits.drift, usual.drift),
            processor=_share(limits.processor, usual.processor),
            congestion=limits.congestion == "invalid",
            launch_late_s=usual.launch_late_s if limits.launch_late is None else limits.launch_late,
        )
        for window in manifest.windows
    }


def _share(limit: float | str | None, usual: float | None) -> float | None:
    """A limit, the usual one of a run that is older than its gate, or None for the word that switches it off."""
    if limit is None:
        return usual
    return None if isinstance(limit, str) else limit


def _capture_counts(folder: Path) -> CaptureCounts | None:
    found = tables.read(folder / "tables", "captures").to_pylist()
    if not found:
        return None
    return CaptureCounts(**{key: sum(row[key] for row in found) for key in ("captured", "received", "dropped")})


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, in whatever way (Linux, PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


def main() -> int:
    """Warm up, wait for a folder on standard input, reduce it, and print the result as JSON."""
    _die_with_parent()
    flowtable.warm()
    registry.parts_of("collector")
    line = sys.stdin.readline().strip()
    if not line:
        return 0
    try:
        result = Reply(ok=reduce(Path(json.loads(line))))
    except OrchError as error:
        result = Reply(error=error.message, hint=error.hint)
    except OSError as error:
        result = Reply(error=f"{error.filename or line}: {error.strerror}")
    print(encoded(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
