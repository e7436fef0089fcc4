from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.traffic import periodicity

MS = 1_000_000


def training(seconds, *, count=60, on=0.4, bursts=2, jitter=0.0, per_bin=20_000.0, seed=1):
    """Bytes in bins of a millisecond of a training whose iterations take `seconds`; and when each begins to send."""
    random = np.random.default_rng(seed)
    took = seconds * (1 + jitter * random.standard_normal(count))
    begins = np.cumsum(took) - took
    values = np.zeros(int(took.sum() * 1000) + 1)
    for begin in begins + seconds * (1 - on):
        for burst in range(bursts):
            at = int((begin + burst * seconds * on / bursts) * 1000)
            values[at : at + max(1, int(seconds * on / bursts * 800))] = per_bin
    return values, begins + seconds * (1 - on)


@pytest.mark.parametrize("seconds", [0.03, 0.165, 1.3])
@pytest.mark.parametrize("jitter", [0.0, 0.05])
def test_the_period_of_a_training_is_found(seconds, jitter):
    values, _ = training(seconds, jitter=jitter)
    found = periodicity.iterations(values, begin_ns=10**18, width_ns=MS)
    assert found.period.found
    assert found.period.period_s == pytest.approx(seconds, rel=0.05)
    assert len(found.starts_ns) == pytest.approx(60, abs=3)
    assert found.seconds.mean() == pytest.approx(seconds, rel=0.03)


def test_iterations_begin_where_sending_begins_after_the_long_silence():
    values, begins = training(0.2)
    found = periodicity.iterations(values, begin_ns=0, width_ns=MS)
    nearest = [np.abs(begins * 1e9 - start).min() for start in found.starts_ns]
    assert max(nearest) <= 1.5 * MS


def test_bytes_an_iteration_and_the_share_of_time_that_sends():
    values, _ = training(0.2, on=0.5)
    found = periodicity.iterations(values, begin_ns=0, width_ns=MS)
    assert found.amount.value == pytest.approx(values.sum() / 60, rel=0.01)
    assert found.amount.low <= found.amount.value <= found.amount.high
    assert found.duty == pytest.approx(0.4, abs=0.02)
    assert found.on_s == pytest.approx(0.04, abs=0.005)


def test_a_training_that_never_pauses_has_a_period_and_bytes_but_no_marked_beginnings():
    values, _ = training(0.2)
    found = periodicity.iterations(values + 5_000.0, begin_ns=0, width_ns=MS)
    assert found.period.period_s == pytest.approx(0.2, rel=0.02)
    assert len(found.starts_ns) == 0
    assert found.amount.value == pytest.approx((values.sum() + 5_000.0 * len(values)) / 60, rel=0.03)


@pytest.mark.parametrize("values", [np.zeros(3000), np.full(3000, 7.0), np.zeros(0), np.ones(5)])
def test_what_does_not_change_has_no_period(values):
    found = periodicity.iterations(values, begin_ns=0, width_ns=MS)
    assert not found.period.found
    assert math.isnan(found.amount.value)


def test_noise_has_no_period():
    random = np.random.default_rng(3)
    assert not any(periodicity.period(random.poisson(5, 4000), 1e-3).found for _ in range(20))


def test_messages_end_where_a_flow_pauses():
    flow = np.array([0, 0, 0, 0, 1, 1])
    start = np.array([0, 1, 2, 9, 0, 9]) * MS
    sizes = periodicity.messages(flow, start, [10, 10, 0, 5, 1, 2], pause_ns=2 * MS)
    assert sorted(sizes.tolist()) == [1, 2, 5, 20]
    assert len(periodicity.messages(flow[:0], start[:0], [], pause_ns=MS)) == 0


def test_batch_means_cover_the_mean_of_a_correlated_series():
    random = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        noise = random.standard_normal(3000)
        series = np.empty(3000)
        series[0] = noise[0]
        for k in range(1, 3000):
            series[k] = 0.7 * series[k - 1] + noise[k]
        found = periodicity.batch_means(series + 5, longest_cycle=5)
        hits += found.low <= 5 <= found.high
    assert 180 <= hits <= 200


def test_batch_means_without_enough_batches_give_no_interval():
    found = periodicity.batch_means(np.arange(100.0), longest_cycle=20)
    assert found.value == pytest.approx(49.5)
    assert math.isnan(found.low)
    assert math.isnan(periodicity.batch_means([]).value)
