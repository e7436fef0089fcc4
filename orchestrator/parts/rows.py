"""Rows of the tables of a run: what readers of output give, without a library for tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.parts.schema import captured, cross_traffic, hosts, training
from orchestrator.parts.schema.column import ColumnType, Table

Row = Mapping[str, Any]  # value by column
Columns = Mapping[str, Sequence[Any] | Any]  # column name -> values of equal length (lists or arrays)

BIN_NS = 10_000_000  # width of the bins of `packets`, unless a reader asks for another

# Instants are `*_ns`: nanoseconds since the epoch in the controller's time base (the node's clock plus its measured
# offset). Rates and sizes are as they were on the wire, not multiplied back by the scale. The store adds the columns
# `run`, and for the output of a launch `node` and `launch`, in front.
DESCRIBED: Mapping[str, Table] = {**training.TABLES, **cross_traffic.TABLES, **captured.TABLES, **hosts.TABLES}
TABLES: Mapping[str, Mapping[str, ColumnType]] = {
    name: {column: one.type for column, one in table.columns.items()} for name, table in DESCRIBED.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutput:
    """What one launch wrote: the folder of its files, and which launch it was; `notes` are what its reader tells."""

    folder: Path
    node: str
    launch: str
    job: str | None
    rank: int | None
    window: str | None  # of a traffic launch
    source: str | None  # of a traffic launch
    offset_ns: int  # controller's clock minus the node's: add it to what the node stamped
    notes: list[str] = field(default_factory=list)
