"""Equation 1: bytes a step, regressed on the model's size, the framework, the batch and the topology."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from orchestrator.analysis.stats import linear
from orchestrator.analysis.stats.agreement import over_runs, repetitions
from orchestrator.analysis.stats.linear import Regression
from orchestrator.papers.zerwas.frameworks import BATCH, CLASSES, PAIRS, RINGS, SERVERS, Measured
from orchestrator.papers.zerwas.published import Zerwas
from orchestrator.papers.zerwas.volumes import SYNCHRONOUS
from orchestrator.report.study.content import Comparison, Rows, Section, Table, cannot_tell, claimed, judged, number

SIZE, FRAMEWORK, SAMPLES, TOPOLOGY = "Model_Size", "Framework_Backend", "Batch_Size", "Comm_Topology"
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
    return _fitted(rows, [one.step_payload for one in rows])


def _fitted(rows: Sequence[Measured], payloads: Sequence[float]) -> Regression | None:
    return linear.fit(
        [payload / 1e6 for payload in payloads],
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
    """Compare the regression with the printed one: it is fitted to each repetition of all points by itself."""
    theirs, rows = printed.regression, sorted(rows_of(found), key=_base_first)
    whole = fit(found)
    if whole is None:
        why = f"{len(rows)} points do not tell the regressors apart" if rows else "nothing measured: no captured bytes"
        line = cannot_tell(printed.check("slope"), "the regression", f"R2 {theirs.r2:g}", source=theirs.source, why=why)
        return Section(title=_TITLE, comparisons=(line,))
    sizes = [one.size for one in rows]
    each = repetitions(one.step_payloads for one in rows)
    fits = [of for payloads in each if (of := _fitted(rows, payloads)) is not None]
    return Section(
        title=_TITLE,
        text=(
            f"Ordinary least squares over {whole.rows} points, each what hosts were captured to send in a step "
            "(payload), against the model's size for ten classes. Indicators stand against "
            f"{whole.base[FRAMEWORK]}, a batch of {whole.base[SAMPLES]} and {whole.base[TOPOLOGY]}. What is judged is "
            f"fitted to each of {len(fits)} repetitions of all points by itself; the table is of their means."
        ),
        comparisons=(
            judged(printed.check("r2"), "R2", over_runs(of.r2 for of in fits), theirs.r2, source=theirs.source),
            judged(
                printed.check("slope"),
                "MB a step for a MB of the model",
                over_runs(of.of(SIZE)[0].estimate.value for of in fits),
                theirs.slope,
                shown=f"{theirs.slope:g}; {SYNCHRONOUS:g} by theory of synchronous SGD",
                source=theirs.source,
            ),
            judged(
                printed.check("correlation"),
                "correlation of volume and model size",
                over_runs(float(np.corrcoef(sizes, payloads)[0, 1]) for payloads in each),
                theirs.correlation,
                source=theirs.source,
            ),
            *_indicators(whole, fits, float(np.mean([one.step_payload for one in rows])) / 1e6, printed),
        ),
        tables=(_coefficients(whole),),
    )


_TITLE = "Equation 1: what a step sends"


def _indicators(whole: Regression, fits: Sequence[Regression], mean_mb: float, printed: Zerwas) -> Iterator[Comparison]:
    """Compare each level of a category with what the paper says of it, as a share of the mean volume."""
    source, none = "section VI", printed.check("no-effect")
    for name in (FRAMEWORK, SAMPLES, TOPOLOGY):
        levels = whole.of(name)
        if not levels:
            yield cannot_tell(none, f"{name} changes the volume", "insignificant", source=source)
        for place, level in enumerate(levels):
            less = level.level == PAIRS
            yield claimed(
                printed.check("pairs-less") if less else none,
                f"{name} {level.level} changes the volume, share of the mean one",
                over_runs(of.of(name)[place].estimate.value / mean_mb for of in fits),
                printed="significant, negative" if less else "insignificant",
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
