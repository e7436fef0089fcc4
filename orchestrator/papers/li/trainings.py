"""Points of the study: predictions, terms by rank, and messages of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from orchestrator.analysis.compare import points
from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.core.errors import ConfigError
from orchestrator.experiment import loading
from orchestrator.parts.rows import Row
from orchestrator.parts.terms import Terms
from orchestrator.parts.theory import Pipelined, Replicated
from orchestrator.predict import inputs, measured_runs, predicting
from orchestrator.predict.network_costs import Costs
from orchestrator.predict.predicting import Prediction, Subject
from orchestrator.report.runs import Run
from orchestrator.report.study.captured_windows import CapturedWindow, captured_windows
from orchestrator.store.rundir import Entry


@dataclass(frozen=True, kw_only=True)
class Training:
    """A point of `ddp` or `ptd` with its runs."""

    point: MeasuredPoint
    subject: Subject
    prediction: Prediction
    runs: tuple[Run, ...]

    @property
    def run(self) -> Run:
        """Its first run, of which figures are drawn."""
        return self.runs[0]

    @property
    def config(self) -> Any:
        """The settings of the workload."""
        return self.subject.config

    @property
    def workload(self) -> str:
        return self.subject.workload

    @property
    def model(self) -> str:
        return str(self.config.model)

    @property
    def iteration_s(self) -> float:
        return self.point.mean_s.value

    @property
    def label(self) -> str:
        """A label that tells it apart from the others."""
        if isinstance(self.subject.work, Replicated):
            return f"{self.model}, {self.subject.work.ranks} ranks"
        config = self.config
        return f"{config.model} ({config.pipeline}, {config.tensor}, {config.data}), {config.mapping}"

    @cached_property
    def terms_of_runs(self) -> tuple[dict[int, Terms], ...]:
        """Measured terms by rank, of each run whose ranks recorded some."""
        found = (measured_runs.recorded(run.path, loading.sealed(run.path)) for run in self.runs)
        return tuple(terms for terms in found if terms)

    @property
    def terms(self) -> dict[int, Terms]:
        """Measured terms by rank of the first run that has some; empty where ranks recorded none."""
        return self.terms_of_runs[0] if self.terms_of_runs else {}

    def over(self, of: Callable[[Terms], float]) -> list[float]:
        """Return a quantity of rank 0's measured terms by run."""
        return [of(terms[0]) for terms in self.terms_of_runs]

    @cached_property
    def captured(self) -> tuple[CapturedWindow, ...]:
        """Its captured windows."""
        return tuple(captured_windows(self.point))

    @property
    def split(self) -> Pipelined:
        """The work of a run of `ptd`."""
        return cast("Pipelined", self.subject.work)

    def messages(self, rank: int) -> list[Row]:
        """Return what a rank sent and all-reduced in the first counted iteration, spans at full size, in order."""
        return messages(self.run, rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The runs of the study, sorted by kind."""

    replicated: tuple[Training, ...]
    split: tuple[Training, ...]
    experts: tuple[Run, ...]
    benchmarks: tuple[Run, ...]
    costs: Costs | None


def messages(run: Run, rank: int) -> list[Row]:
    """Return a rank's communication in the first counted iteration: spans of known `bytes`, at full size."""
    rows = [
        row
        for row in run.rows("spans")
        if row["rank"] == rank and row["window_name"] and row["lane"] == "communication" and row["bytes"] is not None
    ]
    if not rows:
        return []
    first = min(row["iteration"] for row in rows)
    return [{**row, "bytes": row["bytes"] * run.scale} for row in rows if row["iteration"] == first]


def found(entries: Sequence[Entry]) -> Found:
    """Sort the runs, and predict those that can be predicted from the benchmarks among them."""
    tests = [entry for entry in entries if inputs.is_benchmark(entry)]
    trainings = list(_trainings(entries, tests))
    experts = [entry for entry in entries if entry.manifest.jobs and entry.manifest.jobs[0].workload == "moe"]
    return Found(
        replicated=tuple(one for one in trainings if isinstance(one.subject.work, Replicated)),
        split=tuple(one for one in trainings if isinstance(one.subject.work, Pipelined)),
        experts=tuple(Run(entry.path) for entry in experts if any(window.valid for window in entry.manifest.windows)),
        benchmarks=tuple(Run(entry.path) for entry in tests),
        costs=inputs.fitted_to(tests, trainings[0].subject.topology) if trainings else None,
    )


def _trainings(entries: Sequence[Entry], tests: Sequence[Entry]) -> Iterator[Training]:
    for point in points.pooled(entries):
        entry = point.windows[0].entry
        try:
            experiment = loading.sealed(entry.path)
            subject = predicting.subject(experiment, file=str(entry.path))
        except ConfigError:
            continue
        costs = inputs.fitted_to(tests, subject.topology)
        paths = dict.fromkeys(window.entry.path for window in point.windows)
        yield Training(
            point=point,
            subject=subject,
            prediction=predicting.predict(subject, costs),
            runs=tuple(Run(path) for path in paths),
        )
