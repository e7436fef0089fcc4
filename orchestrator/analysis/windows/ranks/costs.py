"""What accuracy costs the network: bytes that a training had sent when it was so good (Zerwas, section V-D, Fig 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.traffic.throughput import Bins, Floats

SMOOTHED = 20  # iterations: accuracy and loss of one batch say little
LEVELS = (0.6, 0.8)  # of accuracy, those that the paper marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """After each iteration: bytes sent by all hosts until its last rank ended, and what the training was worth.

    Accuracy (a share of the samples) and loss are means over ranks and the last SMOOTHED iterations; loss is None where
    no rank told it.
    """

    sent_bytes: Floats
    accuracy: Floats
    loss: Floats | None

    def until(self, level: float) -> float | None:
        """Bytes sent when this accuracy was first reached over a whole SMOOTHED iterations; None when it was not."""
        reached = np.flatnonzero(self.accuracy[SMOOTHED - 1 :] >= level)
        return float(self.sent_bytes[SMOOTHED - 1 + reached[0]]) if len(reached) else None


def cost(iterations: Any, job: str, sent: Sequence[Bins]) -> Cost | None:
    """The cost of a job's accuracy from the table `iterations` (pyarrow) and what each of its hosts sent.

    None where fewer than SMOOTHED iterations or no accuracy was logged, or nothing was captured.
    """
    import pyarrow.compute as pc

    table = iterations.filter(pc.equal(iterations["job"], job))
    known = [name for name in ("accuracy", "loss") if table[name].null_count < table.num_rows]
    if "accuracy" not in known or not any(len(bins.start_ns) for bins in sent):
        return None
    means = table.group_by("iteration").aggregate([("end_ns", "max"), *((name, "mean") for name in known)])
    means = means.sort_by("iteration")
    if means.num_rows < SMOOTHED:
        return None
    values = {name: _smoothed(means[f"{name}_mean"].to_numpy().astype(np.float64)) for name in known}
    ends = means["end_ns_max"].to_numpy()
    return Cost(
        sent_bytes=np.sum([sent_until(bins, ends) for bins in sent], axis=0),
        accuracy=values["accuracy"],
        loss=values.get("loss"),
    )


def sent_until(bins: Bins, ends_ns: Any) -> Floats:
    """What all bins until each instant carried, the bin that it lies in by its share."""
    if not len(bins.start_ns):
        return np.zeros(len(ends_ns))
    total = np.concatenate(([0.0], np.cumsum(bins.amount)))
    place = np.searchsorted(bins.start_ns, ends_ns, side="right") - 1
    inside = np.clip((ends_ns - bins.start_ns[np.maximum(place, 0)]) / bins.width_ns, 0.0, 1.0)
    return np.where(place < 0, 0.0, total[np.maximum(place, 0)] + inside * bins.amount[np.maximum(place, 0)])


def _smoothed(values: Floats) -> Floats:
    """The mean of each value and those before it, SMOOTHED at most."""
    total = np.concatenate(([0.0], np.cumsum(values)))
    first = np.maximum(np.arange(len(values)) - SMOOTHED + 1, 0)
    return (total[1:] - total[first]) / (np.arange(len(values)) - first + 1)
