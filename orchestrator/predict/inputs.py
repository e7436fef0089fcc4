"""Where the model's inputs come from: fitted to runs of `collective` on the same kind of testbed, or assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from orchestrator.core.errors import StoreError
from orchestrator.parts.topology import Topology, wire_per_payload
from orchestrator.predict.network_costs import Costs, Network, Quantity, assumed
from workloads.common import between
from workloads.common.between import Pairs

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

FITTED = ("round_s", "link_factor", "inside_byte_s", "byte_s")
_ACKNOWLEDGED = 66 / 2 / 1514  # of a frame: one acknowledgement for two, the other way on the same link
_RESAMPLES = 400
_LEAST = 6  # messages, so that four quantities and their interval mean something


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A message of a benchmark: who sent how much to whom at once, in how many rounds, and its time in seconds."""

    pairs: Pairs
    rounds: int
    network: Network
    seconds: float


def usual(topology: Topology) -> Costs:
    """Inputs of a testbed on which nothing was measured: wide intervals, and what they rest on."""
    headers = wire_per_payload(topology.mtu) + _ACKNOWLEDGED
    link = assumed(headers, low=headers - _ACKNOWLEDGED, high=1.25 * headers, source="headers and acknowledgements")
    if topology.kind == "local":
        return Costs(
            round_s=assumed(0.3e-3, low=0.1e-3, high=1.5e-3, source="gloo between namespaces of two shared cores"),
            link_factor=link,
            inside_byte_s=assumed(0.0, low=0.0, high=2e-9, source="loopback costs processors alone"),
            byte_s=assumed(2e-9, low=1e-9, high=6e-9, source="two shared cores"),
            piece_s=assumed(0.1e-3, low=0.03e-3, high=0.5e-3, source="timers of a machine with other work"),
            step_s=assumed(1e-3, low=0.3e-3, high=4e-3, source="optimizer and logs"),
        )
    return Costs(
        round_s=assumed(30e-6, low=5e-6, high=100e-6, source="TCP within a rack"),
        link_factor=link,
        inside_byte_s=assumed(1e-10, low=0.1e-10, high=2e-10, source="10 GB/s within a host (PCIe 3 x16)"),
        byte_s=assumed(0.0, low=0.0, high=0.0, source="hosts are machines of their own"),
        piece_s=assumed(0.0, low=0.0, high=0.1e-3, source="no emulated pieces but timers"),
        step_s=assumed(1e-3, low=0.3e-3, high=4e-3, source="optimizer and logs"),
    )


def fitted(timed: Sequence[Timed], base: Costs, *, source: str) -> Costs:
    """`base` with what these messages say of communication: least squares of relative errors, nothing below zero.

    Intervals are 95 % percentile intervals over resampled messages. StoreError where there are too few.
    """
    if len(timed) < _LEAST:
        raise StoreError(
            f"{source}: {len(timed)} timed messages, and {len(FITTED)} quantities to fit",
            hint=f"a run of `collective` with {_LEAST} sizes or more, of which the smallest are a few kB",
        )
    rows = np.array([_row(one) for one in timed]) / np.array([[one.seconds] for one in timed])
    known = np.flatnonzero(rows.any(axis=0))
    likely = _solved(rows, known)
    draw = np.random.default_rng(1)
    again = [_solved(rows[draw.integers(0, len(rows), len(rows))], known) for _ in range(_RESAMPLES)]
    low, high = np.percentile(again, [2.5, 97.5], axis=0)
    found = {
        FITTED[place]: Quantity(
            value=float(likely[place]), low=float(min(low[place], likely[place])),
            high=float(max(high[place], likely[place])), source=f"measured: {source}",
        )
        for place in known
    }  # fmt: skip
    return replace(base, **found)


def _row(one: Timed) -> list[float]:
    """What each of `FITTED` is multiplied by in the time of a message (`network_costs.moved_s`)."""
    net = one.network
    return [one.rounds, net.link_s(one.pairs), net.inside(one.pairs), net.shared(one.pairs)]


def _solved(rows: Floats, known: Places) -> Floats:
    """Non-negative weights with which each row adds up to 1; columns that are zero throughout have none."""
    from scipy.optimize import nnls

    weights = np.zeros(rows.shape[1])
    scale = rows[:, known].max(axis=0)
    scale[scale == 0] = 1.0  # a resample may lack what the whole has
    weights[known] = nnls(rows[:, known] / scale, np.ones(len(rows)))[0] / scale
    return weights


def all_reduced(groups: Iterable[Sequence[int]], size: float) -> tuple[Pairs, int]:
    """Bytes and rounds of ring all-reduces in these groups at once."""
    made = [list(members) for members in groups]
    rings = (between.ring_of(members, 2 * (len(members) - 1) / len(members) * size) for members in made)
    return between.summed(rings), 2 * (max(map(len, made)) - 1)
