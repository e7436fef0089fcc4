"""Compute time, epochs and bytes until a training reached an accuracy (Zerwas, section V-D, Fig 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.traffic.throughput import Bins, Floats, Ints
from orchestrator.parts.rows import Row

SMOOTHED = 20  # iterations: accuracy and loss of one batch say little
LEVELS = (0.6, 0.8)  # of accuracy, those that the paper marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Bytes sent by all hosts, accuracy and loss of a job after each iteration, when its last rank ended.

    Accuracy (a share of the samples) and loss are means over ranks and the last SMOOTHED iterations; loss is None where
    no rank told it.
    """

    sent_bytes: Floats
    accuracy: Floats
    loss: Floats | None

    def until(self, level: float) -> float | None:
        """Return bytes sent when this accuracy was first reached over SMOOTHED iterations; None when it was not."""
        reached = np.flatnonzero(self.accuracy[SMOOTHED - 1 :] >= level)
        return float(self.sent_bytes[SMOOTHED - 1 + reached[0]]) if len(reached) else None


def cost(iterations: Any, job: str, sent: Sequence[Bins]) -> Cost | None:
    """Return the cost of a job's accuracy from the table `iterations` (pyarrow) and what each of its hosts sent.

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
    """Return the bytes sent until each instant; the bin that contains it counts by its share."""
    if not len(bins.start_ns):
        return np.zeros(len(ends_ns))
    total = np.concatenate(([0.0], np.cumsum(bins.amount)))
    place = np.searchsorted(bins.start_ns, ends_ns, side="right") - 1
    inside = np.clip((ends_ns - bins.start_ns[np.maximum(place, 0)]) / bins.width_ns, 0.0, 1.0)
    return np.where(place < 0, 0.0, total[np.maximum(place, 0)] + inside * bins.amount[np.maximum(place, 0)])


def _smoothed(values: Floats) -> Floats:
    """Return the mean of each value and those before it, SMOOTHED at most."""
    total = np.concatenate(([0.0], np.cumsum(values)))
    first = np.maximum(np.arange(len(values)) - SMOOTHED + 1, 0)
    return (total[1:] - total[first]) / (np.arange(len(values)) - first + 1)


@dataclass(frozen=True, slots=True)
class Reached:
    """The cost of reaching an accuracy: epochs, seconds, bytes of all hosts (NaN where not captured)."""

    epochs: float
    seconds: float
    sent_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """A job after each epoch that all its ranks have evaluated.

    `accuracy` is the share of all held-out images that were right, `loss` the mean over them; where ranks have models
    of their own, as with pair averaging, each rank's images are judged by its own. `seconds` is the training time since
    the first iteration began, without evaluations, mean over ranks. `sent_bytes` is what all hosts had sent since the
    run began when the epoch ended, mean over the ranks' instants; NaN where nothing was captured.
    """

    epoch: Ints
    seconds: Floats
    sent_bytes: Floats
    accuracy: Floats
    loss: Floats

    def reached(self, level: float) -> Reached | None:
        """Return the cost until the accuracy was at least this; None where it was so after no epoch.

        Between the first such epoch and the one before, accuracy is taken to grow linearly.
        """
        places = np.flatnonzero(self.accuracy >= level)
        if not len(places):
            return None
        last = int(places[0])
        first = max(last - 1, 0)
        gain = self.accuracy[last] - self.accuracy[first]
        part = 1.0 if first == last else float((level - self.accuracy[first]) / gain)
        of = [float(a[first] + part * (a[last] - a[first])) for a in (self.epoch, self.seconds, self.sent_bytes)]
        return Reached(*of)


def learning(evaluations: Any, iterations: Any, job: str, sent: Sequence[Bins]) -> Learning | None:
    """Return the accuracy of a job by epoch, from the tables `accuracy` and `iterations` (pyarrow) and bytes sent.

    None where it evaluated nothing. An epoch that some rank did not evaluate, since the run ended, is left out.
    """
    import pyarrow.compute as pc

    rows = evaluations.filter(pc.equal(evaluations["job"], job)).sort_by("epoch").to_pylist()
    began = iterations.filter(pc.equal(iterations["job"], job)).group_by("rank").aggregate([("start_ns", "min")])
    start_ns = dict(zip(began["rank"].to_pylist(), began["start_ns_min"].to_pylist(), strict=True))
    ranks = {row["rank"] for row in rows} & start_ns.keys()
    by_epoch: dict[int, list[Row]] = {}
    for row in rows:
        if row["rank"] in ranks:
            by_epoch.setdefault(row["epoch"], []).append(row)
    spent = dict.fromkeys(ranks, 0.0)
    found = []
    for epoch, of in by_epoch.items():
        ends = np.array([row["end_ns"] for row in of])
        lasted = [(row["end_ns"] - start_ns[row["rank"]]) / 1e9 - spent[row["rank"]] for row in of]
        for row in of:
            spent[row["rank"]] += row["evaluation_s"]
        if len(of) == len(ranks):
            samples = sum(row["samples"] for row in of)
            correct = sum(row["correct"] for row in of)
            loss = sum(row["loss"] * row["samples"] for row in of)
            carried = sum(sent_until(bins, ends) for bins in sent) if any(len(b.start_ns) for b in sent) else np.nan
            found.append((epoch, np.mean(lasted), np.mean(carried), correct / samples, loss / samples))
    if not found:
        return None
    epochs, seconds, total, accuracy, losses = (np.array(values) for values in zip(*found, strict=True))
    return Learning(epoch=epochs, seconds=seconds, sent_bytes=total, accuracy=accuracy, loss=losses)
