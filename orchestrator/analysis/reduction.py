"""Reduce the output of a run's launches to tables and verdicts, from its folder alone, in a process of its own.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator.analysis import launch_outputs, packed_tables
from orchestrator.analysis.capture import captures, flowtable, metered, oneway
from orchestrator.analysis.launch_outputs import RowsInIterations
from orchestrator.analysis.windows import windows
from orchestrator.core import memory
from orchestrator.core.errors import CaptureError, OrchError
from orchestrator.core.paths import safepath
from orchestrator.parts import registry
from orchestrator.parts.dilated_time import DividedTime
from orchestrator.parts.registry import COLLECTOR
from orchestrator.parts.rows import TABLES, LaunchOutput
from orchestrator.parts.shared import capture_files, meter_files
from orchestrator.store.manifests.capture_points import CAPTURING, METERING, alone, capture_point
from orchestrator.store.manifests.coding import encoded
from orchestrator.store.manifests.manifest import load
from orchestrator.store.manifests.records import Manifest, Reduced, Reply
from orchestrator.store.manifests.summaries import CaptureCounts
from orchestrator.store.stamps import MANIFEST
from orchestrator.store.tabular import tables
from orchestrator.store.tabular.tables import TableWriter

_Pending = tuple[LaunchOutput, Callable[[], captures.Tables]]  # a capture, and what gives its tables

# What is made of a capture; where that is gone, rows that were made before are all that there is.
OF_CAPTURES = ("capture_flows", "packets", "flow_packets", "cross_packets")
Launches = frozenset[tuple[str, str]]  # node and launch of each


def reduce(folder: Path, *, before: Path | None = None, engine: Executor | None = None) -> Reduced:
    """Write the tables of a run; return the additions to its manifest: windows with verdicts, captures, notes.

    Rows of captures that were dropped since are taken from the tables in the folder `before`.

    `engine` is what reads captures: files of a port in, its tables out (`captures.reduce`). By default these are
    processes of this machine; another one, which stays open, may be anywhere where it finds the files.
    """
    manifest = load(folder / MANIFEST)
    outputs = list(launch_outputs.located(folder, manifest))
    notes: list[str] = []
    whys: dict[tuple[str, str], str] = {}
    gone = _gone(outputs, manifest) if before else frozenset()
    jobs = _jobs(outputs, manifest, gone)
    # Forked before anything else starts a thread: the compiled capture reader is shared, not loaded again.
    with nullcontext(engine) if engine else _processes() as pool:
        pending: list[_Pending] = [(output, pool.submit(captures.reduce, job).result) for output, job in jobs]
        pending += list(_from_hosts(outputs, manifest, gone))
        pending += list(_from_meters(outputs, manifest))
        with TableWriter(folder / "tables", run=manifest.run) as writer:
            held = RowsInIterations(manifest.run)
            for part, output in outputs:
                whys[output.node, output.launch] = _add_output(writer, held, part, output, manifest)
                notes += [f"{output.node}: {output.launch}: {told}" for told in output.unread.sentences()]
            manifest = replace(manifest, windows=held.judged(manifest))
            for name, rows in held.rows(manifest.windows):
                writer.append(name, rows)
            del held
            problems = _add_captures(writer, pending, manifest, before=before if gone else None)
            if before:
                problems += _keep(writer, before, gone, manifest, notes)
    outcome = windows.measure(folder / "tables", manifest, problems=problems, lost=_lost(manifest, whys))
    with TableWriter(folder / "tables", run=manifest.run) as writer:
        for name, columns in outcome.tables.items():
            writer.add(name, columns)
    return Reduced(windows=outcome.windows, capture=_capture_counts(folder), notes=tuple(notes))


def _processes() -> Executor:
    return ProcessPoolExecutor(
        os.cpu_count() or 1, mp_context=multiprocessing.get_context("fork"), initializer=_die_with_parent
    )


def _gone(outputs: Sequence[tuple[str, LaunchOutput]], manifest: Manifest) -> Launches:
    """Return the captures whose files were dropped and of which there is no result of their host here."""
    dropped = [one.path for one in manifest.pruned if one.what == "drop"]
    return frozenset(
        (output.node, output.launch)
        for part, output in outputs
        if part == CAPTURING
        and any(path.startswith(f"hosts/{output.node}/{output.launch}/") for path in dropped)
        and _packed(output) is None
    )


def _jobs(
    outputs: Sequence[tuple[str, LaunchOutput]], manifest: Manifest, gone: Launches
) -> list[tuple[LaunchOutput, captures.Job]]:
    """Return the jobs for captures that are read here, of each capture that began (else its launch says why)."""
    elsewhere = gone | _kept_away(manifest)
    return [
        (
            output,
            captures.job_of(
                capture_point(manifest, node=output.node, launch=output.launch, port=port),
                capture_files.in_order(output.folder),
            ),
        )
        for part, output in outputs
        if part == CAPTURING
        and (port := capture_files.listening(output.folder)) is not None
        and (output.node, output.launch) not in elsewhere
    ]


def _kept_away(manifest: Manifest) -> Launches:
    """Return every capture that stayed on its host, though it may have been dropped there meanwhile."""
    dropped = (one.path.split("/", 3) for one in manifest.pruned if one.what == "drop")
    return frozenset(
        [(one.node, one.launch) for one in manifest.stayed]
        + [(path[1], path[2]) for path in dropped if len(path) == len(("hosts", "NODE", "LAUNCH", "FILE"))]
    )


def _from_hosts(outputs: Sequence[tuple[str, LaunchOutput]], manifest: Manifest, gone: Launches) -> Iterator[_Pending]:
    """Yield the results for captures that hosts keep, read one after the other."""
    for part, output in outputs:
        if part == CAPTURING and (output.node, output.launch) in _kept_away(manifest) - gone:
            stays = any(one.launch == output.launch for one in manifest.stayed)
            yield output, partial(_made_there, output, stays=stays)


def _from_meters(outputs: Sequence[tuple[str, LaunchOutput]], manifest: Manifest) -> Iterator[_Pending]:
    """Yield the results for what meters counted, read one after the other."""
    for part, output in outputs:
        if part == METERING and (port := capture_files.listening(output.folder)) is not None:
            point = capture_point(manifest, node=output.node, launch=output.launch, port=port)
            job = captures.job_of(point, [output.folder / meter_files.FILE])
            yield output, partial(metered.reduce, job)


def _made_there(output: LaunchOutput, *, stays: bool) -> captures.Tables:
    """Read the tables that a host made of a capture that it keeps; CaptureError where there are none."""
    packed = _packed(output)
    if packed is None:
        raise CaptureError("it stays on its host, which did not reduce it" if stays else "its files were dropped")
    return packed_tables.load(packed)


def _packed(output: LaunchOutput) -> Path | None:
    return safepath.regular(output.folder.parent, f"{capture_files.REDUCED}/{output.launch}.npz")


def _keep(writer: TableWriter, before: Path, gone: Launches, manifest: Manifest, notes: list[str]) -> list[str]:
    """Copy the rows of captures that are gone from older tables, with notes; return these captures' problems too."""
    for name in OF_CAPTURES if gone else ():
        if (before / f"{name}.parquet").is_file():
            for rows in tables.groups(before, name):
                made_of = zip(rows["node"].to_pylist(), rows["launch"].to_pylist(), strict=True)
                writer.keep(name, rows.filter([one in gone for one in made_of]))
    problems = []
    for node, launch in sorted(gone):
        notes.append(f"{node}: {launch}: files of this capture are gone: its rows are those made before")
        said = (gate for window in manifest.windows for gate in window.gates if gate.name == "capture-file")
        problems += [gate.message for gate in said if gate.message.startswith((f"{node}: {launch}: ", f"{node}: "))]
    return list(dict.fromkeys(problems))


