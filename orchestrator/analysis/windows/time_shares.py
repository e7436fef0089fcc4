"""Split each rank's iteration time into terms, from what ranks recorded (Li, equation 1, measured)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.analysis.windows.variation import Tables
from orchestrator.parts.terms import Terms

# A message moves from when both ends are there: gloo's sender and receiver meet before any byte travels. What a
# receive took before that is waiting for the sender's stage, and belongs to the bubble (Li, section 4.1). In the same
# way the embedding table's gradients move once the last of the ranks that hold it has come.
_PIECES = """
with own as (
    select rank, iteration, lane, span, what, peer, start_ns, end_ns from spans where job = $job and window_name <> ''
), pieces as (
    select rank, iteration, 'compute' as term, end_ns - start_ns as ns from own where lane = 'compute'
    union all
    select rank, iteration, split_part(what, ',', 1), end_ns - start_ns from own
    where span = 'all-reduce' and (what like 'tensor%' or what = 'data')
    union all
    select r.rank, r.iteration, 'pipeline', greatest(0, r.end_ns - greatest(r.start_ns, coalesce(s.start_ns, 0)))
    from own r left join own s
    on s.span = 'send' and s.rank = r.peer and s.peer = r.rank and s.iteration = r.iteration and s.what = r.what
    where r.span = 'receive'
    union all
    select o.rank, iteration, 'embedding', end_ns - max(start_ns) over (partition by iteration, pair)
    from own o join pairs p on p.rank = o.rank where what = 'embedding'
), sums as (select rank, iteration, term, sum(ns) / 1e9 as seconds from pieces group by all)
select rank, term, median(seconds) from sums group by all
"""
_STAGED = "select rank, median(seconds), 0.0, 0.0 from iterations where job = $job and window_name <> '' group by rank"
_REPLICATED = """
select rank, median(seconds), median(forward_s + backward_s), median(wait_s)
from iterations where job = $job and window_name <> '' group by rank
"""
_HIDDEN = "select rank, median(overlap_s) from hidden where job = $job and window_name <> '' group by rank"


def of_stages(tables: Tables, job: str, *, ends: Sequence[Sequence[int]]) -> dict[int, Terms]:
    """Return the terms of each rank of a job of `ptd`, medians over iterations.

    `tables` has `iterations` and `spans` (pyarrow). `ends` are the ranks of first and last stage that add up the
    embedding table's gradients. What is left of an iteration is the bubble, with what passes between its last
    all-reduce and the next iteration.
    """
    import pyarrow as pa

    kind = pa.schema([("rank", pa.int64()), ("pair", pa.int64())])
    rows = [{"rank": rank, "pair": number} for number, members in enumerate(ends) for rank in members]
    pairs = pa.Table.from_pylist(rows, schema=kind)
    found = {}
    pieces: dict[int, dict[str, float]] = {}
    for rank, term, seconds in _asked({"spans": tables["spans"], "pairs": pairs}, _PIECES, job):
        pieces.setdefault(rank, {})[f"{term}_s"] = seconds
    for rank, seconds, _, _ in _asked({"iterations": tables["iterations"]}, _STAGED, job):
        spent = Terms(**pieces.get(rank, {}))
        parts = {f"{name}_s": value for name, value in spent.parts().items()}
        found[rank] = Terms(**{**parts, "bubble_s": max(0.0, seconds - spent.iteration_s)})
    return found


def of_replicas(tables: Tables, job: str) -> dict[int, Terms]:
    """Return the terms of each rank of a job of `ddp`, likewise; `tables` has `iterations` and `overlaps`."""
    hidden = dict(_asked({"hidden": tables["overlaps"]}, _HIDDEN, job))
    return {
        rank: Terms(
            compute_s=compute_s,
            data_s=wait_s,
            hidden_s=hidden.get(rank, 0.0),
            other_s=max(0.0, seconds - compute_s - wait_s),
        )
        for rank, seconds, compute_s, wait_s in _asked({"iterations": tables["iterations"]}, _REPLICATED, job)
    }


def _asked(tables: Tables, sql: str, job: str) -> list[Any]:
    """Return the rows that an SQL query gives over pyarrow tables."""
    import duckdb

    with duckdb.connect(":memory:") as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.execute(sql, {"job": job}).fetchall()
