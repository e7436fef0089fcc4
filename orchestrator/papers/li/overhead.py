"""Figs 6, 8 and 13: terms of iterations by rank, communication ratio, scaling factor, exposed communication."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orchestrator.analysis.stats import agreement
from orchestrator.papers.li.published import Li
from orchestrator.papers.li.trainings import Found, Training
from orchestrator.parts.terms import NAMES, Terms
from orchestrator.report.run.figures import stacked
from orchestrator.report.study.content import (
    Comparison,
    Rows,
    Section,
    Table,
    cannot_tell,
    claimed,
    not_measured,
    remark,
)
from orchestrator.report.style import Picture, figure, legend, look, save


def split(found: Found, printed: Li, folder: Path) -> Section:
    """Compare Fig 6: shares of tensor, pipeline, data traffic and bubble by rank, measured beside predicted."""
    shown = [one for one in found.split if one.terms]
    return Section(
        title="Fig 6: where an iteration of a split model goes",
        text=(
            "A receive counts as pipeline time from when its sender had begun, and as bubble before, as in section "
            "4.1. In each pair of bars the left one is predicted, the right one measured."
        ),
        pictures=tuple(_bars(one, folder, number) for number, one in enumerate(shown)),
        comparisons=mappings(shown, printed),
        tables=(_shares(shown),),
    )


def mappings(shown: Sequence[Training], printed: Li) -> tuple[Comparison, ...]:
    """Compare each training measured in both mappings, all else alike: what the customized one changes."""
    alike: dict[str, dict[str, Training]] = {}
    for one in shown:
        if isinstance(one.config.mapping, str):
            key = f"{one.config.model_dump_json(exclude={'mapping'})} {one.subject.network.out_bps}"
            alike.setdefault(key, {})[one.config.mapping] = one
    claim, judged = printed.claim("mapping"), []
    for both in alike.values():
        if both.keys() >= {"default", "customized"}:
            default, custom = both["default"], both["customized"]
            what = f"{default.model}, rank 0, customized over default"
            judged += [
                claimed(
                    printed.check(f"mapping-{name}"),
                    f"{what}: {name} time",
                    agreement.ratio(custom.over(of), default.over(of)),
                    told=f"{_ms(of(custom.terms[0]))} against {_ms(of(default.terms[0]))} ms",
                    printed=claim.text,
                    source=claim.source,
                )
                for name, of in (("pipeline", _pipeline_s), ("data", _data_s))
            ]
    none = cannot_tell(printed.check("mapping-pipeline"), "customized over default", claim.text, source=claim.source)
    return tuple(judged) or (none,)


def _pipeline_s(terms: Terms) -> float:
    return terms.pipeline_s


def _data_s(terms: Terms) -> float:
    return terms.data_s


def _shares(shown: Sequence[Training]) -> Table:
    names = [name.removesuffix("_s") for name in NAMES]
    rows = [
        (one.label, str(rank), *(f"{seconds / terms.iteration_s * 100:.1f}" for seconds in terms.parts().values()))
        for one in shown
        for rank, terms in sorted(one.terms.items())
    ]
    return Table("Shares by rank", "Measured, per cent of the iteration.", ("training", "rank", *names), rows)


def _bars(one: Training, folder: Path, number: int) -> Picture:
    ranks = sorted(one.terms)
    with look():
        drawing, (panel,) = figure(height_in=2.6)
        for offset, terms in ((-0.2, one.prediction.ranks), (0.2, one.terms)):
            stacked(panel, np.array(ranks) + offset, [terms[rank] for rank in ranks], width=0.36, labelled=offset < 0)
        panel.set(xlabel="rank; left: predicted, right: measured", ylabel="iteration (ms)")
        panel.set_xticks(ranks)
        legend(panel, columns=7)
        saved = save(drawing, folder / f"shares-{number}")
    caption = "Tensor, pipeline and data traffic, bubble and computing by rank (Li, figure 6)."
    return Picture(name=f"shares-{number}", title=one.label, caption=caption, saved=saved)


def replicated(found: Found, printed: Li) -> Section:
    """Compare Fig 13: communication, and the exposed part of it, over ranks."""
    shown = [one for one in found.replicated if one.terms]
    rows: Rows = []
    for one in sorted(shown, key=lambda one: (one.model, len(one.subject.job.ranks))):
        terms = one.terms[0]
        rows.append(
            (
                one.model,
                str(len(one.subject.job.ranks)),
                _ms(one.iteration_s),
                f"{scaling(one):.3f}",
                _ms(_communication(terms)),
                f"{ratio(one) * 100:.1f}",
                _ms(terms.data_s),
                f"{terms.data_s / terms.iteration_s * 100:.1f}",
            )
        )
    head = (
        "model",
        "ranks",
        "iteration (ms)",
        "scaling factor",
        "communication (ms)",
        "ratio (%)",
        "not hidden (ms)",
        "ratio (%)",
    )
    return Section(
        title="Fig 13: overhead of data parallelism",
        text="Scaling factor: computing alone over the iteration. Communication: when any all-reduce was under way.",
        comparisons=tuple(compared(shown, printed)),
        tables=(Table("Overhead", "Rank 0, medians over iterations.", head, rows),),
    )


def compared(shown: Sequence[Training], printed: Li) -> list[Comparison]:
    """Compare how the scaling factor changes with the number of ranks."""
    order, decreases = printed.claim("order"), printed.claim("scaling")
    most = max((len(one.subject.job.ranks) for one in shown), default=0)
    largest = {one.model: one.terms[0].data_s / one.iteration_s for one in shown if len(one.subject.job.ranks) == most}
    judged = [not_measured("order of models", order.text, source=order.source)]
    if {"vgg16", "resnet50"} <= largest.keys() and len(largest) > 2:
        shares = ", ".join(
            f"{model} {share:.0%}" for model, share in sorted(largest.items(), key=lambda item: -item[1])
        )
        judged = [
            remark(
                f"not hidden on {most} ranks",
                shares,
                order.text,
                source=order.source,
                why="it follows from compute times, which the paper does not print",
            )
        ]
    for model in sorted({one.model for one in shown}):
        of_model = sorted((one for one in shown if one.model == model), key=_ranks)
        judged += [
            claimed(
                printed.check("scaling"),
                f"{model}: scaling factor on {_ranks(more)} ranks over that on {_ranks(fewer)}",
                agreement.ratio(scalings(more), scalings(fewer)),
                told=f"{scaling(more):.3f} against {scaling(fewer):.3f}",
                printed=decreases.text,
                source=decreases.source,
            )
            for fewer, more in itertools.pairwise(of_model)
        ]
    return judged


def _ranks(one: Training) -> int:
    return len(one.subject.job.ranks)


def scalings(one: Training) -> list[float]:
    """Return the scaling factor of each run."""
    return [one.prediction.terms.compute_s / seconds for seconds in one.point.run_means_s]


def scaling(one: Training) -> float:
    """Return the scaling factor: computing alone over the iteration (Li, appendix B)."""
    return one.prediction.terms.compute_s / one.iteration_s


def ratio(one: Training) -> float:
    """Return the communication ratio: the time in which any was under way, over the iteration."""
    return _communication(one.terms[0]) / one.terms[0].iteration_s


def _communication(terms: Terms) -> float:
    return terms.exposed_s + terms.hidden_s


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"
