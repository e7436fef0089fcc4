"""What a training has learned after each epoch, and what that took: time, and bytes (Zerwas, section V-D, Fig 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.traffic.throughput import Bins, Floats, Ints
from orchestrator.analysis.windows.ranks.costs import sent_until
from orchestrator.parts.rows import Row


@dataclass(frozen=True, slots=True)
class Reached:
    """What it took until an accuracy was reached: epochs, seconds, bytes of all hosts (NaN where not captured)."""

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
        """What it took until the accuracy was at least this; None where it was so after no epoch.

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
    """What a job learned, from the tables `accuracy` and `iterations` (pyarrow) and what each of its hosts sent.

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
