from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.analysis.compare.regression import DEFAULT, STATISTICS, Pair, RunSeries, compare, unit_of


def runs(random, count, *, seconds=0.16, spread=0.005, noise=0.01, iterations=120, name="r"):
    """Runs that differ by `spread`, each a correlated series; runs of "a" and "b" in turn."""
    made = []
    for number in range(count):
        shocks = random.normal(0, noise, iterations)
        series = np.empty(iterations)
        series[0] = shocks[0]
        for k in range(1, iterations):
            series[k] = 0.5 * series[k - 1] + shocks[k]
        level = seconds * math.exp(random.normal(0, spread))
        began = 2 * number + (name == "b")
        made.append(RunSeries(run=f"{name}{number}", seconds=level * np.exp(series), began_ns=began))
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
    assert all(map(math.isnan, (change.low, change.high, change.p, change.p_adjusted)))


@pytest.mark.parametrize(("slower", "verdict"), [(2.0, "worse"), (0.5, "better")])
def test_two_runs_a_side_show_a_change_of_twice(slower, verdict):
    told = []
    for seed in range(10):
        apart = pair(seed, counts=(2, 2), slower=slower, spread=0.02, noise=0.0005)
        told += [found.change("p50").verdict for found in compare([apart])]
    assert told.count(verdict) >= 9


def test_two_equal_runs_a_side_rarely_raise_an_alarm():
    nights = [compare([pair(seed, counts=(2, 2), spread=0.05, iterations=40)])[0].verdict for seed in range(40)]
    assert sum(verdict in ("worse", "better") for verdict in nights) <= 5


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
        return replace(one, seconds=seconds)

    a = runs(random, 6, iterations=200, name="a")
    b = tuple(with_tail(one) for one in runs(random, 6, iterations=200, name="b"))
    (found,) = compare([Pair(point="p", a=a, b=b)])
    assert found.verdict == "worse"
    assert found.change("p99").why == "p99 slower"
    assert found.change("p50").verdict == "same"


def test_one_run_a_side_stays_untold_whatever_other_points_know():
    alone = pair(7, counts=(1, 1), point="single", slower=3.0)
    found = {one.point: one for one in compare([alone, pair(8, point="many")])}
    assert found["single"].verdict == "cannot tell"
    assert math.isnan(found["single"].change("p50").detectable)


def test_many_equal_points_rarely_raise_any_alarm():
    alarms = 0
    for night in range(40):
        points = [pair(1000 * night + k, counts=(3, 3), point=str(k), iterations=40) for k in range(3)]
        alarms += any(found.verdict in ("worse", "better") for found in compare(points))
    assert alarms <= 4


def test_a_run_that_was_cut_short_does_not_hide_the_others():
    whole = pair(1)
    short = RunSeries(run="short", seconds=np.full(3, 0.5))
    (found,) = compare([Pair(point="p", a=(*whole.a, short), b=whole.b)])
    assert found.change("p50").ratio == compare([whole])[0].change("p50").ratio


def test_the_default_rule_has_margins_for_all_statistics():
    assert set(DEFAULT.margin) == set(STATISTICS)


# Nights


def night_pair(
    random,
    point,
    *,
    nights=5,
    night_spread=0.01,
    run_spread=0.004,
    runs=3,
    slower=1.0,
    last_runs=None,
    confirmed=False,
    odd=0.0,
):
    """A point in a baseline of some nights, of which one may be odd, and a later night, with the night before it."""
    sides = []
    for number in range(nights + 1 + confirmed):
        level = 0.16 * math.exp(random.normal(0, night_spread)) * (slower if number >= nights else 1.0)
        level *= 1 + odd * (number == 1)
        sides.append(
            tuple(
                RunSeries(
                    run=f"{number}-{k}",
                    night=str(number),
                    seconds=np.full(40, level * math.exp(random.normal(0, run_spread))),
                )
                for k in range((last_runs or runs) if number == nights + confirmed else runs)
            )
        )
    before = sides[nights] if confirmed else ()
    return Pair(point=point, a=tuple(one for side in sides[:nights] for one in side), b=sides[-1], before=before)


