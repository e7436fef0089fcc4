"""Tables of predictions: every setting with its prediction, what was measured, and the difference by term."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.parts.terms import NAMES
from orchestrator.predict.predicttext import PredictedSetting
from tests.bench.figure import Table

SETTINGS = ("setting", "predicted (ms)", "its interval (ms)", "measured (ms)", "error", "not hidden")
TERMS = "By term: ms of rank 0, predicted / measured (bold: more than 20 % of the term and 3 % of the iteration apart)"


def settings_table(found: Sequence[PredictedSetting]) -> Table:
    """Return a line for each setting that was measured; `not hidden` is communication while no rank computed."""
    rows = [
        (
            f"`{one.label}`",
            _ms(one.prediction.iteration_s),
            f"{_ms(one.prediction.low_s)} to {_ms(one.prediction.high_s)}",
            _ms(one.measured.iteration_s),
            f"{one.error:+.1%}",
            f"{one.measured.terms.exposed_s / one.measured.iteration_s:.0%}",
        )
        for one in found
        if one.measured is not None
    ]
    return Table(title="Every setting", columns=SETTINGS, rows=tuple(rows))


def terms_table(found: Sequence[PredictedSetting], off: Sequence[dict[str, float]]) -> Table:
    """Return a line for each setting; `off` has its terms as shares of how far they may be apart."""
    names = [name.removesuffix("_s") for name in NAMES]
    rows = []
    for one, apart in zip(found, off, strict=True):
        if one.measured is not None:
            theirs, own = one.measured.terms.parts(), one.prediction.terms.parts()
            cells = (_cell(own[name], theirs[name], apart.get(name, 0.0)) for name in names)
            rows.append((f"`{one.label}`", *cells))
    return Table(title=TERMS, columns=("setting", *names), rows=tuple(rows))


def _cell(predicted_s: float, measured_s: float, apart: float) -> str:
    if not predicted_s and not measured_s:
        return ""
    told = f"{_ms(predicted_s)} / {_ms(measured_s)}"
    return f"**{told}**" if apart > 1 else told


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}"
