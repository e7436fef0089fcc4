"""The values that the thesis prints, as data with the place of each."""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

from orchestrator.report.study import printed

Traffic = Literal["none", "iperf", "websearch", "websearch-burst"]
Transport = Literal["rdma", "tcp"]


class _Printed(printed.Printed):
    """One printed line about a model."""

    model: str


class Model(_Printed):
    """A model: its parameters, and its iteration without cross traffic."""

    parameters: int
    iteration_s: float
    theory_mb: float
    bandwidth_gbps: float


class Curve(_Printed):
    """A fit t = a_s exp(b / (capacity - load)^n), rates in Gbit/s."""

    traffic: Traffic
    transport: Transport
    n: float
    a_s: float
    b: float
    r2: float | None = None

    def seconds_at(self, load_gbps: float, capacity_gbps: float) -> float:
        """Return the fitted iteration time at a load."""
        return self.a_s * math.exp(self.b / (capacity_gbps - load_gbps) ** self.n)


class CongestionPoint(_Printed):
    """The load at which congestion begins, and the data sent in an iteration if all left bandwidth were used."""

    traffic: Traffic
    theory_mb: float
    over_theory_pct: float
    measured_mb: float | None = None
    load_gbps: float | None = None
    iteration_s: float | None = None


class MostCongested(_Printed):
    """The highest load of a series: bandwidth that theory needs, and what was left."""

    traffic: Traffic
    needed_gbps: float
    used_gbps: float


class Spare(_Printed):
    """Bandwidth that is left and not needed, mean over the saturated region."""

    traffic: Traffic
    spare_gbps: float


class IterationScale(_Printed):
    """Rates of two ranks while an iteration lasts, under consistent web-search traffic."""

    load_gbps: float
    alone_gbps: float
    shared_gbps: float


class Point(_Printed):
    """An iteration time at a measured load."""

    traffic: Traffic
    transport: Transport
    load_gbps: float
    iteration_s: float


class Shape(_Printed):
    """A model's size as the table of models has it."""

    parameters: int


class SquareFit(_Printed):
    """R2 of the fit with the square beside bursts; without a model the average over all series."""

    r2: float


class Factor(_Printed):
    """So many times the time without cross traffic, or the time if all that is left of the link were used."""

    traffic: Traffic
    load_gbps: float
    times: float


class Scatter(printed.Printed):
    """The scatter of iterations as a share of their mean, on average at low or high loads; without traffic: all."""

    what: Literal["variance", "p99"]
    load: Literal["low", "high"]
    traffic: Literal["", "websearch", "websearch-burst"]
    share: float


class Utilization(printed.Printed):
    """The share of a bottleneck that is used."""

    share: float


class Salamy(printed.Published):
    """The thesis on training beside cross traffic."""

    capacity_gbps: float
    ring_hosts: dict[Literal["A", "B"], int]
    models: tuple[Model, ...]
    fits: tuple[Curve, ...]
    congestion_points: tuple[CongestionPoint, ...]
    most_congested: tuple[MostCongested, ...]
    spare_capacity: tuple[Spare, ...]
    iteration_scale: tuple[IterationScale, ...]
    points: tuple[Point, ...]
    shapes: tuple[Shape, ...]
    square_fits: tuple[SquareFit, ...]
    slowdowns: tuple[Factor, ...]
    speedups: tuple[Factor, ...]
    scatter: tuple[Scatter, ...]
    utilization: tuple[Utilization, ...]

    def configuration(self, traffic: Traffic) -> Literal["A", "B"]:
        """Return where the traffic meets the training: iperf in the sender's NIC (A), web search in the switch (B)."""
        return "A" if traffic in ("none", "iperf") else "B"

    def fitted_s(self, point: Point) -> tuple[float, ...]:
        """Return the times by the thesis' fits of a point's model and traffic at its load, over each transport."""
        return tuple(
            curve.seconds_at(point.load_gbps, self.capacity_gbps)
            for curve in self.fits
            if (curve.model, curve.traffic) == (point.model, point.traffic)
        )


@cache
def salamy() -> Salamy:
    """Return the thesis' printed figures."""
    return printed.read(__file__, Salamy)
