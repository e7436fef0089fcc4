"""Terms of an iteration as they were measured, beside their prediction from benchmarks among the same runs."""

from __future__ import annotations

from typing import Any

from orchestrator.experiment import loading
from orchestrator.parts.terms import NAMES, Terms
from orchestrator.predict import measured_runs
from orchestrator.questions.messages import kind_of, recorded, runs_of
from orchestrator.questions.registry import source
from orchestrator.questions.rows import REPETITION, RUN, Measured, Row, Rows, meets
from orchestrator.questions.trainings import Training, trainings
from orchestrator.report.runs import Run
from workloads.models.formulation import ring_factor

KINDS = ("tensor", "pipeline", "data", "embedding")
_MORE = ("hidden_s", "iteration_s", "exposed_s")


@source
def predicted(measured: Measured, *, where: dict[str, Any] | None = None, every_rank: bool = False) -> Rows:
    """Return the terms of an iteration of trainings of `ddp` and `ptd` in seconds: a row a point, run and rank.

    `compute_s`, `tensor_s`, `pipeline_s`, `data_s`, `embedding_s`, `bubble_s` and `other_s` make up `iteration_s`;
    `exposed_s` is the communication among them, `hidden_s` what goes on beside computing (Li, equation 1; medians over
    iterations). `predicted_...` are the same by prediction, with costs of messages fitted to the runs of `collective`
    among these of the same dilation; `costs` says whether they were measured or assumed. `seconds` is the run's mean
    iteration. `tensor_bytes` and so on are what left the rank in an iteration at full size by its own messages, and
    `link_bps` is the rate of its link. Rank 0 alone, as in the paper, unless `every_rank`. Settings of `ptd` tell
    points apart: `pipeline`, `tensor`, `data`, `mapping`, `microbatches`, `batch`; `training` names all.
    """
    rows: Rows = []
    for one in trainings(measured):
        if not meets(one.keys, where or {}):
            continue
        network, job = one.subject.network, one.point.job.name
        means = {window.entry.run: float(window.iterations(job).seconds.mean()) for window in one.point.windows}
        for repetition, run in enumerate(runs_of(one.point), 1):
            terms = measured_runs.recorded(run.path, loading.sealed(run.path))
            for rank in sorted(terms) if every_rank else [0] if 0 in terms else []:
                rows.append(
                    {
                        **one.keys,
                        RUN: run.id,
                        REPETITION: repetition,
                        "rank": rank,
                        "seconds": means[run.id],
                        **_values(terms[rank], ""),
                        **_values(one.prediction.ranks[rank], "predicted_"),
                        "costs": "assumed" if one.prediction.costs_assumed else "measured",
                        **_sent(one, run, rank),
                        "link_bps": network.out_bps[network.node_of[rank]] * 8 * one.point.scale,
                    }
                )
    return rows


def _values(terms: Terms, before: str) -> dict[str, float]:
    return {f"{before}{name}": float(getattr(terms, name)) for name in (*NAMES, *_MORE)}


def _sent(one: Training, run: Run, rank: int) -> Row:
    """Return the bytes that left a rank in an iteration by kind: sends, and all-reduces by their ring's factor."""
    found = dict.fromkeys(KINDS, 0.0)
    for row in recorded(run, rank, one.point.job.name):
        kind = kind_of(row)
        if row["span"] == "send":
            found[kind] += row["bytes"]
        elif row["span"] == "all-reduce" and kind in found:
            found[kind] += ring_factor(len(one.members(kind, rank))) * row["bytes"]
    return {f"{kind}_bytes": sent for kind, sent in found.items()}
