"""Chakra execution traces that are made for a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.report.traces import chakra as exported
from workloads.readers.chakra_traces import COLLECTIVE


def node(number: int, kind: int, *after: int, took_us: int = 0, start_us: int = 0, **told: int | str | bool) -> bytes:
    """A node as the schema has it."""
    attributes = [
        exported.text(1, name)
        + (exported.text(29, value) if isinstance(value, str) else exported.integer(27 if value is True else 9, value))
        for name, value in told.items()
    ]
    return b"".join(
        (
            exported.integer(1, number),
            exported.text(2, f"n{number}"),
            exported.integer(3, kind),
            exported.integers(5, after),
            exported.integer(6, start_us),
            exported.integer(7, took_us),
            *(exported.data(10, one) for one in attributes),
        )
    )


def written(folder: Path, *ranks: list[bytes]) -> Path:
    """A folder with the trace of each rank."""
    folder.mkdir(exist_ok=True)
    for rank, nodes in enumerate(ranks):
        messages = [exported.text(1, "0.0.4"), *nodes]
        content = b"".join(exported.varint(len(message)) + message for message in messages)
        (folder / f"trace.{rank}.et").write_bytes(content)
    return folder


def all_reduce(number: int, *after: int, size: int = 4_000_000, **told: Any) -> bytes:
    return node(number, COLLECTIVE, *after, comm_type=0, comm_size=size, **told)
