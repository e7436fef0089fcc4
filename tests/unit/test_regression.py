from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.compare.regression import DEFAULT, Pair, RunSeries, compare, holm
from orchestrator.analysis.stats.ranks import Ranks, rank_test


def runs(random, count, *, seconds=0.16, spread=0.005, noise=0.01, iterations=120, name="r"):
    """Runs that differ by `spread`, each a correlated series."""
    made = []
    for number in range(count):
        shocks = random.normal(0, noise, iterations)
        series = np.empty(iterations)
        series[0] = shocks[0]
        for k in range(1, iterations):
            series[k] = 0.5 * series[k - 1] + shocks[k]
        level = seconds * math.exp(random.normal(0, spread))
        made.append(RunSeries(run=f"{name}{number}", seconds=level * np.exp(series)))
    return tuple(made)


def pair(seed, *, slower=1.0, counts=(5, 4), point="p", **shape):
    random = np.random.default_rng(seed)
    return Pair(
        point=point,
        a=runs(random, counts[0], name="a", **shape),
        b=runs(random, counts[1], seconds=0.16 * slower, name="b", **shape),
    )


@pytest.mark.parametrize(("slower", "verdict"), [(1.06, "worse"), (0.94, "better"), (1.0, "same")])
def test_a_point_is_told(slower, verdict):
    (found,) = compare([pair(1, slower=slower)])
    assert found.verdict == verdict
    change = found.change("p50")
    assert change.low < change.ratio < change.high
    assert change.ratio == pytest.approx(slower, rel=0.02)


def test_one_run_a_side_is_never_the_same_and_says_so():
    (found,) = compare([pair(1, counts=(1, 1))])
    assert found.verdict == "cannot tell"
    assert "one run a side" in found.why


def test_one_run_a_side_tells_nothing_however_much_they_differ():
    (found,) = compare([pair(1, counts=(1, 1), slower=3.0)])
    assert (found.verdict, found.why) == ("cannot tell", "one run a side: the spread between runs is not known")
    change = found.change("p50")
    assert change.ratio == pytest.approx(3.0, rel=0.1)
    assert all(map(math.isnan, (change.low, change.high, change.p, change.p_holm)))


@pytest.mark.parametrize(("slower", "verdict"), [(2.0, "worse"), (0.5, "better")])
def test_two_runs_a_side_show_a_change_of_twice_where_ranks_cannot(slower, verdict):
    told = []
    for seed in range(10):
        apart = pair(seed, counts=(2, 2), slower=slower, spread=0.02, noise=0.0005)
        assert rank_test(*([one.seconds for one in side] for side in (apart.a, apart.b))).least_p > DEFAULT.alpha
        told += [found.change("p50").verdict for found in compare([apart])]
    assert told.count(verdict) >= 9


def test_two_equal_runs_a_side_rarely_raise_an_alarm():
    nights = [compare([pair(seed, counts=(2, 2), spread=0.05, iterations=40)])[0].verdict for seed in range(40)]
    assert sum(verdict in ("worse", "better") for verdict in nights) <= 5


def test_ranks_that_could_have_told_a_difference_deny_it():
    assert Ranks(superiority=0.6, p=0.2, least_p=0.01).deny(0.05)
    assert not Ranks(superiority=1.0, p=0.01, least_p=0.01).deny(0.05)
    assert not Ranks(superiority=1.0, p=0.12, least_p=0.12).deny(0.05)
    assert rank_test([], []).deny(0.05), "a test that could not be made agrees with nothing"


def test_windows_of_one_run_are_one_run():
    random = np.random.default_rng(1)
    same_run = tuple(RunSeries(run="a0", seconds=one.seconds) for one in runs(random, 4))
    (found,) = compare([Pair(point="p", a=same_run, b=runs(random, 1, name="b"))])
    assert found.runs == (1, 1)
    assert found.verdict == "cannot tell"


def test_runs_that_differ_widely_give_no_verdict_of_sameness():
    (found,) = compare([pair(2, counts=(3, 3), spread=0.05)])
    assert found.verdict == "cannot tell"


def test_a_small_sure_change_is_the_same_and_not_worse():
    (found,) = compare([pair(3, slower=1.008, counts=(8, 8), spread=0.001)])
    assert found.verdict == "same"


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_point_that_one_side_lacks_cannot_be_told(side):
    whole = pair(1)
    (found,) = compare([Pair(point="p", a=() if side == "a" else whole.a, b=() if side == "b" else whole.b)])
    assert found.verdict == "cannot tell"
    assert math.isnan(found.change("p50").ratio)


def test_no_p99_is_told_of_runs_whose_p99_is_their_maximum():
    (found,) = compare([pair(1, iterations=60)])
    assert found.change("p99").verdict == "cannot tell"
    assert found.verdict == "same"


def test_a_worse_tail_is_worse_even_with_an_equal_median():
    random = np.random.default_rng(5)

    def with_tail(one):
        seconds = one.seconds.copy()
        seconds[::40] *= 2
        return RunSeries(run=one.run, seconds=seconds)

    a = runs(random, 6, iterations=200)
    b = tuple(with_tail(one) for one in runs(random, 6, iterations=200, name="b"))
    (found,) = compare([Pair(point="p", a=a, b=b)])
    assert (found.verdict, found.why) == ("worse", "p99 slower")
    assert found.change("p50").verdict == "same"


def test_other_points_steady_a_point_with_one_run_a_side():
    alone = pair(7, counts=(1, 1), point="single")
    (without,) = compare([alone])
    found = {one.point: one for one in compare([alone, pair(8, point="many")])}
    assert "one run a side" in without.why
    assert found["single"].why != without.why


def test_the_same_seed_gives_the_same_result():
    assert compare([pair(4)], seed=3) == compare([pair(4)], seed=3)


def test_many_equal_points_rarely_raise_any_alarm():
    alarms = 0
    for night in range(40):
        points = [pair(1000 * night + k, counts=(3, 3), point=str(k), iterations=40) for k in range(3)]
        alarms += any(found.verdict in ("worse", "better") for found in compare(points))
    assert alarms <= 4


def test_holm_steps_down_and_keeps_order():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


def test_ranks_count_independent_iterations_only():
    random = np.random.default_rng(1)
    walk = np.cumsum(random.normal(0, 0.001, 400)) + 0.2
    correlated = rank_test([walk], [walk[::-1] + 0.002])[1]
    shuffled = rank_test([random.permutation(walk)], [random.permutation(walk) + 0.002])[1]
    assert correlated > shuffled


def test_ranks_of_runs_that_differ_are_no_evidence():
    random = np.random.default_rng(1)

    def side():
        return [one.seconds for one in runs(random, 3, spread=0.05)]

    found = [rank_test(side(), side())[1] for _ in range(20)]
    assert sum(p < 0.05 for p in found) <= 4


def test_ranks_of_nothing_are_not_known():
    assert all(math.isnan(value) for value in rank_test([], [np.ones(20)]))


def test_a_run_that_was_cut_short_does_not_hide_the_others():
    whole = pair(1)
    short = RunSeries(run="short", seconds=np.full(3, 0.5))
    (found,) = compare([Pair(point="p", a=(*whole.a, short), b=whole.b)])
    assert found.change("p50").ratio == compare([whole])[0].change("p50").ratio


def test_the_default_rule_has_margins_for_both_statistics():
    assert set(DEFAULT.margin) == {"p50", "p99"}
