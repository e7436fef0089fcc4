"""Messages of ranks as they recorded them: their sizes, and the bytes between ranks by kind of traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.questions.iterations import chosen
from orchestrator.questions.registry import source
from orchestrator.questions.rows import REPETITION, RUN, Measured, Row, Rows, meets
from orchestrator.questions.trainings import Training, trainings
from orchestrator.report.runs import Run
from workloads import ptd
from workloads.common import rank_traffic
from workloads.common.rank_traffic import Pairs
from workloads.models.formulation import ring_factor


@source
def messages(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
    rank: int = 0,
) -> Rows:
    """Return what a rank sent and all-reduced in the first iteration that counts: a row a message, point and run.

    `number` is its place in the iteration, from 1 on, `bytes` its size at full size, `kind` tensor, pipeline, data or
    embedding (of other workloads than `ddp` and `ptd` the operation), `operation` such as all-reduce, send or receive.
    `columns`, `defaults` and `where` as of `iterations`. Runs whose ranks recorded no sizes are left out.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        for repetition, run in enumerate(runs_of(point), 1):
            for number, span in enumerate(recorded(run, rank, point.job.name), 1):
                found = {"number": number, "kind": kind_of(span), "operation": span["span"], "bytes": span["bytes"]}
                rows.append({**keys, RUN: run.id, REPETITION: repetition, **found})
    return rows


def runs_of(point: MeasuredPoint) -> list[Run]:
    """Return the runs of a point, by time."""
    return [Run(path) for path in dict.fromkeys(window.entry.path for window in point.windows)]


def recorded(run: Run, rank: int, job: str) -> list[Row]:
    """Return a rank's communication in the first counted iteration: spans of known `bytes`, at full size."""
    rows = [
        row
        for row in run.rows("spans")
        if row["job"] == job and row["rank"] == rank and row["window_name"] and row["lane"] == "communication"
    ]
    known = [row for row in rows if row["bytes"] is not None]
    first = min((row["iteration"] for row in known), default=0)
    return [{**row, "bytes": float(row["bytes"] * run.scale)} for row in known if row["iteration"] == first]


def kind_of(span: Mapping[str, Any]) -> str:
    """Return the kind of traffic that a recorded message belongs to."""
    if span["span"] in ("send", "receive"):
        return "pipeline"
    first = str(span["what"]).split(",")[0].split(" ")[0]
    return "data" if first == "bucket" else first or str(span["span"])


@source
def between_ranks(measured: Measured, *, where: dict[str, Any] | None = None) -> Rows:
    """Return bytes at full size from rank to rank in an iteration of trainings of `ptd`: a row a kind, pair and run.

    Counts and sizes are those of the ranks' own messages: sends as they are, all-reduces around the ring of their group
    (Li, equations 2 to 4). `kind` is tensor, pipeline, data or embedding, `from_rank` and `to_rank` the pair,
    `from_host` and `to_host` where these are. `theory_bytes` is what the split and the mapping give for the same pair.
    """
    rows: Rows = []
    for one in trainings(measured):
        if one.point.job.workload != ptd.NAME or not meets(one.keys, where or {}):
            continue
        scale = one.point.scale
        theory = ptd.traffic(one.subject.config, scale)
        nodes = one.subject.network.node_of
        for repetition, run in enumerate(runs_of(one.point), 1):
            sent = _sent(one, run)
            for kind, pairs in theory.items():
                for src, dst in sorted({*pairs, *sent.get(kind, {})}):
                    rows.append(
                        {
                            **one.keys,
                            RUN: run.id,
                            REPETITION: repetition,
                            "kind": kind,
                            "from_rank": src,
                            "to_rank": dst,
                            "from_host": nodes[src],
                            "to_host": nodes[dst],
                            "bytes": sent.get(kind, {}).get((src, dst), 0.0),
                            "theory_bytes": float(pairs.get((src, dst), 0.0) * scale),
                        }
                    )
    return rows


def _sent(one: Training, run: Run) -> dict[str, Pairs]:
    """Return what ranks recorded that they sent, by kind."""
    parts: dict[str, list[Pairs]] = {}
    for rank in range(len(one.subject.job.ranks)):
        for row in recorded(run, rank, one.point.job.name):
            parts.setdefault(kind_of(row), []).extend(_ways(one, rank, row))
    return {kind: rank_traffic.summed(of) for kind, of in parts.items()}


def _ways(one: Training, rank: int, row: Row) -> Iterator[Pairs]:
    if row["span"] == "send":
        yield {(rank, row["peer"]): row["bytes"]}
    elif row["span"] == "all-reduce":
        members = sorted(one.members(kind_of(row), rank))
        if len(members) > 1:
            yield {(rank, members[members.index(rank) - 1]): ring_factor(len(members)) * row["bytes"]}
