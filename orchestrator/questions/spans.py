"""What ranks did in an iteration, from when to when, and the order in which they moved what."""

from __future__ import annotations

from typing import Any

from orchestrator.analysis.compare.points import MeasuredPoint, PointWindow
from orchestrator.questions.iterations import chosen
from orchestrator.questions.registry import source
from orchestrator.questions.rows import REPETITION, RUN, Measured, Row, Rows
from orchestrator.store.tabular import tables


@source
def spans(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
    iterations: int = 2,
) -> Rows:
    """Return what ranks recorded in so many iterations in the middle of each run's first window, a row a span.

    A row has `rank`, `iteration`, `lane` (compute or communication), `span` (forward, send, receive, ...), `what`,
    `peer`, `mb` (10^6 bytes, at full size), `begin_ms` and `end_ms` from the first of them, and `place`: of a
    communication its number among those of its kind that the rank began in this iteration, from 0. `columns`,
    `defaults` and `where` as for `iterations`; beside them stand `workload`, `model`, `ranks` (a number)
    and `scale`.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        first = {window.entry.run: window for window in reversed(point.windows)}
        ordered = dict.fromkeys(window.entry.run for window in point.windows)
        for repetition, run in enumerate(ordered, 1):
            also = {**keys, RUN: run, REPETITION: repetition}
            rows += ({**also, **row} for row in _spans(point, first[run], iterations))
    return rows


def _spans(point: MeasuredPoint, window: PointWindow, count: int) -> Rows:
    import pyarrow.compute as pc

    counted = window.record.iterations[point.job.name]
    begin = (counted.first + counted.last + 1) // 2
    inside = (pc.field("iteration") >= begin) & (pc.field("iteration") < begin + count)
    found = tables.read(window.entry.path / "tables", "spans", where=inside & (pc.field("job") == point.job.name))
    found = found.sort_by([("rank", "ascending"), ("iteration", "ascending"), ("sequence", "ascending")])
    rows = found.to_pylist()
    origin = min((row["start_ns"] for row in rows), default=0)
    places: dict[tuple[Any, ...], int] = {}
    return [_row(row, origin, places, point.scale) for row in rows]


def _row(row: Row, origin_ns: int, places: dict[tuple[Any, ...], int], scale: int) -> Row:
    kind = (row["rank"], row["iteration"], row["span"])
    place = places[kind] = places.get(kind, -1) + 1
    size = row["bytes"]
    return {
        **{name: row[name] for name in ("rank", "iteration", "lane", "span", "what", "peer")},
        "mb": None if size is None else size * scale / 1e6,
        "begin_ms": (row["start_ns"] - origin_ns) / 1e6,
        "end_ms": (row["end_ns"] - origin_ns) / 1e6,
        "place": place,
    }