def night_verdicts(seed, repetitions, *, slower=1.0, noisy=None, points=6, **shape):
    """The verdicts on `points` points in as many nights; the last point is noisy, and never slower, where `noisy`."""
    random = np.random.default_rng(seed)
    for _ in range(repetitions):
        pairs = [night_pair(random, str(k), slower=slower, **shape) for k in range(points - bool(noisy))]
        if noisy:
            pairs.append(night_pair(random, "noisy", **shape | {"run_spread": noisy}))
        yield [found.verdict for found in compare(pairs)]


@pytest.mark.parametrize(("nights", "spread"), [(1, 0.01), (1, 0.02), (5, 0.01), (5, 0.02)])
def test_equal_nights_that_differ_as_nights_do_are_not_called_worse(nights, spread):
    alarms = sum("worse" in found for found in night_verdicts(1, 60, nights=nights, night_spread=spread))
    assert alarms <= 1


@pytest.mark.parametrize("shape", [{}, {"noisy": 0.15}, {"odd": 0.05}])
def test_ten_per_cent_is_found_in_two_nights_whatever_one_point_or_one_baseline_night_does(shape):
    told = [found[:5] for found in night_verdicts(2, 40, slower=1.1, night_spread=0.004, confirmed=True, **shape)]
    assert np.mean([any(verdict == "worse" for verdict in found) for found in told]) >= 0.95


def test_one_night_alone_may_be_odd_and_another_decides():
    (found,) = compare([night_pair(np.random.default_rng(3), "p", slower=1.1, night_spread=0.004)])
    assert found.verdict == "cannot tell"
    assert "one night more that is like it decides" in found.why


def test_an_odd_night_of_the_baseline_is_named():
    (found,) = compare([night_pair(np.random.default_rng(3), "p", night_spread=0.004, odd=0.05)])
    assert found.odd == ("1",)


def test_longer_iterations_that_leave_the_median_alone_are_told_by_the_mean():
    random = np.random.default_rng(11)

    def nights(first, count, every):
        series = []
        for night in range(first, first + count):
            level = 0.16 * math.exp(random.normal(0, 0.003))
            for run in range(3):
                seconds = level * np.exp(random.normal(0, 0.01, 120))
                seconds[::every] *= 2
                series.append(RunSeries(run=f"{night}-{run}", night=str(night), seconds=seconds))
        return tuple(series)

    (found,) = compare([Pair(point="p", a=nights(0, 6, 33), b=nights(6, 6, 6))])
    assert (found.verdict, found.why) == ("worse", "mean slower")
    assert found.change("p50").verdict == "same"


@pytest.mark.parametrize(("rare", "points"), [(0.001, 6), (0.002, 24)])
def test_rare_stalls_of_equal_nights_raise_no_alarm(rare, points):
    random = np.random.default_rng(12)
    alarms = 0
    for _ in range(60):
        pairs = []
        for point in range(points):
            sides = [
                tuple(
                    RunSeries(
                        run=f"{night}-{run}",
                        night=str(night),
                        seconds=0.16 * np.exp(random.normal(0, 0.01, 100)) * (1 + 0.5 * (random.random(100) < rare)),
                    )
                    for night in nights
                    for run in range(3)
                )
                for nights in (range(5), (6,), (5,))
            ]
            pairs.append(Pair(point=str(point), a=sides[0], b=sides[1], before=sides[2]))
        alarms += any(found.verdict == "worse" for found in compare(pairs))
    assert not alarms


