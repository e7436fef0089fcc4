"""Samplers of collectors: the nodes they watch, checks of options, their launch and the reading of their files."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrator.agents import sampler
from orchestrator.core.errors import OrchError
from orchestrator.core.paths import safepath
from orchestrator.core.units import duration_text
from orchestrator.parts.launch import Footprint, Launch, Line, Requirement, Stop
from orchestrator.parts.protocols import Problem
from orchestrator.parts.ranks import pid_of
from orchestrator.parts.shared import named_hosts

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.parts.rows import Columns, LaunchOutput
    from orchestrator.parts.topology import Node, Topology

AGENTS = Path(__file__).parents[1] / "agents"
RUN_PROCESSES = AGENTS / "run_processes.py"  # which a source imports that tells processes of the run apart
PROCESSES = ("/proc", "../.containers")  # where it finds them: procfs, and the agent's list of containers
TEXTS = ("src", "dst", "congestion", "process")  # columns that hold no numbers
SHORTEST_S, LONGEST_S = 0.001, 10.0
MOST_NOTES = 5  # of each kind on one file


def ports(topology: Topology, hosts: Sequence[str] | None) -> dict[str, tuple[str, ...]]:
    """Name of each chosen node and its data-plane devices; by default all hosts, and switches with an agent.

    A switch's devices are the switch ends of its links.
    """
    chosen: dict[str, tuple[str, ...]] = {host.name: host.devices for host in topology.hosts}
    for link in topology.links:
        if link.switch_port:
            chosen[link.switch] = (*chosen.get(link.switch, ()), link.switch_port)
    return {name: devices for name, devices in chosen.items() if hosts is None or name in hosts}


def chosen_hosts(topology: Topology, hosts: Sequence[str] | None) -> list[Node]:
    """Return the hosts that `hosts` names, in the testbed's order; all of them when it is None."""
    return [host for host in topology.hosts if hosts is None or host.name in hosts]


def hosts_problems(hosts: Sequence[str] | None, known: Sequence[str]) -> list[Problem]:
    """Return what is wrong with a list of nodes that must all be among `known`, each once."""
    if hosts is None:
        return []
    accepted = named_hosts.one_of(known)
    found = [] if hosts else [Problem(at=("hosts",), message="names no host", accepted=accepted + "; or leave it out")]
    for place, name in enumerate(hosts):
        if name not in known:
            found.append(Problem(at=("hosts", place), message=named_hosts.absent(name), accepted=accepted))
        elif name in hosts[:place]:
            found.append(Problem(at=("hosts", place), message=f"{name!r} stands here twice", accepted="each name once"))
    return found


def interval_problems(option: str, every_s: float) -> list[Problem]:
    """Return what is wrong with a time between samples, in seconds."""
    if SHORTEST_S <= every_s <= LONGEST_S:
        return []
    accepted = f"{duration_text(SHORTEST_S)} to {duration_text(LONGEST_S)}"
    return [Problem(at=(option,), message=f"cannot sample every {duration_text(every_s)}", accepted=accepted)]


def sampler_launch(
    name: str,
    node: Node,
    arguments: Sequence[str],
    *,
    required: bool,
    source: Path | None = None,
    packages: bool = False,
    beside: Sequence[Path] = (),
) -> Launch:
    """Return a sampler on a node for the collector `name`; `arguments` are those of its source.

    `source` is the module that says what is sampled (orchestrator/agents/sampler.py says how), by default that of ours;
    `packages`: it imports what is installed for the node's Python; `beside`: the files that it finds in its folder.
    """
    source = source or AGENTS / f"{name}_source.py"
    return Launch(
        name=f"{name}.{node.name}",
        node=node.name,
        role="collector",
        argv=(node.python, *(() if packages else ("-I", "-S")), "-B", "sampler.py", source.stem, *arguments),
        files={path.name: path for path in (AGENTS / "sampler.py", source, *beside)},
        ready=Line(pattern="^sampling$"),
        stop=Stop(signals=((signal.SIGTERM, 5.0),), ok=(0,)),
        required=required,
    )


def rank_launches(
    name: str,
    command: Sequence[str],
    ranks: Sequence[Launch],
    topology: Topology,
    *,
    first_line_s: float,
    required: bool,
    privileged: bool = False,
    memory: float = 2e6,
) -> list[Launch]:
    """Return a launch on each node of these ranks that runs a command for each rank there, for the collector `name`.

    Among the words of the command {pid} stands for the rank's process id. It prints lines as long as it runs, the first
    within so many seconds, and ends at SIGINT; `rank_lines` reads them. `memory` is what it takes itself, in bytes.
    """
    program = AGENTS / "stamped_lines.py"
    found = []
    for node in (node for node in topology.nodes if any(rank.node == node.name for rank in ranks)):
        here = [rank for rank in ranks if rank.node == node.name]
        pids = (f"{rank.name}={pid_of(rank)}" for rank in here)
        found.append(
            Launch(
                name=f"{name}.{node.name}",
                node=node.name,
                role="collector",
                argv=(node.python, "-I", "-S", "-B", program.name, *pids, "--", *command),
                env={"LC_ALL": "C"},
                files={program.name: program},
                ready=Line("^started$"),
                ready_within_s=10.0 + first_line_s,
                stop=Stop(signals=((signal.SIGINT, 5.0),), ok=(0,)),
                required=required,
                privileged=privileged,
                footprint=Footprint(memory=10e6 + memory * len(here)),
            )
        )
    return found


