"""Read what each rank computed and communicated from the tables of a sealed run, at full size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.core.errors import StoreError
from orchestrator.parts.rows import Row
from orchestrator.report.runs import Run

COMPUTE, COMMUNICATION = "compute", "communication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """A computation or communication. Instants in ns since the epoch; bytes multiplied back by the run's scale.

    A `size` that is not known is None.
    """

    lane: str  # COMPUTE or COMMUNICATION
    name: str  # such as forward, all-reduce, send
    what: str  # such as bucket 3
    peer: int  # rank; -1 where there are several
    size: int | None
    group: str = ""  # ranks of the process group, such as "0 2", where it has not all of the job
    iteration: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Iteration:
    """An iteration of a rank."""

    number: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class RankActivities:
    """The activities of a rank, in order of their beginning."""

    job: str
    rank: int
    ranks: int  # of the job
    iterations: list[Iteration]
    activities: list[Activity]


def of_run(run: Run) -> Iterator[RankActivities]:
    """Yield each rank of the run that logged iterations; StoreError where none did.

    A rank that recorded no spans is told by the forward and backward passes of its iteration log.
    """
    iterations, spans = run.table("iterations"), run.table("spans")
    keys = sorted({(row["job"], row["rank"]) for row in iterations.select(["job", "rank"]).to_pylist()})
    if not keys:
        raise StoreError(f"run {run.id}: no rank logged an iteration, so there is nothing to write")
    for job, rank in keys:
        logged = _of(iterations, job, rank)
        rows = [row for row in _of(spans, job, rank) if row["lane"] in (COMPUTE, COMMUNICATION)]
        found = [_recorded(row, run.scale) for row in rows] or [part for row in logged for part in _passes(row)]
        yield RankActivities(
            job,
            rank,
            ranks=sum(1 for other, _ in keys if other == job),
            iterations=[Iteration(row["iteration"], row["start_ns"], row["end_ns"]) for row in logged],
            activities=sorted(found, key=lambda one: (one.start_ns, one.end_ns)),
        )


def _of(table: Any, job: str, rank: int) -> list[Row]:
    import pyarrow.compute as pc

    mine = table.filter(pc.and_(pc.equal(table["job"], job), pc.equal(table["rank"], rank)))
    rows: list[Row] = mine.sort_by("start_ns").to_pylist()
    return rows


def _recorded(row: Row, scale: int) -> Activity:
    return Activity(
        lane=row["lane"],
        name=row["span"],
        what=row["what"],
        peer=row["peer"],
        size=None if row["bytes"] is None else row["bytes"] * scale,
        group=row.get("process_group") or "",
        iteration=row["iteration"],
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
    )


def _passes(row: Row) -> Iterator[Activity]:
    begin = row["start_ns"]
    for name, seconds in (("forward", row["forward_s"]), ("backward", row["backward_s"])):
        if seconds is None or not seconds > 0:  # not known is missing, or NaN
            continue
        end = begin + round(seconds * 1e9)
        yield Activity(
            lane=COMPUTE, name=name, what="", peer=-1, size=0, iteration=row["iteration"], start_ns=begin, end_ns=end
        )
        begin = end
