"""Execution traces of two ranks: a recording that both can follow comes out, or a mistake with its place."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from orchestrator.core.errors import ConfigError
from orchestrator.report.traces import chakra as exported
from tests.fuzz import mutate
from tests.fuzz.target import Target
from tests.helpers.made_traces import all_reduce, node, written
from workloads.common import recordings
from workloads.readers.chakra_traces import COMPUTATION, GROUPS, METADATA, RECEIVE, SEND

NAMED = b"".join(
    (
        exported.integer(1, 9),
        exported.text(2, GROUPS),
        exported.integer(3, METADATA),
        exported.data(8, exported.text(1, """['[{"pg_name": "1", "ranks": [0, 1]}]']""")),
    )
)
RANKS = [
    [NAMED, node(0, COMPUTATION, took_us=9, iteration=0), all_reduce(1, 0, pg_name="1", iteration=0), message]
    for message in (
        node(2, SEND, 1, comm_size=8, comm_dst=1, iteration=1, start_us=20),
        node(2, RECEIVE, 1, comm_size=8, comm_src=0, iteration=1, start_us=25),
    )
]


def _seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return [path.read_bytes() for path in sorted(written(Path(folder), *RANKS).iterdir())]


SEEDS = _seeds()


def _made(source: random.Random) -> bytes:
    return mutate.havoc(source, SEEDS)


def _read(data: bytes, folder: Path) -> None:
    """Read it as the trace of the first rank, beside that of a second one."""
    for rank, content in enumerate((data, SEEDS[1])):
        (folder / f"trace.{rank}.et").write_bytes(content)
    found = recordings.recorded(folder, None, ranks=None, tags=True)
    for parts in found.iterations:
        assert len(parts) == 2
        done = sum(len(met) for met in recordings.meetings(found, parts))
        assert done == sum(map(len, parts)), "each rank can do all that it has to"


TARGETS = (Target(name="traces", make=_made, read=_read, ours=(ConfigError,), share=60),)