def rank_lines(output: LaunchOutput) -> Iterator[tuple[str, int, int, str]]:
    """Give each whole line that the commands of `rank_launches` printed: rank's launch, line number, instant, line.

    Instants are nanoseconds in the controller's time base. A line without one is counted in the output's `unread`.
    """
    for path in sorted(output.folder.glob("*.csv")):
        data = content(path.name, output)
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].decode("utf-8", "replace").split("\n"), start=1):
            stamp, _, printed = line.partition(",")
            if stamp.isascii() and stamp.isdigit() and int(stamp) < 1 << 62:
                yield path.stem, number, int(stamp) + output.offset_ns, printed
            elif line.strip():
                output.unread.add(path.name, "lines", line=number, text=line)


def device_requirements(chosen: Mapping[str, Sequence[str]], needed_by: str) -> list[Requirement]:
    """Require that each of these nodes has these network devices."""
    return [
        Requirement(
            node=node,
            kind="device",
            what=device,
            remedy=f"`ip link` on {node} lists its devices; name the right one in the testbed's file",
            needed_by=needed_by,
        )
        for node, devices in chosen.items()
        for device in devices
    ]


def csv_tables(output: LaunchOutput) -> Iterator[tuple[str, pa.Table]]:
    """Stem and content of each CSV file of a sampler; of a sampler that began anew, each part with its own header.

    What is odd costs no more than itself, and is told as the output's `unread`: columns of one name are told apart by a
    number, a cell that is no number is empty, a line of another length than its header is left out, as is a last one
    that was cut short. So is what the sampler said on standard error.
    """
    for path in sorted(output.folder.glob("*.csv")):
        data = content(path.name, output)
        whole = data[: data.rfind(b"\n") + 1]
        for part in _parts(whole):
            table = _table(part, path.name, output)
            if table is not None:
                yield path.stem, table
    for line in _said(output):
        output.unread.note(line)


def content(name: str, output: LaunchOutput, most: int = -1) -> bytes:
    """Return what a plain file of the output holds.

    Nothing of what is none, such as a link or a FIFO, which is noted.
    """
    try:
        with safepath.opened(output.folder / name) as file:
            return file.read(most)
    except (OrchError, OSError) as error:
        output.unread.note(f"{name}: left out: {error}")
        return b""


def _parts(whole: bytes) -> Iterator[bytes]:
    """Give what a sampler's file holds from each of its headers on."""
    starts = [0]
    while (at := whole.find(b"\ntime_ns,", starts[-1])) >= 0:
        starts.append(at + 1)
    for begin, end in zip(starts, [*starts[1:], len(whole)], strict=True):
        yield whole[begin:end]


def _table(part: bytes, file: str, output: LaunchOutput) -> pa.Table | None:
    """One header and its rows; None where there are no rows, and where the first line is no header."""
    import pyarrow as pa
    from pyarrow import csv

    header, _, body = part.partition(b"\n")
    names = sampler.distinct(header.decode("utf-8", "replace").rstrip("\r").split(","))
    if names[0] != "time_ns":
        if header:
            output.unread.note(f"{file}: left out: it does not begin with a line of columns")
        return None
    strange: list[int] = []

    def skip(row: Any) -> str:
        strange.append(row.actual_columns)
        return "skip"

    def parsed(text: bytes, types: Mapping[str, pa.DataType], **more: Any) -> pa.Table:
        strange.clear()
        return csv.read_csv(
            io.BytesIO(text),
            read_options=csv.ReadOptions(column_names=names),
            parse_options=csv.ParseOptions(quote_char=False, invalid_row_handler=skip),
            convert_options=csv.ConvertOptions(column_types=types, null_values=[""], **more),
        )

    if not body.isascii():
        body = body.decode("utf-8", "replace").encode()
    if not body.strip():
        return pa.table({name: pa.array([], _type_of(name)) for name in names})
    try:
        table = parsed(body, {name: _type_of(name) for name in names}, strings_can_be_null=False)
    except pa.ArrowInvalid:
        try:
            table = _numbers(parsed(body, dict.fromkeys(names, pa.string()), strings_can_be_null=True), file, output)
        except pa.ArrowInvalid as error:  # no line of it is as long as its header
            output.unread.note(f"{file}: left out: {str(error).partition(chr(10))[0][:200]}")
            return None
    if strange:
        lines = f"{len(strange)} lines have" if len(strange) != 1 else "1 line has"
        output.unread.note(f"{file}: left out: {lines} not {len(names)} cells, such as one of {strange[0]}")
    return table


def _type_of(name: str) -> pa.DataType:
    from pyarrow import float64, int64, string

    return int64() if name == "time_ns" else string() if name in TEXTS else float64()


