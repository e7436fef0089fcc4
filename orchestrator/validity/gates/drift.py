"""Gate `drift`: the iteration time has no trend over the window."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from orchestrator.core.fields import Share
from orchestrator.store.manifests.records import Gate, Truncation
from orchestrator.store.manifests.summaries import known
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "drift"
ORDER = 20
SIGNIFICANCE = 0.01
NOTED = 0.01  # of the iteration time, the smallest significant drift that is remarked upon
MOST = Limit(
    key="drift",
    kind=Share | Literal["ignore"],
    default=0.05,
    help='Largest trend of the iteration time from a window\'s beginning to its end; "ignore" only notes it.',
)
GATES = (
    GateSpec(
        name="drift",
        passes="the iteration time has no trend from the window's beginning to its end",
        limit=MOST,
        remedy="Something warms up, fills up or is throttled. Find it, or use a larger `warmup_most`. Below the "
        "limit a significant trend of 1 % or more is a remark.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each job: a trend counts when it is significant and above the limit, and is noted above NOTED.

    Where MSER-5 would have left out half of all iterations or more, that is told.
    """
    limit = MOST.number(window.manifest.validity)
    for row in window.training:
        share, low, high, p = (known(value) for value in (row.drift, row.drift_low, row.drift_high, row.drift_p))
        if math.isnan(share):
            text = f"job {row.job}: too few iterations to tell a drift"
            yield verdict("drift", None, text, measured=math.nan, limit=limit, required=False)
            continue
        size = abs(share) if p <= SIGNIFICANCE else 0.0
        text = f"job {row.job}: from the window's beginning to its end the iteration time drifts by {share:+.1%}"
        text += f" (95 %: {low:+.1%} to {high:+.1%})"
        rule = window.record.mser.get(row.job, Truncation())
        if size >= NOTED and rule.unbounded is not None and 2 * rule.unbounded >= rule.samples:
            text += f"; no steady state in sight (MSER-5 would leave out {rule.unbounded} of {rule.samples})"
        fails = limit is not None and size > limit
        text += f", more than {limit:.3g} of it" if fails else ""
        steady = size < NOTED and not fails
        required = fails or (steady and limit is not None)
        yield verdict("drift", steady, text, measured=share, limit=limit, required=required)
