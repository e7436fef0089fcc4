"""Figs 6, 8 and 13: terms of iterations by rank, communication ratio, scaling factor, exposed communication."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orchestrator.papers.li.published import Claim, Li
from orchestrator.papers.li.trainings import Found, Training
from orchestrator.parts.terms import NAMES, Terms
from orchestrator.report.run.figures import stacked
from orchestrator.report.study.content import APART, Comparison, Rows, Section, Table, holds, not_measured
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
        comparisons=_mappings(shown, printed.claim("mapping")),
        tables=(_shares(shown),),
    )


def _mappings(shown: Sequence[Training], claim: Claim) -> tuple[Comparison, ...]:
    """Compare each training measured in both mappings, all else alike: what the customized one changes."""
    alike: dict[str, dict[str, Training]] = {}
    for one in shown:
        if isinstance(one.config.mapping, str):
            key = f"{one.config.model_dump_json(exclude={'mapping'})} {one.subject.network.out_bps}"
            alike.setdefault(key, {})[one.config.mapping] = one
    judged = []
    for both in alike.values():
        if both.keys() >= {"default", "customized"}:
            default, custom = both["default"].terms[0], both["customized"].terms[0]
            times = f"pipeline {_ms(custom.pipeline_s)} against {_ms(default.pipeline_s)} ms, "
            times += f"data {_ms(custom.data_s)} against {_ms(default.data_s)} ms"
            true = custom.pipeline_s < default.pipeline_s and custom.data_s > default.data_s
            what = f"{both['default'].model}, customized against default, rank 0"
            judged.append(holds(what, true=true, ours=times, printed=claim.text, source=claim.source))
    return tuple(judged) or (not_measured("customized against default", claim.text, source=claim.source),)


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
        comparisons=tuple(_judged(shown, printed)),
        tables=(Table("Overhead", "Rank 0, medians over iterations.", head, rows),),
    )


def _judged(shown: Sequence[Training], printed: Li) -> list[Comparison]:
    order, decreases = printed.claim("order"), printed.claim("scaling")
    most = max((len(one.subject.job.ranks) for one in shown), default=0)
    largest = {one.model: one.terms[0].data_s / one.iteration_s for one in shown if len(one.subject.job.ranks) == most}
    judged = [not_measured("order of models", order.text, source=order.source)]
    if {"vgg16", "resnet50"} <= largest.keys() and len(largest) > 2:
        shares = ", ".join(
            f"{model} {share:.0%}" for model, share in sorted(largest.items(), key=lambda item: -item[1])
        )
        judged = [
            Comparison(
                what=f"not hidden on {most} ranks",
                ours=shares,
                printed=order.text,
                difference="",
                verdict=APART,
                why="it follows from compute times, which the paper does not print",
                source=order.source,
            )
        ]
    for model in sorted({one.model for one in shown}):
        factors = {len(one.subject.job.ranks): scaling(one) for one in shown if one.model == model}
        values = [factors[count] for count in sorted(factors)]
        if len(values) > 1:
            judged.append(
                holds(
                    f"{model}: scaling factor over {', '.join(map(str, sorted(factors)))} ranks",
                    true=all(after < before for before, after in itertools.pairwise(values)),
                    ours=", ".join(f"{value:.3f}" for value in values),
                    printed=decreases.text,
                    source=decreases.source,
                )
            )
    return judged


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
