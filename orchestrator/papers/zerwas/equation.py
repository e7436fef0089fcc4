"""Equation 1: bytes a step, regressed on the model's size, the framework, the batch and the topology."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from orchestrator.analysis.stats import linear
from orchestrator.analysis.stats.linear import Coefficient, Regression
from orchestrator.papers.zerwas.frameworks import BATCH, CLASSES, PAIRS, RINGS, SERVERS, Measured
from orchestrator.papers.zerwas.published import Zerwas
from orchestrator.papers.zerwas.volumes import SYNCHRONOUS
from orchestrator.report.study.content import Comparison, Rows, Section, Table, holds, near, not_measured, number

SIZE, FRAMEWORK, SAMPLES, TOPOLOGY = "Model_Size", "Framework_Backend", "Batch_Size", "Comm_Topology"
R2_WITHIN, SLOPE_WITHIN, CORRELATION_WITHIN = 0.02, 0.1, 0.03
KUNGFU = "kungfu"
OWN = "each framework's own (ring, binary tree star)"


def rows_of(found: Sequence[Measured]) -> list[Measured]:
    """Return the points of the regression: ten classes, no losses, no parameter servers, every captured window."""
    return [
        one
        for one in found
        if one.printed_model
        and one.classes == CLASSES
        and one.losses is None
        and one.sights
        and one.framework != SERVERS
    ]


def fit(found: Sequence[Measured]) -> Regression | None:
    """Fit equation 1 to measured volumes, MB a step against MB of the model; None where points do not allow it."""
    rows = sorted(rows_of(found), key=_base_first)
    return linear.fit(
        [one.step_payload / 1e6 for one in rows],
        {SIZE: [one.size / 1e6 for one in rows]},
        {
            FRAMEWORK: [_framework(one) for one in rows],
            SAMPLES: [str(one.batch) for one in rows],
            TOPOLOGY: [_topology(one) for one in rows],
        },
    )


def _base_first(one: Measured) -> tuple[bool, bool, bool]:
    """Return a sort key that puts the bases of indicators first: synchronous SGD, the paper's batch, own topology."""
    return one.framework == PAIRS, one.batch != BATCH, _topology(one) != OWN


def _framework(one: Measured) -> str:
    """Return framework and backend as one variable; pair averaging is a level of its own."""
    return one.framework if one.framework in RINGS or one.framework == PAIRS else KUNGFU


def _topology(one: Measured) -> str:
    """Return the graph of gradients; a ring belongs to its framework, and pair averaging has none."""
    return one.framework if one.framework in ("star", "tree", "clique") else OWN


def equation(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare the regression with the printed one."""
    theirs, rows = printed.regression, rows_of(found)
    whole = fit(found)
    if whole is None:
        lines: tuple[Comparison, ...] = (
            not_measured(
                "the regression",
                f"R2 {theirs.r2:g}",
                source=theirs.source,
                why=f"{len(rows)} points do not tell the regressors apart",
            ),
        )
        return Section(title=_TITLE, comparisons=lines)
    sizes, volumes = [one.size for one in rows], [one.step_payload for one in rows]
    (slope,) = whole.of(SIZE)
    printed_slope = f"{theirs.slope:g}; {SYNCHRONOUS:g} by theory of synchronous SGD"
    return Section(
        title=_TITLE,
        text=(
            f"Ordinary least squares over {whole.rows} points, each what hosts were captured to send in a step "
            "(payload, mean over its windows), against the model's size for ten classes. Indicators stand against "
            f"{whole.base[FRAMEWORK]}, a batch of {whole.base[SAMPLES]} and {whole.base[TOPOLOGY]}."
        ),
        comparisons=(
            near("R2", whole.r2, theirs.r2, within=R2_WITHIN, source=theirs.source),
            near(
                "MB a step for a MB of the model",
                slope.estimate,
                theirs.slope,
                within=SLOPE_WITHIN,
                shown=printed_slope,
                source=theirs.source,
            ),
            near(
                "correlation of volume and model size",
                float(np.corrcoef(sizes, volumes)[0, 1]),
                theirs.correlation,
                within=CORRELATION_WITHIN,
                source=theirs.source,
            ),
            *_significance(whole),
        ),
        tables=(_coefficients(whole),),
    )


_TITLE = "Equation 1: what a step sends"


def _significance(whole: Regression) -> Iterator[Comparison]:
    source = "section VI"
    (slope,) = whole.of(SIZE)
    yield holds(
        "the model's size is significant",
        true=slope.significant,
        ours=_told(slope),
        printed="significant",
        source=source,
    )
    for name in (SAMPLES, TOPOLOGY):
        mine = whole.of(name)
        if not mine:
            yield not_measured(f"{name} is insignificant", "insignificant", source=source)
            continue
        yield holds(
            f"{name} is insignificant",
            true=not any(one.significant for one in mine),
            printed="insignificant",
            ours="; ".join(f"{one.level}: {_told(one)}" for one in mine),
            source=source,
        )
    pairs = [one for one in whole.of(FRAMEWORK) if one.level == PAIRS]
    others = [one for one in whole.of(FRAMEWORK) if one.level != PAIRS]
    for one in pairs:
        yield holds(
            "pair averaging sends significantly less",
            ours=_told(one),
            printed="significant, negative",
            true=one.significant and one.estimate.value < 0,
            source=source,
        )
    if others:
        yield holds(
            "no other framework is significant",
            true=not any(one.significant for one in others),
            ours="; ".join(f"{one.level}: {_told(one)}" for one in others),
            printed="insignificant",
            source=source,
        )


def _coefficients(whole: Regression) -> Table:
    rows: Rows = [
        (
            one.name or "intercept",
            one.level or "-",
            number(one.estimate.value),
            f"{number(one.estimate.low)} to {number(one.estimate.high)}",
            f"{one.p:.2g}",
        )
        for one in (whole.intercept, *whole.coefficients)
    ]
    at_zero = "p: the probability of a coefficient as far from 0 were it 0 (Student's t)."
    return Table(
        "Coefficients",
        f"MB a step, with 95 % intervals. {at_zero}",
        ("regressor", "level", "coefficient", "95 %", "p"),
        rows,
    )


def _told(one: Coefficient) -> str:
    return f"{number(one.estimate.value)} ({number(one.estimate.low)} to {number(one.estimate.high)})"
