"""The values that the paper prints, as data with the place of each."""

from __future__ import annotations

from functools import cache

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.report.study import printed
from orchestrator.report.study.printed import Printed


class Model(Printed):
    """A model and its size."""

    model: str
    mb: float


class Volume(Printed):
    """One end of the range of total volumes."""

    what: str
    gb: float


class Saving(Printed):
    """The share of the volume that pair averaging saves."""

    saves: float


class Ring(Printed):
    """An edge of the ring over 20 epochs, mean over models, and what goes the other way."""

    edge_gb: float
    reverse_below_gb: float


class Flows(Printed):
    """A number of flows."""

    framework: str
    flows: int


class Throughput(Printed):
    """A mean rate with its 95 % interval."""

    framework: str
    gbps: float
    interval: tuple[float, float]

    @property
    def estimate(self) -> Estimate:
        return Estimate(self.gbps, *self.interval)


class Total(Throughput):
    """The mean rate of all links together."""

    model: str


class Flow(Throughput):
    """The mean rate of one flow, with its highest rate."""

    peak_gbps: float


class Loss(Printed):
    """The slow-down of training with a share of packets lost."""

    share: float
    ratio: float


class Accuracy(Printed):
    """The levels of accuracy that Fig 8 marks, and the share of the data that pair averaging saves on its way there."""

    levels: tuple[float, ...]
    pair_averaging_saves: float


class ToAccuracy(Printed):
    """The data that training a model sends until it is right on 80 % of the training set."""

    model: str
    gb: float


class Regression(Printed):
    """Equation 1: MB a step for a MB of the model."""

    r2: float
    slope: float
    correlation: float


class Zerwas(printed.Published):
    """The paper."""

    link_gbps: float
    hosts: int
    epochs: int
    images: int
    models: tuple[Model, ...]
    volumes: tuple[Volume, ...]
    pair_averaging: Saving
    ring: Ring
    flows: tuple[Flows, ...]
    big_flows: tuple[Flows, ...]
    total_throughput: tuple[Total, ...]
    flow_throughput: tuple[Flow, ...]
    losses: tuple[Loss, ...]
    accuracy: Accuracy
    to_accuracy: tuple[ToAccuracy, ...]
    regression: Regression

    def steps(self, batch: int) -> int:
        """Return the steps of the whole training, each of `batch` images a worker; an epoch's rest is left out."""
        return self.epochs * (self.images // (batch * self.hosts))


@cache
def zerwas() -> Zerwas:
    """Return the paper's printed values."""
    return printed.read(__file__, Zerwas)
