"""The measured points by framework and model, as the paper calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from orchestrator.analysis.compare import points
from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.core.units import quantity
from orchestrator.papers.zerwas.sights import Sight, sight
from orchestrator.report.study import captured_windows
from orchestrator.report.study.captured_windows import CapturedWindow
from orchestrator.store.rundir import Entry
from workloads.models import catalog

CALLED: Mapping[str, str] = MappingProxyType({
    "tensorflow": "TensorFlow, ring over gRPC", "tensorflow-nccl": "TensorFlow, NCCL",
    "tensorflow-servers": "TensorFlow, parameter server", "horovod-mpi": "Horovod on MPI",
    "horovod-mpi-nccl": "Horovod on MPI and NCCL", "horovod-gloo": "Horovod on Gloo",
    "horovod-gloo-nccl": "Horovod on Gloo and NCCL", "binary-tree-star": "KungFu, binary tree star",
    "tree": "KungFu, tree", "star": "KungFu, star", "clique": "KungFu, clique",
    "pair-averaging": "KungFu, pair averaging",
})  # fmt: skip
RINGS = ("tensorflow", "tensorflow-nccl", "horovod-mpi", "horovod-mpi-nccl", "horovod-gloo", "horovod-gloo-nccl")
PAIRS, SERVERS = "pair-averaging", "tensorflow-servers"
BATCH, CLASSES = 64, 10  # the paper's, unless it says otherwise
SIZE_BYTES = 4  # of a parameter


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A point with its framework and model; `losses` is the share of packets lost, None where nothing was set."""

    point: MeasuredPoint
    framework: str
    model: str
    batch: int
    classes: int
    losses: float | None
    printed_model: bool  # whether the paper trains it

    @property
    def called(self) -> str:
        return f"{self.model}, {CALLED[self.framework]}"

    @cached_property
    def sights(self) -> tuple[Sight, ...]:
        """The sights of its captured windows that carried something."""
        return tuple(sight(one) for one in captured_windows.captured_windows(self.point) if one.volume.step_payload > 0)

    @property
    def first(self) -> CapturedWindow:
        """Its first captured window, of which there must be one, with all of its traffic: read anew each time."""
        return next(captured_windows.captured_windows(self.point))

    def over(self, of: Callable[[Sight], float]) -> list[float]:
        """Return a value a run, in the order of runs: the mean over its captured windows."""
        by_run: dict[str, list[float]] = {}
        for one in self.sights:
            by_run.setdefault(one.run, []).append(of(one))
        return [float(np.mean(values)) for values in by_run.values()]

    @property
    def step_payloads(self) -> list[float]:
        """Payload of all hosts in a step (bytes) of each captured run."""
        return self.over(lambda window: window.volume.step_payload)

    @property
    def step_payload(self) -> float:
        """Payload of all hosts in a step (bytes), mean over captured windows, of which there must be one."""
        return float(np.mean([one.volume.step_payload for one in self.sights]))

    @property
    def theory(self) -> float:
        """The payload of all hosts in a step by theory (bytes at full size); NaN without one."""
        theory = self.point.job.theory
        if theory is None:
            return float("nan")
        sent = sum(size for _, _, size in theory.pairs) or theory.bytes_per_iteration * len(self.point.job.ranks)
        return sent * self.point.scale

    @property
    def size(self) -> float:
        """Bytes of the model for its classes."""
        return size_of(self.model, self.classes)


def size_of(model: str, classes: int) -> float:
    """Return the bytes of a model of the catalog with so many classes."""
    return float(SIZE_BYTES * catalog.with_classes(catalog.load(model), classes).parameters)


def measured(entries: Iterable[Entry], printed_models: Sequence[str]) -> tuple[Measured, ...]:
    """Return every point of these runs that trains by a framework of the paper, with emulated compute."""
    found = []
    for point in points.pooled(entries):
        name = framework_of(point)
        if name is None or point.value("workload.*.compute") == "real":
            continue
        model = str(point.value("workload.*.model"))
        found.append(
            Measured(
                point=point,
                framework=name,
                model=model,
                batch=int(point.value("workload.*.batch") or catalog.load(model).batch),
                classes=int(point.value("workload.*.classes") or catalog.CLASSES),
                losses=_losses(point),
                printed_model=model in printed_models,
            )
        )
    models, names = [*printed_models, *catalog.names()], list(CALLED)
    return tuple(sorted(found, key=lambda one: (models.index(one.model), names.index(one.framework))))


def framework_of(point: MeasuredPoint) -> str | None:
    """Return framework, backend and strategy, as the paper compares them; None for another workload."""
    for name, of in (("tensorflow", _tensorflow), ("horovod", _horovod), ("kungfu", _kungfu), ("p2p", _imitated)):
        if point.value(f"workload.{name}") is not None:
            return of(point)
    return None


def _tensorflow(point: MeasuredPoint) -> str:
    if point.value("workload.tensorflow.strategy") == "parameter-server":
        return SERVERS
    return "tensorflow-nccl" if point.value("workload.tensorflow.communication") == "nccl" else "tensorflow"


def _horovod(point: MeasuredPoint) -> str:
    by = f"horovod-{point.value('workload.horovod.controller')}"
    return f"{by}-nccl" if point.value("workload.horovod.operations") == "nccl" else by


def _kungfu(point: MeasuredPoint) -> str | None:
    return _known(str(point.value("workload.kungfu.strategy", "")).lower().replace("_", "-"))


def _imitated(point: MeasuredPoint) -> str | None:
    return _known(str(point.value("workload.p2p.strategy")))


def _known(name: str) -> str | None:
    return name if name in CALLED else None


def _losses(point: MeasuredPoint) -> float | None:
    loss = point.value("conditions.*.loss.share")
    if loss is None:
        return None
    share = quantity(loss)
    return None if share is None else share[1]


def plain(found: Sequence[Measured], *, classes: int = CLASSES) -> list[Measured]:
    """Return the captured points of the paper's grid: its models and its batch, without losses."""
    return [
        one
        for one in found
        if one.printed_model and one.batch == BATCH and one.classes == classes and one.losses is None and one.sights
    ]