@pytest.mark.parametrize("sequence", ["apart", "in turn"])
@pytest.mark.parametrize("count", [6, 20])
def test_equal_sides_of_a_day_that_drifts_are_not_called_different(sequence, count):
    random = np.random.default_rng(13)
    different = 0
    for _ in range(60):
        logs = 0.01 * np.arange(2 * count) + random.normal(0, 0.002, 2 * count)
        made = [RunSeries(run=str(k), seconds=np.full(20, math.exp(log)), began_ns=k) for k, log in enumerate(logs)]
        sides = (made[:count], made[count:]) if sequence == "apart" else (made[::2], made[1::2])
        (found,) = compare([Pair(point="p", a=tuple(sides[0]), b=tuple(sides[1]))])
        different += found.verdict in ("worse", "better")
    assert different <= 3


def test_a_noisy_point_leaves_equal_nights_the_same():
    told = [found[:5] for found in night_verdicts(3, 20, night_spread=0.001, noisy=0.15)]
    assert np.mean([verdict == "same" for found in told for verdict in found]) >= 0.9


def test_a_night_of_fewer_runs_counts_for_less():
    random = np.random.default_rng(4)
    shape = {"night_spread": 0.0, "run_spread": 0.02, "runs": 8}
    whole, short = (compare([night_pair(random, "p", last_runs=runs, **shape)])[0].change("p50") for runs in (8, 1))
    assert math.log(short.high / short.low) > 1.5 * math.log(whole.high / whole.low)


def test_a_baseline_of_one_night_says_what_it_assumes():
    (found,) = compare([night_pair(np.random.default_rng(5), "p", nights=1, slower=1.3)])
    assert (found.verdict, found.why) == ("worse", "mean slower, if nights differ by 2% at most")
    assert math.isnan(found.change("p50").low), "what nights differ by is not known, and no interval is shown"


@pytest.mark.parametrize("spread", [0.002, 0.01])
def test_the_change_that_is_said_to_be_found_is_found(spread):
    random = np.random.default_rng(6)
    found = 0
    for _ in range(80):
        equal = night_pair(random, "p", night_spread=spread)
        least = compare([equal])[0].change("p50").detectable
        slower = night_pair(random, "p", night_spread=spread, slower=least)
        found += compare([Pair(point="p", a=equal.a, b=slower.b)])[0].verdict == "worse"
    assert found >= 0.88 * 80


def test_what_was_measured_in_turn_is_compared_in_pairs():
    random = np.random.default_rng(7)
    drift = np.exp(np.cumsum(random.normal(0, 0.2, 8)))

    def side(name, factor):
        return tuple(
            RunSeries(
                run=f"{name}{k}",
                block=str(k),
                seconds=np.full(40, 0.16 * factor * level * random.normal(1, 0.002)),
                began_ns=2 * k + (name == "b"),
            )
            for k, level in enumerate(drift)
        )

    pairs = [Pair(point="p", a=side("a", 1.0), b=side("b", 1.04))]
    assert unit_of(pairs) == "block"
    assert compare(pairs)[0].verdict == "worse"
    apart = [Pair(point="p", a=pairs[0].a, b=tuple(replace(one, block="") for one in pairs[0].b))]
    assert unit_of(apart) == "run"
    assert compare(apart)[0].verdict == "cannot tell"


@pytest.mark.parametrize("together", [True, False])
def test_intervals_hold_the_ratio_whether_runs_move_points_together_or_not(together):
    random = np.random.default_rng(8)
    held = []
    for _ in range(150):
        common = random.normal(0, 0.01, 6)
        levels = [common if together else random.normal(0, 0.01, 6) for _ in range(4)]
        pairs = [
            Pair(
                point=str(k),
                a=tuple(RunSeries(run=f"a{n}", seconds=np.full(20, math.exp(of[n])), began_ns=2 * n) for n in range(3)),
                b=tuple(
                    RunSeries(run=f"b{n}", seconds=np.full(20, math.exp(of[3 + n])), began_ns=2 * n + 1)
                    for n in range(3)
                ),
            )
            for k, of in enumerate(levels)
        ]
        held += [change.low <= 1 <= change.high for one in compare(pairs) for change in one.changes[:1]]
    assert 0.9 <= np.mean(held) <= 0.99
