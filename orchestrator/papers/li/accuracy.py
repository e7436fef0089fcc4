"""Fig 10: predicted terms of iterations beside measured ones, each judged by its own size, and the model's inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import MappingProxyType

from orchestrator.analysis.stats.agreement import over_runs, repetitions
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.papers.li.published import Li
from orchestrator.papers.li.trainings import Found, Training
from orchestrator.parts.terms import Terms
from orchestrator.report.study.content import Comparison, Rows, Section, Table, cannot_tell, claimed, remark
from orchestrator.report.style import INK, SERIES, Picture, figure, legend, look, save

QUANTITIES: Mapping[str, Callable[[Terms], float]] = MappingProxyType(
    {
        "T_comp": lambda terms: terms.compute_s,
        "R_bubble": lambda terms: terms.bubble_s / terms.iteration_s,
        "T_comm": lambda terms: terms.exposed_s + terms.hidden_s,
        "R_comm": lambda terms: terms.exposed_s / terms.iteration_s,
    }
)
_PREDICTIONS = "Iteration times in ms; from and to: by how far recorded runs were off, where any were like it."
_EMULATED = "nothing measured: compute is emulated, and so an input of the prediction"
_WHOLE = "most of it is emulated compute, which is an input: what is predicted are its terms"
_TERMS = "Rank 0, means over runs: times in ms, ratios in per cent of the iteration; predicted / measured."


def section(found: Found, printed: Li, folder: Path) -> Section:
    """Compare each term of each training with its prediction from the benchmarks of messages among these runs."""
    shown = [*found.replicated, *found.split]
    line = printed.number("accuracy")
    kinds = (("data parallel", found.replicated), ("split", found.split))
    quantities = {} if found.costs is None else found.costs.quantities()
    rows: Rows = [
        (name, f"{one.value:.4g}", f"{one.low:.4g}", f"{one.high:.4g}", one.source) for name, one in quantities.items()
    ]
    head = ("training", "predicted", "from", "to", "measured", "apart (%)")
    return Section(
        title="Fig 10: the model against measurement",
        text=(
            "Ours against ours: costs of messages come from the benchmarks of figure 7 among these runs. The paper's F "
            "is not printed, so its own times cannot be computed again. T_comm is the time of all communication, "
            "R_comm the share of the iteration that communication adds to it, R_bubble that of waiting for other "
            "stages. Accuracy is 1 less the error as a share of the measured quantity itself, mean over trainings."
        ),
        pictures=(_drawn(shown, folder),) if shown else (),
        comparisons=(
            *(compared(name, quantity, ones, printed) for name, ones in kinds for quantity in QUANTITIES if ones),
            *(
                remark(
                    f"{name}: mean accuracy of {len(ones)} iterations",
                    f"{fmean(map(accuracy, ones)) * 100:.1f} %",
                    f"{line.value:g} %",
                    source=line.source,
                    why=_WHOLE,
                )
                for name, ones in kinds
                if ones
            ),
        )
        or (cannot_tell(printed.check("term"), "accuracy", f"{line.value:g} %", source=line.source),),
        tables=(
            Table("Terms", _TERMS, ("training", *QUANTITIES), [_terms(one) for one in shown if one.terms]),
            Table("Predictions", _PREDICTIONS, head, [_row(one) for one in shown]),
            Table("Inputs of the model", "", ("input", "value", "from", "to", "source"), rows),
        ),
    )


def compared(kind: str, quantity: str, ones: Sequence[Training], printed: Li) -> Comparison:
    """Judge the mean accuracy over trainings in each repetition of all of them."""
    line, check = printed.number("accuracy"), printed.check("term")
    what, least = f"{kind}: accuracy of {quantity}", f"at least {line.value:g} %"
    of = QUANTITIES[quantity]
    if quantity == "T_comp":
        ones = [one for one in ones if one.point.job.compute == "real"]
        if not ones:
            return cannot_tell(check, what, least, source=line.source, why=_EMULATED)
    each = repetitions(
        _accuracies(one, of) for one in ones if one.terms and max(of(one.terms[0]), of(one.prediction.terms))
    )
    return claimed(
        check, f"{what}, {len(each[0]) if each else 0} trainings", _percent(each), printed=least, source=line.source
    )


def _percent(each: Sequence[Sequence[float]]) -> Estimate:
    return over_runs(100 * fmean(of_all) for of_all in each)


def _accuracies(one: Training, of: Callable[[Terms], float]) -> list[float]:
    """Return the accuracy of a predicted quantity by its own size, against each run; 0 where none was measured."""
    predicted = of(one.prediction.terms)
    return [1 - abs(predicted / measured - 1) if measured else 0.0 for measured in one.over(of)]


def _terms(one: Training) -> tuple[str, ...]:
    cells = []
    for name, of in QUANTITIES.items():
        predicted, measured = of(one.prediction.terms), fmean(one.over(of))
        scale = 1e3 if name.startswith("T") else 100
        off = f" ({(predicted / measured - 1) * 100:+.0f} %)" if measured else ""
        cells.append(f"{predicted * scale:.1f} / {measured * scale:.1f}{off}")
    return (one.label, *cells)


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
