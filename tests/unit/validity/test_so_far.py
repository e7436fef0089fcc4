"""A window is lost once a gate fails that it cannot pass any more; before, and where it may pass yet, it goes on."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.validity import so_far
from orchestrator.validity.registry import judge, reasons
from orchestrator.validity.so_far import LoadSoFar, SoFar
from tests.helpers import gate_windows, manifests

RANKS = [{"rank": 0, "node": "h1"}, {"rank": 1, "node": "h2"}]
JOB = {"name": "a", "workload": "ddp", "ranks": RANKS}
WHOLE = 100


def manifest(**validity):
    return manifests.made(outcome="running", jobs=[JOB], validity=validity)


def so_far_of(seconds=(), *, mean=None, end="h3", whole=WHOLE, share=None):
    return SoFar(
        name="w1",
        wanted=whole,
        measured={"a": len(seconds)},
        seconds={"a": list(seconds)},
        loads=[] if mean is None else [LoadSoFar(end=end, requested_bps=100e6, mean_bps=mean)],
        share=len(seconds) / whole if share is None else share,
    )


def noise(count, *, drift=0.0, whole=WHOLE, seed=1):
    """Iteration times around 100 ms that grow by a share of it from the beginning of the whole window to its end."""
    draws = np.random.default_rng(seed).normal(0, 0.02, count)
    return 0.1 * (1 + drift * np.arange(count) / whole + draws)


def lost_at(*, drift, seed=1, whole=WHOLE):
    """The number of iterations after which a window is lost; None for one that is measured whole."""
    times = noise(whole, drift=drift, whole=whole, seed=seed)
    found = (n for n in range(10, whole, 5) if so_far.lost(manifest(), so_far_of(times[:n], whole=whole)))
    return next(found, None)


def test_a_strong_trend_loses_a_window_before_its_end_and_a_weak_one_not():
    assert 12 < lost_at(drift=1.0) <= 50
    assert lost_at(drift=0.03) is None


def test_windows_without_a_trend_are_lost_no_more_often_than_their_gate_fails_by_chance():
    lost = sum(lost_at(drift=0.0, seed=seed, whole=60) is not None for seed in range(40))
    assert lost == 0


@pytest.mark.parametrize(
    ("mean", "share", "is_lost"),
    [(50e6, 0.05, False), (50e6, 0.2, True), (98e6, 0.9, False), (120e6, 0.5, True), (94e6, 0.5, False)],
)
def test_a_load_is_lost_when_what_is_missing_cannot_come_any_more(mean, share, is_lost):
    found = so_far.lost(manifest(), so_far_of(mean=mean, share=share))
    assert bool(found) is is_lost
    assert not found or found.startswith("cross traffic from all senders to h3, by its counters so far: ")


def test_what_need_not_pass_loses_nothing():
    drifting = so_far_of(noise(80, drift=1.0), mean=10e6)
    assert so_far.lost(manifest(), drifting)
    assert not so_far.lost(manifest(drift="ignore", load="as-achieved"), drifting)


def test_loads_where_training_arrives_too_lose_nothing():
    assert not so_far.lost(manifest(), so_far_of(mean=10e6, share=0.9, end="h2"))


def test_too_few_iterations_may_be_enough_yet():
    (gate,) = [one for one in so_far.gates(manifest(), so_far_of(noise(3))) if one.name == "iterations"]
    assert gate.passed is False
    assert not so_far.lost(manifest(), so_far_of(noise(3)))


def test_a_window_that_was_given_up_is_not_valid_and_says_why():
    given_up = gate_windows.window(record=manifests.window("w1", lost="half of the load is missing"))
    assert "lost before its end, and measured no further: half of the load is missing" in reasons(judge(given_up))
    assert not any(gate.name == "lost" for gate in judge(gate_windows.window()))
