"""Where a history of nights has moved to another level, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FEWEST_NIGHTS = 3  # on either side of a step: one night that stands out is no step
FEWEST_IN_ALL = 8  # with fewer, the best split of shuffled nights would be as good once in twenty
SHUFFLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A lasting change: the index of the first night on the new level, levels in seconds, their ratio, and p."""

    night: int
    before_s: float
    after_s: float
    p: float

    @property
    def ratio(self) -> float:
        return self.after_s / self.before_s


def steps(nights_s: npt.ArrayLike, *, margin: float, alpha: float = 0.05, seed: int = 1) -> tuple[Step, ...]:
    """The steps in a value per night (seconds, oldest first; NaN for a night without one), oldest first.

    Binary segmentation (Scott and Knott, 1974) of the logarithms: the split with the largest two-sample t is a step
    when shuffled nights reach it with a probability below `alpha` and the levels differ by at least `margin` (a share
    of 1); both halves are then searched in turn. Levels are geometric means.
    """
    values = np.asarray(nights_s, np.float64)
    places = np.flatnonzero(np.isfinite(values) & (values > 0))
    logs = np.log(values[places])
    cuts = sorted(_cuts(logs, 0, len(logs), margin=margin, alpha=alpha, draw=np.random.default_rng(seed)))
    edges = [0, *(cut for cut, _ in cuts), len(logs)]
    return tuple(
        Step(
            night=int(places[cut]), p=p, before_s=math.exp(float(np.mean(logs[edges[k] : cut]))),
            after_s=math.exp(float(np.mean(logs[cut : edges[k + 2]]))),
        )
        for k, (cut, p) in enumerate(cuts)
    )  # fmt: skip


def _cuts(
    logs: Floats, begin: int, end: int, *, margin: float, alpha: float, draw: np.random.Generator
) -> Iterator[tuple[int, float]]:
    part = logs[begin:end]
    if len(part) < FEWEST_IN_ALL or np.ptp(part) == 0.0:
        return
    scores = _scores(part[None, :])[0]
    cut = int(np.argmax(scores)) + FEWEST_NIGHTS
    shuffled = draw.permuted(np.tile(part, (SHUFFLES, 1)), axis=1)
    p = (1 + int(np.sum(_scores(shuffled).max(axis=1) >= scores.max()))) / (SHUFFLES + 1)
    if p >= alpha or abs(part[cut:].mean() - part[:cut].mean()) < math.log1p(margin):
        return
    yield begin + cut, p
    yield from _cuts(logs, begin, begin + cut, margin=margin, alpha=alpha, draw=draw)
    yield from _cuts(logs, begin + cut, end, margin=margin, alpha=alpha, draw=draw)


def _scores(rows: Floats) -> Floats:
    """|t| of every split of each row that leaves FEWEST_NIGHTS on both sides; shape (rows, splits)."""
    n = rows.shape[1]
    sizes = np.arange(FEWEST_NIGHTS, n - FEWEST_NIGHTS + 1)
    sums, squares = np.cumsum(rows, axis=1), np.cumsum(rows**2, axis=1)
    left, right = sums[:, sizes - 1], sums[:, -1:] - sums[:, sizes - 1]
    gap = right / (n - sizes) - left / sizes
    inside = squares[:, -1:] - left**2 / sizes - right**2 / (n - sizes)
    error = np.sqrt(np.clip(inside, 1e-18, None) / (n - 2) * (1 / sizes + 1 / (n - sizes)))
    scores: Floats = np.abs(gap) / error
    return scores
