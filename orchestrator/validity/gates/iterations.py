"""Gates `iterations` and `overlap`: enough iterations were measured, and every rank logged each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "iterations"
ORDER = 10
FEWEST = Limit(
    key="min_iterations",
    kind=Annotated[int, Field(ge=1)],
    default=20,
    help="Fewest iterations of a window (or what `measure` asks for, where that is fewer).",
)
GATES = (
    GateSpec(
        name="iterations",
        passes="there are enough measured iterations",
        limit=FEWEST,
        remedy="A longer `at_most`, or more `iterations`. Look at the ranks' output under `hosts/` of the run's "
        "folder.",
    ),
    GateSpec(
        name="overlap",
        passes="every rank logged every iteration of the window",
        limit="all ranks, all iterations",
        remedy="A rank ended or stalled. Look at its output under `hosts/` of the run's folder.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give both verdicts for each job."""
    fewest = int(FEWEST.of(window.manifest.validity))
    fewest = min(fewest, window.record.wanted_iterations or fewest)
    for job in window.jobs:
        enough = job.iterations >= fewest
        text = f"job {job.name}: {job.iterations} iterations, {'' if enough else 'fewer than the '}{fewest} needed"
        yield verdict("iterations", enough, text, measured=job.iterations, limit=fewest)
        together = job.ranks_seen == job.ranks and job.incomplete == 0 and job.iterations > 0
        text = f"job {job.name}: every iteration was logged by {job.ranks} of {job.ranks} ranks that log"
        if job.ranks_seen < job.ranks:
            text = f"job {job.name}: only {job.ranks_seen} of {job.ranks} ranks logged iterations"
        elif not together:
            text = f"job {job.name}: {job.incomplete} iterations were not logged by all {job.ranks} ranks"
        yield verdict("overlap", together, text, measured=job.incomplete, limit=0)
