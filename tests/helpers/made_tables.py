"""Tables of a run made of rows that name only what matters."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from orchestrator.parts.rows import TABLES
from orchestrator.store.tabular.tables import schema


def table(name: str, rows: Sequence[dict[str, object]]) -> pa.Table:
    """A table with these rows; what a row leaves out is 0, empty or false, and its job is `a`."""
    defaults = {"int64": 0, "float64": 0.0, "string": "", "bool": False}
    filled = [{**{c: defaults[kind] for c, kind in TABLES[name].items()}, "job": "a", **row} for row in rows]
    return pa.Table.from_pylist(
        [{"run": "r", "node": "h", "launch": "l", **row} for row in filled], schema=schema(name)
    )
