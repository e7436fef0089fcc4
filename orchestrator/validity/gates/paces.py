"""Gates `period` and `offset`: iterations of jobs began every so often, and so long after those of another job."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.core.units import span_text
from orchestrator.store.manifests.records import Gate
from orchestrator.store.manifests.summaries import JobPace, Training, known
from orchestrator.validity.declaration import GateSpec, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "paces"
ORDER = 190
# CASSINI (Rajasekaran et al., NSDI 2024) shifts a training anew once it is off by more than this share of an iteration.
MOST_OFF = 0.05
GATES = (
    GateSpec(
        name="period",
        passes="iterations of a job with a period began at their turns",
        limit="a twentieth of the period, on the mean",
        remedy="Its iterations take longer than its period, alone or beside the other jobs: ask for a longer `every`.",
    ),
    GateSpec(
        name="offset",
        passes="iterations of a job began as long after those of another one as was asked",
        limit="a twentieth of the other job's period, on the mean, where periods hold the offset; else a remark",
        remedy="Give both jobs the same `every`, longer than either's iterations beside the other.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give both verdicts for each job with such a pace; one whose offset nothing holds gets a remark."""
    for row in window.training:
        pace = window.manifest.job(row.job).pace
        if pace is not None and pace.every_s is not None:
            yield _period(row, pace.every_s)
        if pace is not None and pace.after:
            yield _offset(row, pace, window.manifest.job(pace.after).pace)


def _period(row: Training, every_s: float) -> Gate:
    late_s, period_s = known(row.late_s), known(row.period_s)
    if math.isnan(late_s):
        return verdict(
            "period", None, f"job {row.job}: too few iterations to tell its period", measured=math.nan, limit=MOST_OFF
        )
    share = late_s / every_s
    text = (
        f"job {row.job}: iterations begin every {span_text(period_s)}, {span_text(late_s)} after their turn, of "
        f"{span_text(every_s)} that were asked"
    )
    return verdict("period", share <= MOST_OFF, text, measured=share, limit=MOST_OFF)


def _offset(row: Training, pace: JobPace, other: JobPace | None) -> Gate:
    off_s, offset_s = known(row.off_s), known(row.offset_s)
    text = f"job {row.job}: iterations begin {span_text(offset_s)} after those of {pace.after}"
    if not math.isnan(known(row.offset_low_s)):
        text += f" (95 %: {span_text(known(row.offset_low_s))} to {span_text(known(row.offset_high_s))})"
    text += f", {span_text(off_s)} off the {span_text(pace.by_s)} that were asked"
    if math.isnan(off_s):
        return verdict(
            "offset", None, f"job {row.job}: no iterations to tell its offset", measured=math.nan, limit=MOST_OFF
        )
    if not pace.held or other is None or other.every_s is None:
        return verdict(
            "offset", None, f"{text}: no common period holds it", measured=math.nan, limit=None, required=False
        )
    share = off_s / other.every_s
    return verdict("offset", share <= MOST_OFF, text, measured=share, limit=MOST_OFF)
