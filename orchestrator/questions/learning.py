"""Accuracy on held-out images over epochs, time and bytes, and what it takes to reach a level of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from orchestrator.analysis.windows.time_to_accuracy import Learning
from orchestrator.questions.iterations import chosen
from orchestrator.questions.registry import source, step
from orchestrator.questions.rows import REPETITION, RUN, Measured, Rows, grouped
from orchestrator.report.run import accuracy
from orchestrator.report.runs import Run

_LEARNED = ("epoch", "train_s", "sent_bytes", "accuracy", "loss")


@source
def learning(
    measured: Measured,
    *,
    columns: dict[str, str] | None = None,
    defaults: dict[str, Any] | None = None,
    where: dict[str, Any] | None = None,
) -> Rows:
    """Return a row an epoch, point and run of trainings that are judged by held-out images.

    `epoch` counts epochs; `train_s` is the time of training until its end without evaluations (seconds, mean over
    ranks); `sent_bytes` the TCP payload that all hosts had sent since the run began, at full size (NaN without a
    capture); `accuracy` the share of the held-out images that were right (0 to 1), `loss` the mean over them.
    `columns`, `defaults` and `where` as of `volumes`.
    """
    rows: Rows = []
    for point, keys in chosen(measured, columns, defaults, where):
        paths = {window.entry.run: window.entry.path for window in point.windows}
        for repetition, (run, path) in enumerate(paths.items(), 1):
            found = accuracy.learned(Run(path)).get(point.job.name)
            if found is None:
                continue
            values = (found.epoch, found.seconds, found.sent_bytes * point.scale, found.accuracy, found.loss)
            rows += [
                {
                    **keys,
                    RUN: run,
                    REPETITION: repetition,
                    "epoch": int(epoch),
                    **dict(zip(_LEARNED[1:], of, strict=True)),
                }
                for epoch, *of in zip(*(one.tolist() for one in values), strict=True)
            ]
    return rows


@step
def reached(rows: Rows, *, levels: list[float]) -> Rows:
    """Return what each run (rows of `learning`) took until its accuracy first was at least each of `levels`.

    A row a point, run and level that was reached: `level`, `epochs`, `train_s`, `sent_bytes`, between two epochs by a
    straight line; and `highest`, the run's highest accuracy. A run that reaches none of them has no rows.
    """
    keys = [name for name in (rows[0] if rows else ()) if name not in _LEARNED]
    found: Rows = []
    for values, mine in grouped(rows, keys).items():
        epoch, seconds, sent, right, loss = (np.array([row[name] for row in mine], np.float64) for name in _LEARNED)
        course = Learning(epoch=epoch.astype(np.int64), seconds=seconds, sent_bytes=sent, accuracy=right, loss=loss)
        fixed = {**dict(zip(keys, values, strict=True)), "highest": float(right.max())}
        found += [
            {**fixed, "level": level, "epochs": taken.epochs, "train_s": taken.seconds, "sent_bytes": taken.sent_bytes}
            for level in levels
            if (taken := course.reached(level)) is not None
        ]
    return found
