"""How jobs keep to their pace: periods and offsets of iterations, measured and judged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.windows import paces
from orchestrator.store.manifests.summaries import Training
from orchestrator.validity.gates import paces as gates
from tests.helpers import gate_windows, manifests

EVERY_S = 0.4


def made(name, starts_s):
    starts_ns = np.round(np.asarray(starts_s) * 1e9).astype(np.int64) + 1_795_000_000_000_000_000
    nothing = np.zeros(len(starts_ns))
    return JobSeries(
        job=name,
        ranks=(0, 1),
        iteration=np.arange(len(starts_ns)),
        seconds=nothing + 0.3,
        compute_s=nothing,
        wait_s=nothing,
        start_ns=starts_ns,
        end_ns=starts_ns + 300_000_000,
        incomplete=0,
    )


def job(name, **pace):
    return {"name": name, "workload": "ddp", "ranks": [], **({"pace": pace} if pace else {})}


JOBS = [job("a", every_s=EVERY_S), job("b", every_s=EVERY_S, after="a", by_s=0.1, held=True)]
RNG = np.random.default_rng(5)
TURNS = np.arange(60) * EVERY_S


def kept(name, first, second, jobs=JOBS, *, within=(10, 59)):
    whole = {"a": made("a", first), "b": made("b", second)}
    return paces.kept(manifests.made(jobs=jobs).job(name), whole[name].within(*within), whole)


def test_iterations_at_their_turns_have_the_period_and_the_offset_that_were_asked():
    late = RNG.exponential(0.002, 60)
    found = kept("b", TURNS, TURNS + 0.1 + late)
    assert found.period_s == pytest.approx(EVERY_S, abs=1e-3)
    assert found.period_low_s < EVERY_S < found.period_high_s
    assert found.late_s == pytest.approx(late[10:].mean() - late.min(), abs=1e-6)
    assert found.offset_s == pytest.approx(0.1 + late[10:].mean(), abs=1e-6)
    assert found.offset_low_s < found.offset_s < found.offset_high_s
    assert found.off_s == pytest.approx(late[10:].mean(), abs=1e-6)


@pytest.mark.parametrize("periods", [-2, -1, 1, 3])
def test_whole_periods_more_or_less_are_the_same_offset(periods):
    found = kept("b", TURNS, TURNS + 0.1 + periods * EVERY_S)
    assert (found.offset_s, found.off_s) == (pytest.approx(0.1), pytest.approx(0, abs=1e-6))


def test_iterations_after_the_other_job_has_ended_tell_nothing():
    assert kept("b", TURNS[:30], TURNS + 0.1).off_s == pytest.approx(0, abs=1e-6)
    assert kept("b", TURNS[:5], TURNS + 0.1).off_s is None


def test_an_early_iteration_is_before_the_offset_not_nearly_a_period_behind_it():
    found = kept("b", TURNS, TURNS + 0.1 - 0.003)
    assert (found.offset_s, found.off_s) == (pytest.approx(0.097), pytest.approx(0.003))


def test_a_job_that_is_slower_than_its_period_is_later_each_time():
    found = kept("a", np.arange(60) * 0.41, TURNS)
    assert found.period_s == pytest.approx(0.41)
    assert found.late_s == pytest.approx(np.mean(np.arange(10, 60)) * 0.01)


def test_a_job_without_a_pace_and_a_window_without_iterations_have_none():
    assert kept("a", TURNS, TURNS, [job("a"), job("b")]) == paces.Kept()
    assert kept("b", TURNS, TURNS, within=(0, -1)) == paces.Kept()


# The gates


def judged(jobs=JOBS, **figures):
    row = Training(job="b", iterations=50, mean_s=0.3, p50_s=0.3, p99_s=0.3, **figures)
    return gate_windows.judged(gates, manifest=manifests.made(jobs=jobs), training=(row,))


GOOD = {
    "period_s": 0.4,
    "late_s": 0.002,
    "offset_s": 0.102,
    "off_s": 0.003,
    "offset_low_s": 0.1,
    "offset_high_s": 0.104,
}


def test_what_was_asked_and_is_held_passes():
    period, offset = judged(**GOOD)
    assert (period.passed, offset.passed, offset.required) == (True, True, True)
    assert offset.message == (
        "job b: iterations begin 102 ms after those of a (95 %: 100 ms to 104 ms), 3 ms off the 100 ms that were asked"
    )


def test_a_twentieth_of_the_period_is_the_limit():
    assert [gate.passed for gate in judged(**{**GOOD, "late_s": 0.0199, "off_s": 0.0199})] == [True, True]
    assert [gate.passed for gate in judged(**{**GOOD, "late_s": 0.0201, "off_s": 0.0201})] == [False, False]


def test_an_offset_that_nothing_holds_is_a_remark():
    free = [job("a"), job("b", after="a", by_s=0.1)]
    (offset,) = judged(free, offset_s=0.2, off_s=0.15)
    assert (offset.passed, offset.required) == (None, False)
    assert offset.message.endswith("150 ms off the 100 ms that were asked: no common period holds it")


def test_what_is_not_known_is_not_judged():
    assert [gate.passed for gate in judged(late_s=math.nan)] == [None, None]
