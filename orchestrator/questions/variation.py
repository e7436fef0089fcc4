"""How the iteration time varies over iterations and ranks, and how well it hides communication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.analysis.windows.variation import ALL_RANKS
from orchestrator.questions.iterations import chosen
from orchestrator.questions.registry import source
from orchestrator.questions.rows import Measured, Rows, by_run
from orchestrator.store.tabular import tables

_COLUMNS = ("mean_s", "cv", "p50_s", "p95_s", "p99_s", "max_s", "straggler_share", "efficiency", "overlapped", "orders")


@source
def variation(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
    ranks: bool = False,
) -> Rows:
    """Return how iterations of the first training vary, by the table `variation`: all ranks', or each one's.

    A row has `seconds` (mean iteration), `cv` (standard deviation over mean), `p50_s`, `p95_s`, `p99_s`, `max_s`,
    `straggler_share` (of an iteration, by which the slowest rank computes longer than the one that waits longest for
    it), `efficiency` (TicTac's: 1 where the shorter of computing and communicating is hidden), `overlapped` (share of
    communication during which a rank computed) and `orders` (different orders in which transfers began); with `ranks`
    also `rank`. Shares are of 1; NaN where nothing was recorded that tells. `columns`, `defaults` and `where` as for
    `iterations`; beside them stand `workload`, `model`, `ranks` (their number) and `scale`.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        of_rank: dict[int, list[tuple[str, dict[str, float]]]] = {}
        for run, rank, row in _of(point):
            of_rank.setdefault(rank, []).append((run, row))
        for rank, values in of_rank.items():
            if ranks == (rank != ALL_RANKS):
                rows += by_run(point, values, {**keys, "rank": rank} if ranks else keys)
    return rows


def _of(point: MeasuredPoint) -> Iterator[tuple[str, int, dict[str, float]]]:
    for window in point.windows:
        for row in tables.read(window.entry.path / "tables", "variation").to_pylist():
            if (row["job"], row["window_name"]) == (point.job.name, window.record.name):
                values = {name: float(row[name]) for name in _COLUMNS}
                yield window.entry.run, row["rank"], {"seconds": values.pop("mean_s"), **values}
