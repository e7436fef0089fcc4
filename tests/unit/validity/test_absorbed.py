"""Gate `absorbed`: the rank that did most beside its emulated layers counts, over the iterations of its window."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.analysis.stats.iterations import absorbed, series
from orchestrator.store.manifests.summaries import Training
from orchestrator.validity.gates import absorbed as gate
from tests.helpers.gate_windows import judged


def table(shares: list[float | None], *, iterations: int = 20) -> pa.Table:
    """Return iterations of 100 ms of ranks that absorb such shares."""
    rows = [(rank, one, share) for rank, share in enumerate(shares) for one in range(iterations)]
    begin = [one * 100_000_000 for _, one, _ in rows]
    return pa.table(
        {
            "job": ["training"] * len(rows),
            "rank": [rank for rank, *_ in rows],
            "iteration": [one for _, one, _ in rows],
            "start_ns": begin,
            "end_ns": [at + 100_000_000 for at in begin],
            "seconds": [0.1] * len(rows),
            **{name: [0.0] * len(rows) for name in ("forward_s", "backward_s", "wait_s")},
            "absorbed_s": pa.array([None if share is None else 0.1 * share for *_, share in rows], pa.float64()),
        }
    )


@pytest.mark.parametrize(
    ("shares", "largest"), [([0.02, 0.3, 0.01, 0.01], 0.3), ([None, 0.1], 0.1), ([None] * 2, None)]
)
def test_the_largest_share_of_a_rank_counts(shares, largest):
    given = table(shares)
    found = absorbed(given, series(given, "training"))
    assert found == (None if largest is None else pytest.approx(largest))


def test_iterations_outside_of_the_window_do_not_count():
    given = table([0.1])
    seconds = np.where(np.arange(20) < 10, 0.09, 0.01)
    given = given.set_column(given.schema.get_field_index("absorbed_s"), "absorbed_s", pa.array(seconds))
    assert absorbed(given, series(given, "training").within(10, 19)) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("share", "limit", "passed"), [(0.02, 0.1, True), (0.33, 0.1, False), (0.33, "ignore", True), (0.33, 0.4, True)]
)
def test_it_remarks_on_more_than_the_limit_and_tells_how_much_in_any_case(share, limit, passed):
    row = Training(job="training", iterations=50, mean_s=0.1, p50_s=0.1, p99_s=0.1, absorbed=share)
    (found,) = judged(gate, training=(row,), validity={"absorbed": limit})
    assert (found.passed, found.required, found.measured) == (passed, False, share)
    assert f"for {share:.1%} of an iteration a rank did something else" in found.message


def test_nothing_is_said_where_nothing_is_emulated():
    row = Training(job="training", iterations=50, mean_s=0.1, p50_s=0.1, p99_s=0.1)
    assert judged(gate, training=(row,)) == []
