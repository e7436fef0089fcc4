"""Fig 8: accuracy against bytes sent, from trainings that really learn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orchestrator.analysis.compare import points
from orchestrator.analysis.compare.points import MeasuredPoint
from orchestrator.analysis.stats.agreement import ratio, repetitions
from orchestrator.analysis.windows.time_to_accuracy import Learning
from orchestrator.papers.zerwas.frameworks import CALLED, PAIRS, framework_of
from orchestrator.papers.zerwas.published import Zerwas
from orchestrator.report.run import accuracy as drawing
from orchestrator.report.runs import Run
from orchestrator.report.study.content import Comparison, Rows, Section, Table, counted, judged, not_measured, number
from orchestrator.report.style import Picture, save
from orchestrator.store.rundir import Entry

_MB = 1e6
_DDP = "PyTorch DDP"
_SMALL = "a small network learns here, for which nothing is printed"


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A point that learned, with accuracy, time and bytes of each of its runs."""

    point: MeasuredPoint
    framework: str
    optimizer: str
    runs: tuple[Learning, ...]

    @property
    def called(self) -> str:
        return f"{CALLED.get(self.framework, _DDP)}, {self.optimizer}"

    def each_sent(self, level: float) -> list[float]:
        """Return the bytes of all hosts until this accuracy by run; NaN where one lacks it or a capture."""
        taken = [run.reached(level) for run in self.runs]
        return [np.nan if one is None else one.sent_bytes for one in taken]

    def sent(self, level: float) -> float:
        """Return the bytes of all hosts until this accuracy, mean over runs; NaN where one lacks it or a capture."""
        return float(np.mean(self.each_sent(level)))

    def seconds(self, level: float) -> float:
        """Return the training time until this accuracy, mean over runs; NaN where one never had it."""
        taken = [run.reached(level) for run in self.runs]
        return float(np.mean([np.nan if one is None else one.seconds for one in taken]))


def learned(entries: Iterable[Entry]) -> tuple[Learned, ...]:
    """Return the points of these runs that were tested on held-out images after each epoch."""
    found = []
    for point in points.pooled(entries):
        job = point.job.name
        runs = [drawing.learned(Run(path)) for path in dict.fromkeys(window.entry.path for window in point.windows)]
        kept = tuple(run[job] for run in runs if job in run)
        name = framework_of(point) or ("ddp" if point.value("workload.ddp") is not None else None)
        if kept and name is not None:
            optimizer = str(point.value("workload.*.optimizer", "sgd"))
            found.append(Learned(point=point, framework=name, optimizer=optimizer, runs=kept))
    return tuple(found)


def accuracy(found: Sequence[Learned], printed: Zerwas) -> Section:
    """Compare the cost of each level of accuracy with what the paper says of it."""
    rows: Rows = [
        (
            one.called,
            f"{one.runs[0].accuracy[-1]:.1%}",
            *(number(one.sent(level) / _MB) for level in printed.accuracy.levels),
            *(number(one.seconds(level)) for level in printed.accuracy.levels),
        )
        for one in found
    ]
    levels = [f"{level:.0%}" for level in printed.accuracy.levels]
    head = ("training", "at the end", *(f"{unit} to {level}" for unit in ("MB", "s") for level in levels))
    return Section(
        title="Fig 8: accuracy and transmitted volume",
        text=(
            "Four workers learn ten classes of gratings with a small network, from the same weights and, but for pair "
            "averaging, the same batches. Accuracy is on held-out images after each epoch (the paper: on the training "
            "set after each step); bytes are TCP payload of all hosts. Between two epochs accuracy is taken to grow "
            "linearly, so what a level took is known to a part of an epoch."
        ),
        comparisons=(
            *(_saved(found, level, printed) for level in printed.accuracy.levels),
            _diminishing(found, printed),
            *(
                not_measured(f"{line.model}: volume until 80 %", f"{line.gb:g} GB", source=line.source, why=_SMALL)
                for line in printed.to_accuracy
            ),
        ),
        tables=(Table("Until an accuracy", "Between two epochs by a straight line.", head, rows),),
    )


def _saved(found: Sequence[Learned], level: float, printed: Zerwas) -> Comparison:
    """Compare pair averaging with the mean of all-reduces with its optimizer."""
    pairs = next((one for one in found if one.framework == PAIRS), None)
    others = [one for one in found if pairs and one.framework != PAIRS and one.optimizer == pairs.optimizer]
    all_reduced = repetitions(one.each_sent(level) for one in others)
    return judged(
        printed.check("saved-to-accuracy"),
        f"volume until {level:.0%}, pair averaging over all-reduce",
        ratio(pairs.each_sent(level) if pairs else [], [float(np.mean(of_all)) for of_all in all_reduced]),
        1 - printed.accuracy.pair_averaging_saves,
        source=printed.accuracy.source,
    )


def _diminishing(found: Sequence[Learned], printed: Zerwas) -> Comparison:
    """Compare whether the first half of the volume gains more accuracy than the second one."""
    gains = [[_gains(run) for run in one.runs if not np.isnan(run.sent_bytes).any()] for one in found]
    early, late = np.mean([of for each in gains for of in each] or [(np.nan, np.nan)], axis=0)
    return counted(
        printed.check("diminishing"),
        "diminishing gains in accuracy with more data",
        [[early > late for early, late in each] for each in gains if each],
        ours=f"{early:.1%} with the first half, {late:.1%} with the second",
        printed="every training",
        source=printed.accuracy.source,
    )


def _gains(run: Learning) -> tuple[float, float]:
    """Return the accuracy won with each half of the bytes, from a guess of one of ten classes on."""
    sent = np.concatenate(([0.0], run.sent_bytes))
    share = np.concatenate(([0.1], run.accuracy))
    middle = float(np.interp(sent[-1] / 2, sent, share))
    return middle - float(share[0]), float(share[-1]) - middle


def pictures(found: Sequence[Learned], folder: Path) -> Iterator[Picture]:
    """Draw accuracy against volume and over time, the first run of each point."""
    named = [(one.called, one.point.scale, one.runs[0]) for one in found]
    for name, title, drawn, caption in drawing.both(named):
        yield Picture(name=name, title=title, caption=caption, saved=save(drawn, folder / name))
