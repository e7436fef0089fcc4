"""Trainings whose iterations can be predicted, with their predictions from the benchmarks among the same runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.core.errors import ConfigError
from orchestrator.experiment import loading
from orchestrator.parts.theory import Pipelined
from orchestrator.predict import inputs, predicting
from orchestrator.predict.predicting import Prediction, Subject
from orchestrator.questions.rows import Measured, Row
from workloads.common import torch_ranks

SPLIT = ("pipeline", "tensor", "data", "mapping", "microbatches", "batch")  # settings of `ptd` that tell points apart


@dataclass(frozen=True, kw_only=True)
class Training:
    """A point of `ddp` or `ptd`, and what it would be by prediction."""

    point: MeasuredPoint
    subject: Subject
    prediction: Prediction

    @cached_property
    def keys(self) -> Row:
        """The columns that tell it apart: settings of `ptd` are missing for `ddp`."""
        config, split = self.subject.config, isinstance(self.subject.work, Pipelined)
        found: Row = {
            "workload": self.subject.workload,
            "model": self.point.job.model,
            "ranks": len(self.subject.job.ranks),
            "machines": len(set(self.subject.network.node_of)),
            "scale": self.point.scale,
            "dilation": self.point.manifest.dilation,
            "compute": self.point.job.compute,
            "backend": torch_ranks.backend_of(config, self.subject.job.ranks),
            "transport": config.transport,
            **{name: getattr(config, name) if split else None for name in SPLIT},
        }
        mapping = found["mapping"]
        found["mapping"] = mapping if mapping is None or isinstance(mapping, str) else str(mapping)
        told = f"{found['model']}, {found['ranks']} ranks"
        if split:
            name = (
                found["model"] if isinstance(config.model, str) else f"gpt {config.model.layers}x{config.model.hidden}"
            )
            told = f"{name} ({config.pipeline}, {config.tensor}, {config.data}), {found['mapping']}"
        return {**found, "training": told}

    def members(self, kind: str, rank: int) -> Sequence[int]:
        """Return the ranks with which a rank all-reduces messages of a kind; all ranks of replicas."""
        work = self.subject.work
        if not isinstance(work, Pipelined):
            return range(work.ranks)
        groups = {"tensor": work.tensor_groups, "data": work.data_groups, "embedding": work.ends}.get(kind, ())
        return next((group for group in groups if rank in group), (rank,))


def trainings(measured: Measured) -> tuple[Training, ...]:
    """Return the trainings that can be predicted, in the order of their settings; they are predicted once."""
    return measured.once("trainings", lambda: tuple(_found(measured)))


def _found(measured: Measured) -> Iterator[Training]:
    tests = [entry for entry in measured.entries if inputs.is_benchmark(entry)]
    for point in measured.points:
        entry = point.windows[0].entry
        try:
            subject = predicting.subject(loading.sealed(entry.path), file=str(entry.path))
        except ConfigError:
            continue
        alike = [one for one in tests if one.manifest.dilation == entry.manifest.dilation]
        prediction = predicting.predict(subject, inputs.fitted_to(alike, subject.topology))
        yield Training(point=point, subject=subject, prediction=prediction)
