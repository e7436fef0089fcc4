"""A model of a training's traffic: what it keeps of what was measured, and what it draws."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.analysis.traffic import generative, periodicity, traffic
from orchestrator.analysis.traffic.generative import Begins, Chunk
from orchestrator.core.errors import ConfigError
from tests.helpers import made_traffic
from tests.helpers.made_traffic import BEGAN_NS, ITERATION_MS, MS

HOSTS = ("h1", "h4", "h3", "h2")


def begins(starts_ms, *, nodes=HOSTS, last_ms=ITERATION_MS):
    starts = BEGAN_NS + np.asarray(starts_ms, np.int64) * MS
    return [Begins(node=node, start_ns=starts, end_ns=int(starts[-1]) + last_ms * MS) for node in nodes]


def regular(count=40, **options):
    made = made_traffic.made(iterations=count)
    ranks = begins(np.arange(count) * ITERATION_MS)
    return generative.fit(made, ranks, run="r", window="w1", job="train", **options)


def rates(chunks, length_s, *, width_s=0.01):
    """Bytes in bins of all chunks."""
    places = (np.array([chunk.start_s for chunk in chunks]) / width_s).astype(int)
    return np.bincount(places, [chunk.size for chunk in chunks], int(length_s / width_s) + 1)


def test_a_regular_training_is_drawn_as_it_was():
    model = regular(scale=10)
    assert {(pair.src, pair.dst) for pair in model.pairs} == set(zip(HOSTS, HOSTS[1:] + HOSTS[:1], strict=True))
    (clock,) = model.clocks
    (burst,) = clock.bursts()
    assert burst.takes_s == pytest.approx(0.040, abs=0.002)
    assert burst.bytes == 4 * 40 * 20_000 * 10
    chunks, length_s = generative.draw(model, 30, seed=1)
    assert length_s == pytest.approx(3.0)
    assert sum(chunk.size for chunk in chunks) == pytest.approx(30 * burst.bytes, rel=1e-3)
    series = rates(chunks, length_s)
    assert series.max() == pytest.approx(4 * 10 * 20_000 * 10, rel=0.11)
    assert (series > 0).mean() == pytest.approx(0.4, abs=0.11)
    assert periodicity.period(series, 0.01).period_s == pytest.approx(0.1, abs=0.002)


def uneven(seconds, *, jitter=None):
    """A clock of one burst at the end of iterations that take so long."""
    pair = generative.Pair("h1", "h2")
    waits = np.tile(np.full(21, 0.002), (len(seconds), 1))
    if jitter is not None:
        waits[:, 5:20] += jitter
    waits[:, 0] = seconds - waits[:, 1:].sum(axis=1)
    split = np.full((len(seconds), 20, 1), 1000, np.int64)
    clock = generative.Clock(pairs=(pair,), waits=waits, split=split, slice_s=0.002)
    return generative.Model(run="r", window="w1", job="train", share=1.0, clocks=(clock,))


def drawn_seconds(model, count, seed=1):
    """Durations of drawn iterations, by the first chunk of each."""
    chunks, length_s = generative.draw(model, count, seed)
    assert len(chunks) == count * 20
    ends = np.array([chunk.start_s for chunk in chunks[19::20]])
    return np.diff(np.append(ends, ends[0] + length_s))


def test_durations_have_the_measured_distribution():
    random = np.random.default_rng(3)
    seconds = 0.1 + random.gamma(2.0, 0.02, 60)
    found = drawn_seconds(uneven(seconds), 2000)
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert np.quantile(found, share) == pytest.approx(np.quantile(seconds, share), rel=0.06)
    assert found.mean() == pytest.approx(seconds.mean(), rel=0.02)
    assert len(np.unique(np.round(found, 9))) > 1000  # no copies of the sixty


def series_of(weight, count):
    random = np.random.default_rng(5)
    values = [0.0]
    for _ in range(count - 1):
        values.append(weight * values[-1] + random.standard_normal())
    return 0.2 + 0.01 * np.array(values)


@pytest.mark.parametrize("weight", [0.8, -0.7])
def test_durations_that_follow_one_another_still_do(weight):
    seconds = series_of(weight, 120)
    measured = periodicity.autocorrelation(seconds, 1)[1]
    found = drawn_seconds(uneven(seconds), 3000)
    assert periodicity.autocorrelation(found, 1)[1] == pytest.approx(measured, abs=0.1)


def test_independent_durations_get_no_autoregression():
    weights, deviation = generative.order_of(np.random.default_rng(7).standard_normal(60))
    assert len(weights) == 0
    assert deviation == 1


def test_a_slow_iteration_waits_and_does_not_send_faster():
    random = np.random.default_rng(9)
    model = uneven(0.1 + 0.05 * random.random(40), jitter=0.001 * random.random((40, 1)))
    chunks, _ = generative.draw(model, 400, seed=2)
    starts = np.array([chunk.start_s for chunk in chunks]).reshape(400, 20)
    assert np.diff(starts, axis=1).min() > 0.9 * 0.002


def test_seeds_give_other_iterations_and_the_same_again():
    model = uneven(0.1 + 0.05 * np.random.default_rng(1).random(40))
    assert generative.draw(model, 50, 1) == generative.draw(model, 50, 1)
    assert generative.draw(model, 50, 1) != generative.draw(model, 50, 2)


def test_a_model_is_read_again_as_it_was_written():
    model = regular()
    text = json.dumps(generative.as_data(model))
    again = generative.from_data(json.loads(text), at="model.json")
    first, second = (generative.draw(one, 20, 4) for one in (model, again))
    assert [chunk.size for chunk in first[0]] == [chunk.size for chunk in second[0]]
    assert [chunk.start_s for chunk in first[0]] == pytest.approx([chunk.start_s for chunk in second[0]], abs=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"orch_traffic_model": 2},
        {"drawn_from": []},
        {"drawn_from": [{"waits_s": [[1, 2]], "split_bytes": []}]},
        {"clocks": "x"},
        {"payload_share": None},
    ],
)
def test_what_is_no_model_says_so(change):
    data = {**generative.as_data(regular()), **change}
    with pytest.raises(ConfigError, match=r"model\.json"):
        generative.from_data(data, at="model.json")


def test_negative_or_infinite_waits_are_no_model():
    for wrong in (-1.0, float("inf"), float("nan")):
        data = json.loads(json.dumps(generative.as_data(regular())))
        data["drawn_from"][0]["waits_s"][0][0] = wrong
        with pytest.raises(ConfigError):
            generative.from_data(data, at="model.json")


def test_the_measured_iterations_can_be_written_as_they_were():
    model = regular()
    chunks, length_s = generative.recorded(model)
    assert length_s == pytest.approx(model.clocks[0].seconds.sum())
    assert sum(chunk.size for chunk in chunks) == model.clocks[0].split.sum()
    assert all(isinstance(chunk, Chunk) for chunk in chunks)


def test_hosts_out_of_step_have_clocks_of_their_own():
    made = made_traffic.made(iterations=40)
    random = np.random.default_rng(11)
    ranks = [
        Begins(node=node, start_ns=start, end_ns=int(start[-1]) + 100 * MS)
        for node in HOSTS
        for start in [BEGAN_NS + np.cumsum(random.integers(60, 140, 38)) * MS]
    ]
    model = generative.fit(made, ranks, run="r", window="w1", job="train")
    assert len(model.clocks) > 1
    assert len(model.pairs) == len(set(model.pairs)) == 4


def test_a_rank_that_only_begins_later_is_in_step():
    made = made_traffic.made(iterations=40)
    ranks = [*begins(np.arange(40) * 100), *begins(np.arange(40) * 100 + 60, nodes=["h9"])]
    assert len(generative.fit(made, ranks, run="r", window="w1", job="train").clocks) == 1


@pytest.mark.parametrize(
    ("count", "job", "told"), [(8, "train", "8 iterations in the window"), (40, "other", "sent each other nothing")]
)
def test_too_little_to_fit_is_one_error(count, job, told):
    made = made_traffic.made(iterations=40)
    with pytest.raises(ConfigError, match=told):
        generative.fit(made, begins(np.arange(count) * 100), run="r", window="w1", job=job)


def test_no_ranks_are_too_few():
    with pytest.raises(ConfigError, match="0 iterations"):
        generative.fit(made_traffic.made(), [], run="r", window="w1", job="train")


def test_too_many_iterations_name_the_most():
    with pytest.raises(ConfigError, match="--iterations"):
        generative.draw(regular(), 10_000_000, 1)


def test_rails_have_files_of_their_own():
    made = made_traffic.made(iterations=40)
    made = replace(made, rail=np.where(made.src == made.hosts.index("h1"), 1, 0))
    model = generative.fit(made, begins(np.arange(40) * ITERATION_MS), run="r", window="w1", job="train")
    assert {(pair.src, pair.rail) for pair in model.pairs} == {("h1", 1), ("h2", 0), ("h3", 0), ("h4", 0)}


def test_iterations_without_anything_to_send_keep_their_time():
    made = made_traffic.made(iterations=40)
    keep = (made.bin_ns - BEGAN_NS) // (ITERATION_MS * MS) % 4 != 1
    quiet = {name: getattr(made, name)[keep] for name in ("bin_flow", "bin_ns", "bin_wire", "bin_payload")}
    made = traffic.within(replace(made, **quiet), made.begin_ns, made.end_ns)
    model = generative.fit(made, begins(np.arange(40) * ITERATION_MS), run="r", window="w1", job="train")
    (clock,) = model.clocks
    assert clock.seconds == pytest.approx(np.full(len(clock.waits), 0.1))
    assert (clock.split.sum(axis=(1, 2)) == 0).mean() == pytest.approx(0.25, abs=0.03)
    chunks, length_s = generative.draw(model, 400, 1)
    sent = sum(chunk.size for chunk in chunks) / length_s
    assert sent == pytest.approx(0.75 * 4 * 40 * 20_000 / 0.1, rel=0.1)
