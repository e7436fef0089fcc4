"""The page `docs/predictions.md`: every setting with its prediction, what was measured, and the difference by term."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from orchestrator.parts.terms import NAMES
from orchestrator.predict.predicttext import PredictedSetting

HEAD = """\
# Predictions beside measurements

Written by `python -m tests.bench predict`: what `orch predict` says of settings that nothing was fitted to, beside runs
of them on four hosts of this machine at scale 100. Costs of communication were fitted to five benchmarks of
`collective` (rings at three link rates; four groups at once, within hosts and across); compute is emulated. Ranks ran
at real-time priority, since the machine had other work: without it a run on a busy machine takes longer than is
predicted, above all where it sends many small messages. `4x2`: eight ranks on four hosts; `2x4`: on two, so that the
mapping decides whether stages or replicas are on different hosts.
"""
TERMS = """\
By term: milliseconds of rank 0, predicted / measured. **Bold**: further apart than 20 % of the term and 3 % of the
iteration.
"""


def written(found: Sequence[PredictedSetting], off: Sequence[dict[str, float]]) -> str:
    """The page; `off` has each setting's terms as shares of how far they may be apart."""
    return "\n".join([HEAD, *_summary(found, off), "", *_settings(found), "", TERMS, *_terms(found, off), ""])


def _summary(found: Sequence[PredictedSetting], off: Sequence[dict[str, float]]) -> Iterator[str]:
    errors = [abs(one.error) for one in found if one.error is not None]
    worst = max(found, key=lambda one: abs(one.error or 0.0))
    terms = [share for one in off for share in one.values()]
    exposed = [one for one in found if _exposed(one) >= 0.3]
    yield f"- {len(errors)} settings: mean error of the iteration time {statistics.fmean(errors):.1%} (goal 10 %),"
    yield f"  largest {max(errors):.1%} (`{worst.label}`)."
    mean = f"{statistics.fmean(abs(one.error or 0.0) for one in exposed):.1%}" if exposed else "none"
    yield f"- Communication that nothing hides takes 30 % of the iteration or more in {len(exposed)} of them:"
    yield f"  mean error {mean}."
    yield f"- {sum(share <= 1 for share in terms)} of {len(terms)} terms are within 20 % or 3 % of the iteration."


def _exposed(one: PredictedSetting) -> float:
    return 0.0 if one.measured is None else one.measured.terms.exposed_s / one.measured.iteration_s


def _settings(found: Sequence[PredictedSetting]) -> Iterator[str]:
    yield "| setting | predicted (ms) | its interval | measured (ms) | error | not hidden |"
    yield "|---|---|---|---|---|---|"
    for one in found:
        if one.measured is not None:
            own = one.prediction
            yield (
                f"| `{one.label}` | {_ms(own.iteration_s)} | {_ms(own.low_s)} to {_ms(own.high_s)} "
                f"| {_ms(one.measured.iteration_s)} | {one.error:+.1%} | {_exposed(one):.0%} |"
            )


def _terms(found: Sequence[PredictedSetting], off: Sequence[dict[str, float]]) -> Iterator[str]:
    names = [name.removesuffix("_s") for name in NAMES]
    yield f"| setting | {' | '.join(names)} |"
    yield "|---|" + "---|" * len(names)
    for one, apart in zip(found, off, strict=True):
        if one.measured is not None:
            theirs, own = one.measured.terms.parts(), one.prediction.terms.parts()
            cells = [_cell(own[name], theirs[name], apart.get(name, 0.0)) for name in names]
            yield f"| `{one.label}` | {' | '.join(cells)} |"


def _cell(predicted_s: float, measured_s: float, apart: float) -> str:
    if not predicted_s and not measured_s:
        return ""
    told = f"{_ms(predicted_s)} / {_ms(measured_s)}"
    return f"**{told}**" if apart > 1 else told


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}"
