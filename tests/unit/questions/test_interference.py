"""Interference of two jobs: the shift of each iteration, and the shifts that are chosen."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.questions import changes
from orchestrator.questions import interference as asked
from orchestrator.store.manifests.summaries import Span
from tests.helpers import manifests

BEGAN_NS = 1_795_000_000_000_000_000
SHIFTS = [number / 8 for number in range(8)]


def series(name, begin_s, every_s, count=100):
    starts_ns = BEGAN_NS + np.round((begin_s + np.arange(count) * every_s) * 1e9).astype(np.int64)
    nothing = np.zeros(count)
    return JobSeries(
        job=name, ranks=(0,), iteration=np.arange(count), seconds=nothing + 0.1, compute_s=nothing, wait_s=nothing,
        start_ns=starts_ns, end_ns=starts_ns + 10**8, incomplete=0,
    )  # fmt: skip


def window(begin_s, every_s):
    """A window of a job that begins every 400 ms, and one that begins so much later, and so often."""
    jobs = [
        {"name": name, "workload": "ddp", "ranks": [], "pace": {"every_s": every}}
        for name, every in (("a", 0.4), ("b", every_s))
    ]
    spans = {name: Span(first=10, last=89) for name in ("a", "b")}
    one = SimpleNamespace(manifest=manifests.made(jobs=jobs), record=SimpleNamespace(iterations=spans))
    made = asked.Window(one=one, repetition=1)
    made.__dict__["iterations"] = {"a": series("a", 0.0, 0.4), "b": series("b", begin_s, every_s)}
    return made


@pytest.mark.parametrize(
    ("begin_s", "shift"), [(0.0, 0), (0.1, 2), (0.2, 4), (0.3, 6), (0.39, 0), (0.055, 1), (0.7, 6)]
)
def test_a_shift_is_how_much_later_the_second_job_begins_whichever_is_asked(begin_s, shift):
    held = window(begin_s, 0.4)
    assert set(held.shifts("b", 8)) == {shift}
    assert set(held.shifts("a", 8)) == {shift}


def test_a_job_of_another_period_passes_through_every_shift_and_both_see_the_same():
    moving = window(0.0, 0.405)  # 80 iterations once around
    seen = {job: moving.shifts(job, 8) for job in ("a", "b")}
    for found in seen.values():
        assert np.bincount(found, minlength=8).tolist() == pytest.approx([10] * 8, abs=2)
    # The twentieth iteration of b begins 100 ms after that of a.
    assert seen["a"][10] == seen["b"][10] == 2


def rows(slowdown, repetitions=3, score=lambda shift: 1 - shift):
    return [
        {"pair": "a + b", "training": name, "shift": shift, "repetition": number, "score": score(shift),
         "slowdown": slowdown(name, shift, number)}
        for name in ("a", "b")
        for shift in SHIFTS
        for number in range(1, repetitions + 1)
    ]  # fmt: skip


def test_the_best_shift_is_that_of_both_jobs_together():
    def slowdown(name, shift, _):
        return {"a": 1 + shift, "b": 1 + 2 * (1 - shift)}[name]  # a alone would begin together, both want 7/8

    found = asked.best_shifts(rows(slowdown))
    assert [row["repetition"] for row in found] == [1, 2, 3]
    assert {(row["best"], row["worst"]) for row in found} == {(0.875, 0.0)}
    assert found[0]["gain"] == pytest.approx(0.875 / 2)
    # A score that falls with the shift says the opposite.
    assert (found[0]["best_score"], found[0]["by_score"], found[0]["agrees"]) == (0.0, pytest.approx(-0.875 / 2), -1)


def test_a_score_that_is_right_gains_what_choosing_by_measurement_does():
    (found, *_) = asked.best_shifts(rows(lambda _, shift, __: 2 - shift, score=lambda shift: shift))
    assert found["by_score"] == pytest.approx(found["gain"]) == pytest.approx(0.875)
    assert found["agrees"] == pytest.approx(1)


def test_chance_does_not_choose():
    noise = np.random.default_rng(3)
    gains = [row["gain"] for _ in range(200) for row in asked.best_shifts(rows(lambda *_: 1 + noise.normal(0, 0.1)))]
    assert abs(np.mean(gains)) < 0.02
    assert np.std(gains) > 0.05


def test_one_repetition_chooses_nothing():
    (found,) = asked.best_shifts(rows(lambda *_: 1.0, repetitions=1))
    assert math.isnan(found["gain"])
    assert math.isnan(found["best"])


def test_an_interval_is_that_of_means_over_repetitions():
    # Means of repetitions 1, 2 and 3: t with 2 degrees of freedom is 4.303, the standard error 1 / sqrt(3).
    given = [
        {"pair": pair, "repetition": number, "x": number + off + aside}
        for pair, aside in (("a", 0.0), ("b", 10.0))
        for number in (1, 2, 3)
        for off in (-0.5, 0.5)
    ]
    found = changes.interval(given, column="x", by=["pair"])
    assert [row["x"] for row in found] == [row["x"] for row in given]
    for pair, middle in (("a", 2), ("b", 12)):
        (ends,) = {(row["x_low"], row["x_high"]) for row in found if row["pair"] == pair}
        assert ends == pytest.approx((middle - 4.303 / math.sqrt(3), middle + 4.303 / math.sqrt(3)), abs=1e-3)
    alone = changes.interval(given[:2], column="x", by=["pair"])
    assert math.isnan(alone[0]["x_low"])
