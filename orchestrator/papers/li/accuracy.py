"""Fig 10: predicted iterations beside measured ones, and the model's inputs."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

from orchestrator.papers.li.published import Li
from orchestrator.papers.li.trainings import Found, Training
from orchestrator.report.study.content import Rows, Section, Table, at_least, not_measured
from orchestrator.report.style import INK, SERIES, Picture, figure, legend, look, save

_PREDICTIONS = "Iteration times in ms; from and to: by how far recorded runs were off, where any were like it."


def section(found: Found, printed: Li, folder: Path) -> Section:
    """Compare each training with its prediction from the benchmarks of messages among these runs."""
    shown = [*found.replicated, *found.split]
    line = printed.number("accuracy")
    kinds = (("data parallel", found.replicated), ("split", found.split))
    judged = tuple(
        at_least(
            f"{name}: mean accuracy of {len(ones)} iterations",
            fmean(map(accuracy, ones)) * 100,
            line.value,
            unit="%",
            source=line.source,
        )
        for name, ones in kinds
        if ones
    )
    quantities = {} if found.costs is None else found.costs.quantities()
    rows: Rows = [
        (name, f"{one.value:.4g}", f"{one.low:.4g}", f"{one.high:.4g}", one.source) for name, one in quantities.items()
    ]
    head = ("training", "predicted", "from", "to", "measured", "apart (%)")
    return Section(
        title="Fig 10: the model against measurement",
        text=(
            "Ours against ours: costs of messages come from the benchmarks of figure 7 among these runs, compute is "
            "emulated and so known. The paper's F is not printed, so its own times cannot be computed again."
        ),
        pictures=(_drawn(shown, folder),) if shown else (),
        comparisons=judged or (not_measured("accuracy", f"{line.value:g} %", source=line.source),),
        tables=(
            Table("Predictions", _PREDICTIONS, head, [_row(one) for one in shown]),
            Table("Inputs of the model", "", ("input", "value", "from", "to", "source"), rows),
        ),
    )


def accuracy(one: Training) -> float:
    """Return the prediction's accuracy: 1 less the error as a share of the measured iteration."""
    return 1 - abs(one.prediction.iteration_s / one.iteration_s - 1)


def _row(one: Training) -> tuple[str, ...]:
    own = one.prediction
    times = (own.iteration_s, *own.interval_s, one.iteration_s)
    return (
        one.label,
        *("" if math.isnan(seconds) else f"{seconds * 1e3:.1f}" for seconds in times),
        f"{(own.iteration_s / one.iteration_s - 1) * 100:+.1f}",
    )


def _ends_s(one: Training) -> tuple[float, float]:
    """Return the ends of the prediction's interval; the prediction itself where it has none."""
    own = one.prediction
    return (own.iteration_s, own.iteration_s) if own.no_interval else own.interval_s


def _drawn(shown: list[Training], folder: Path) -> Picture:
    with look():
        drawing, (panel,) = figure(height_in=3.0)
        most = 1.1 * max(max(one.iteration_s, *_ends_s(one)) for one in shown) * 1e3
        panel.plot([0, most], [0, most], color=INK, lw=0.8)
        for number, (workload, label) in enumerate((("ddp", "data parallel"), ("ptd", "split"))):
            ones = [one for one in shown if one.workload == workload]
            middle = [one.prediction.iteration_s * 1e3 for one in ones]
            bars = [
                [max(0.0, value - _ends_s(one)[0] * 1e3) for value, one in zip(middle, ones, strict=True)],
                [max(0.0, _ends_s(one)[1] * 1e3 - value) for value, one in zip(middle, ones, strict=True)],
            ]
            if ones:
                panel.errorbar(
                    [one.iteration_s * 1e3 for one in ones],
                    middle,
                    yerr=bars,
                    fmt="o",
                    markersize=4,
                    color=SERIES[number],
                    label=label,
                    lw=0.8,
                )
        panel.set(xlabel="measured (ms)", ylabel="predicted (ms)", xlim=(0, most), ylim=(0, most))
        legend(panel)
        saved = save(drawing, folder / "accuracy")
    caption = "On the line the prediction is right; bars are its interval, with all inputs at either end."
    return Picture(name="accuracy", title="Predicted beside measured iterations", caption=caption, saved=saved)
