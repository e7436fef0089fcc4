"""What collectors share: whom they watch, checks of options, the launch of a sampler and the reading of its files."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrator.core.paths import safepath
from orchestrator.core.units import duration_text
from orchestrator.parts.launch import Launch, Line, Requirement, Stop
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import named_hosts

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.parts.rows import Columns, LaunchOutput
    from orchestrator.parts.topology import Node, Topology

AGENTS = Path(__file__).parents[1] / "agents"
TEXTS = ("src", "dst", "congestion", "process")  # columns that hold no numbers
SHORTEST_S, LONGEST_S = 0.001, 10.0


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
    """The hosts that `hosts` names, in the testbed's order; all of them when it is None."""
    return [host for host in topology.hosts if hosts is None or host.name in hosts]


def hosts_problems(hosts: Sequence[str] | None, known: Sequence[str]) -> list[Problem]:
    """What is wrong with a list of nodes that must all be among `known`, each once."""
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
    """What is wrong with a time between samples, in seconds."""
    if SHORTEST_S <= every_s <= LONGEST_S:
        return []
    accepted = f"{duration_text(SHORTEST_S)} to {duration_text(LONGEST_S)}"
    return [Problem(at=(option,), message=f"cannot sample every {duration_text(every_s)}", accepted=accepted)]


def sampler_launch(
    name: str, node: Node, arguments: Sequence[str], *, required: bool, source: Path | None = None,
    packages: bool = False,
) -> Launch:  # fmt: skip
    """A sampler on a node for the collector `name`; `arguments` are those of its source.

    `source` is the module that says what is sampled (orchestrator/agents/sampler.py says how), by default that of ours;
    `packages`: it imports what is installed for the node's Python.
    """
    source = source or AGENTS / f"{name}_source.py"
    return Launch(
        name=f"{name}.{node.name}",
        node=node.name,
        role="collector",
        argv=(node.python, *(() if packages else ("-I", "-S")), "-B", "sampler.py", source.stem, *arguments),
        files={"sampler.py": AGENTS / "sampler.py", source.name: source},
        ready=Line(pattern="^sampling$"),
        stop=Stop(signals=((signal.SIGTERM, 5.0),), ok=(0,)),
        required=required,
    )


def device_requirements(chosen: Mapping[str, Sequence[str]], needed_by: str) -> list[Requirement]:
    """That each of these nodes has these network devices."""
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
    """Stem and content of each CSV file of a sampler; a last line that was cut short is left out."""
    from pyarrow import csv, float64, int64, string

    for path in sorted(output.folder.glob("*.csv")):
        data = safepath.content(path) or b""
        whole = data[: data.rfind(b"\n") + 1]
        if whole.count(b"\n") < 2:
            continue
        names = whole.split(b"\n", 1)[0].decode().split(",")
        types = {name: string() if name in TEXTS else float64() for name in names} | {"time_ns": int64()}
        options = csv.ConvertOptions(column_types=types, strings_can_be_null=False, null_values=[""])
        yield path.stem, csv.read_csv(io.BytesIO(whole), convert_options=options)


def floats(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A column as float64, NaN where a value is missing."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def counters(output: LaunchOutput) -> Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Column ("PORT|COUNTER"), instants and values of every counter that a sampler wrote; see `series`."""
    for stem, table in csv_tables(output):
        yield from series(stem, table, output)


def series(
    stem: str, table: pa.Table, output: LaunchOutput
) -> Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Column, instants and values of every counter in one file of a sampler.

    Instants are int64 nanoseconds in the controller's time base, values float64 without gaps. How late samples were
    comes as the counter "sampler.FILE.late_s" of the node as a whole.
    """
    instants = table.column("time_ns").to_numpy() + output.offset_ns
    yield f"|sampler.{stem}.late_s", instants, floats(table.column("late_ns")) / 1e9
    for name in table.column_names[2:]:
        values = floats(table.column(name))
        there = ~np.isnan(values)
        yield name, instants[there], values[there]


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
    """The table `counters` of these columns, without the samples that say nothing new."""
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