def _numbers(table: pa.Table, file: str, output: LaunchOutput) -> pa.Table:
    """Return a table of texts as one of numbers: what is none is empty, and a row without an instant is left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    made, odd = {}, {}
    for name in table.column_names:
        texts = table.column(name)
        kind = _type_of(name)
        if name in TEXTS:
            made[name] = pc.fill_null(texts, "")
            continue
        try:
            made[name] = texts.cast(kind)
        except pa.ArrowInvalid:
            cells = texts.to_pylist()
            values = [_number(cell, whole=name == "time_ns") for cell in cells]
            odd[name] = [cell for cell, value in zip(cells, values, strict=True) if value is None and cell is not None]
            made[name] = pa.chunked_array([pa.array(values, kind)])
    for name, cells in list(odd.items())[:MOST_NOTES]:
        what = "cells are" if len(cells) != 1 else "cell is"
        output.unread.note(
            f"{file}: {len(cells)} of {len(table)} {what} no number in {name[:80]}, such as {cells[0][:40]!r}"
        )
    if len(odd) > MOST_NOTES:
        output.unread.note(f"{file}: the same in {len(odd) - MOST_NOTES} more columns")
    whole = pa.table(made)
    return whole.filter(pc.is_valid(whole.column("time_ns")))


def _number(text: str | None, *, whole: bool) -> float | int | None:
    try:
        if whole:
            value = int(text or "")
            return value if abs(value) < 1 << 63 else None
        return float(text or "")
    except ValueError:
        return None


def _said(output: LaunchOutput) -> list[str]:
    """Return what a sampler complained of, as notes."""
    if not os.path.lexists(output.folder / "stderr"):
        return []
    text = content("stderr", output, 1 << 16).decode("utf-8", "replace")
    lines = list(dict.fromkeys(line[:300] for line in text.splitlines() if line.strip()))
    more = [f"{len(lines) - MOST_NOTES} more lines in its stderr"] if len(lines) > MOST_NOTES else []
    return [*lines[:MOST_NOTES], *more]


def floats(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a column as float64, NaN where a value is missing or is not finite."""
    values = np.array(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    values[~np.isfinite(values)] = np.nan
    return values


def numbers(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a column as float64; all NaN where the table has none of this name."""
    return floats(table.column(name)) if name in table.column_names else np.full(len(table), np.nan)


def texts(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    """Return a column of texts; all empty where the table has none of this name."""
    there = name in table.column_names
    return np.asarray(table.column(name).to_numpy(zero_copy_only=False)) if there else np.full(len(table), "", object)


def wholes(values: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    """Whole numbers; a list with None for those that are missing, where some are."""
    known = np.isfinite(values) & (np.abs(values) < 2.0**63)
    if known.all():
        return values.astype(np.int64)
    return [int(value) if there else None for value, there in zip(values, known, strict=True)]


def counters(output: LaunchOutput) -> Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Column ("PORT|COUNTER"), instants and values of every counter that a sampler wrote; see `series`."""
    for stem, table in csv_tables(output):
        yield from series(stem, table, output)


def series(
    stem: str, table: pa.Table, output: LaunchOutput
) -> Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Column, instants and values of every counter in one file of a sampler; none where the file has no rows.

    Instants are int64 nanoseconds in the controller's time base, values float64 without gaps. How late samples were
    comes as the counter "sampler.FILE.late_s" of the node as a whole.
    """
    if not len(table):
        return
    instants = table.column("time_ns").to_numpy() + output.offset_ns
    late_s = numbers(table, "late_ns") / 1e9
    yield f"|sampler.{stem}.late_s", instants[~np.isnan(late_s)], late_s[~np.isnan(late_s)]
    for name in table.column_names:
        if name not in ("time_ns", "late_ns", *TEXTS):
            values = floats(table.column(name))
            there = ~np.isnan(values)
            yield name if "|" in name else f"|{name}", instants[there], values[there]


def turning_points(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Which samples of a counter to keep, as booleans: all but those equal to both their neighbours.

    Straight lines between what is kept pass through what is left out, so nothing is lost.
    """
    keep = np.ones(len(values), dtype=bool)
    if len(values) > 2:
        same = values[1:] == values[:-1]
        keep[1:-1] = ~(same[:-1] & same[1:])
    return keep


def counter_rows(series: Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]) -> Mapping[str, Columns]:
    """Return the table `counters` of these columns, without the samples that say nothing new."""
    names: list[str] = []
    lengths: list[int] = []
    instants: list[np.ndarray[Any, Any]] = []
    values: list[np.ndarray[Any, Any]] = []
    for name, times, numbers in series:
        keep = turning_points(numbers)
        names.append(name)
        lengths.append(int(keep.sum()))
        instants.append(times[keep])
        values.append(numbers[keep])
    if not names:
        return {}
    labels = np.array([name.split("|", 1) for name in names], dtype=object)
    return {
        "counters": {
            "port": np.repeat(labels[:, 0], lengths),
            "time_ns": np.concatenate(instants),
            "counter": np.repeat(labels[:, 1], lengths),
            "value": np.concatenate(values),
        }
    }