def _add_output(
    writer: TableWriter, held: RowsInIterations, part: str, output: LaunchOutput, manifest: Manifest
) -> str:
    """Write, or hold, the rows that a part reads from a launch's output; return why nothing could be read."""
    try:
        found = _time(manifest).tables(launch_outputs.rows_of(part, output))
        for table, columns in found.items():
            if "window_name" in TABLES.get(table, ()) and "iteration" in columns:
                held.add(table, columns, output)
                continue
            rows = {**columns}
            if table == "nccl_connections":
                rows["rail"] = launch_outputs.rails_of(columns, output, manifest)
            writer.add(table, rows, node=output.node, launch=output.launch)
    except OrchError as error:
        output.unread.note(error.message)
        return error.message
    return "" if found else "it wrote nothing that can be read"


def _time(manifest: Manifest) -> DividedTime:
    return DividedTime(began_ns=manifest.began_ns, dilation=manifest.dilation)


def _lost(manifest: Manifest, whys: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """Return node and launch of the collectors whose output could not be read, and why; captures have other gates."""
    collectors = [
        (launch.node, name)
        for launch, part, name in launch_outputs.named(manifest)
        if part.startswith(COLLECTOR) and part != CAPTURING
    ]
    found = {place: whys.get(place, "nothing of it came home") for place in collectors}
    return {place: why for place, why in found.items() if why}


def _add_captures(
    writer: TableWriter, pending: Sequence[_Pending], manifest: Manifest, *, before: Path | None
) -> list[str]:
    """Write the tables made of captures; return the problems of these.

    How long packets took needs all captures: where some are gone, that is as it was `before`.
    """
    problems, seen = [], []
    meters = {(one.node, one.name) for one in manifest.launches if one.part == METERING}
    beside = meters - {(node, name) for node, name, _ in alone(manifest)}
    for output, made in pending:
        try:
            found = made()
        except CaptureError as error:
            problems.append(f"{output.node}: {output.launch}: {error.message}")
            continue
        problems += [f"{output.node}: {problem}" for problem in found.problems]
        if (output.node, output.launch) in beside:
            rows = _time(manifest).columns("metered", found.packets)
            writer.add("metered", rows, node=output.node, launch=output.launch)
            continue
        for table in (
            "capture_flows",
            "packets",
            "flow_packets",
            *(["cross_packets"] if len(found.cross_packets["port"]) else []),
        ):
            rows = _time(manifest).columns(table, getattr(found, table))
            writer.add(table, rows, node=output.node, launch=output.launch)
        if (output.node, output.launch) not in meters:
            seen.append((output.node, found.sightings))
    if before is None:
        took = oneway.one_way(seen, {node.name: node.addresses for node in manifest.topology.nodes})
        writer.add("one_way", _time(manifest).columns("one_way", took))
    else:
        writer.keep("one_way", tables.read(before, "one_way"))
    return problems


def _capture_counts(folder: Path) -> CaptureCounts | None:
    found = tables.read(folder / "tables", "captures").to_pylist()
    if not found:
        return None
    return CaptureCounts(**{key: sum(row[key] for row in found) for key in ("captured", "received", "dropped")})


def _die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, in whatever way (Linux, PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


def main() -> int:
    """Warm up, wait for a folder, and one of older tables or null, on standard input, and print the result as JSON."""
    _die_with_parent()
    memory.without_pandas()
    flowtable.warm()
    registry.parts_of("collector")
    line = sys.stdin.readline().strip()
    if not line:
        return 0
    folder, before = json.loads(line)
    try:
        result = Reply(ok=reduce(Path(folder), before=Path(before) if before else None))
    except (MemoryError, BrokenExecutor):
        result = Reply(error="a process was ended, perhaps for want of memory")
    except OrchError as error:
        result = Reply(error=error.message, hint=error.hint)
    except OSError as error:
        result = Reply(error=f"{error.filename or folder}: {error.strerror}")
    print(encoded(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
