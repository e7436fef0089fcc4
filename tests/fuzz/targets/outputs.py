"""What launches write on hosts (iteration logs, traces, counters, iperf3's words): rows of tables come out."""

from __future__ import annotations

import functools
import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from orchestrator.analysis import launch_outputs
from orchestrator.core.errors import OrchError
from orchestrator.parts import registry
from orchestrator.parts.rows import LaunchOutput
from orchestrator.store.tabular.tables import TableWriter
from tests.fuzz import mutate
from tests.fuzz.target import Target

DATA = Path(__file__).parents[2] / "data"


# Of what others print (tests/data/logs): the part that reads it, and under which name; None is that of the sample.
_LOGS = {
    "nccl": ("workload.ddp", "nccl.1.log"),
    "kineto": ("workload.command", None),
    "chakra": ("workload.command", None),
    "horovod": ("workload.horovod", "timeline.json"),
    "iperf3": ("traffic.iperf", "stdout"),
}


@functools.cache
def _outputs() -> tuple[tuple[str, Mapping[str, bytes]], ...]:
    """Label of each part that reads, and the files that its launches write."""
    found = []
    for kind in registry.FOLDERS:
        for name, part in registry.parts_of(kind).items():
            if hasattr(part, "read"):
                found.append((f"{kind}.{name}", _samples(DATA / name)))
    iterations = (DATA / "horovod/iterations.jsonl").read_bytes()
    for reader, (label, home) in _LOGS.items():
        for path in sorted((DATA / "logs" / reader).iterdir()):
            if not path.name.endswith(".expected.json"):
                sample = {home or path.name: path.read_bytes()[:20_000]}
                found.append(
                    (label, sample if label.startswith("traffic.") else {**sample, "iterations.jsonl": iterations})
                )
    return tuple(found)


def _samples(folder: Path) -> dict[str, bytes]:
    example = yaml.safe_load((folder / "example.yaml").read_text())
    there = [path.name for path in sorted(folder.iterdir()) if path.is_file() and path.name != "example.yaml"]
    names = example.get("output") or {name: name for name in there}
    return {name: (folder / sample).read_bytes()[:20_000] for name, sample in names.items()}


def _made(source: random.Random) -> bytes:
    """Which part and which of its files, in two bytes, and what that holds."""
    place = source.randrange(len(_outputs()))
    files = list(_outputs()[place][1].values())
    at = source.randrange(len(files))
    data = files[at]
    if b"\0" not in data and source.random() < 0.5:
        lines = data.splitlines(keepends=True)
        line = source.randrange(len(lines)) if lines else 0
        lines[line : line + 1] = [_line(source, lines[line]) if lines else b""]
        data = b"".join(lines)
    else:
        data = mutate.havoc(source, (data,))
    return bytes((place, at)) + data


def _line(source: random.Random, line: bytes) -> bytes:
    try:
        return mutate.text(source, mutate.value(source, json.loads(line))) + b"\n"
    except ValueError:
        return mutate.havoc(source, (line,))


def _read(data: bytes, folder: Path) -> None:
    label, files = _outputs()[(data[0] if data else 0) % len(_outputs())]
    shutil.rmtree(folder / "output", ignore_errors=True)
    (folder / "output").mkdir()
    for at, (name, content) in enumerate(files.items()):
        hit = at == (data[1] if len(data) > 1 else 0) % len(files)
        (folder / "output" / name).write_bytes(data[2:] if hit else content)
    output = LaunchOutput(
        folder=folder / "output",
        node="h1",
        launch="x",
        job="training",
        rank=0,
        window="w1",
        source="s0",
        offset_ns=5_000,
    )
    try:
        with TableWriter(folder / "tables", run="r") as writer:
            for table, columns in launch_outputs.rows_of(label, output).items():
                writer.add(table, columns, node="h1", launch="x")
    except OrchError:
        if label.startswith("workload."):  # a damaged line of a log is left out, and the others count
            raise


TARGETS = (Target(name="outputs", make=_made, read=_read, ours=(), share=100),)
