"""Which cause forms, and who waits for whom, by the last passes that ranks logged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.store.live import Live, LiveJob, LivePasses, LiveWindow
from orchestrator.watching import forming, view
from tests.helpers import manifests

RANKS = [{"rank": number, "node": f"h{number + 1}"} for number in range(3)]
MANIFEST = manifests.made(outcome="running", jobs=[{"name": "a", "workload": "ddp", "ranks": RANKS}])


def logged(*, slow=1.0, network_s=0.01, count=40):
    """Passes of 50 ms, those of rank 1 `slow` times as long; the network takes its time once all are done."""
    draws, rows, now = np.random.default_rng(1), [], 0.0
    for number in range(count):
        took = [0.05 * (slow if rank == 1 else 1.0) * draws.normal(1, 0.01) for rank in range(3)]
        end = now + max(took) + network_s * draws.normal(1, 0.01)
        rows += [(rank, number, now, end, took[rank], end - now - took[rank]) for rank in range(3)]
        now = end
    rank, iteration, start, end, passes, wait = zip(*rows, strict=True)
    instants = [tuple(round(at * 1e9) for at in some) for some in (start, end)]
    return LivePasses(
        rank=rank, iteration=iteration, start_ns=instants[0], end_ns=instants[1], passes_s=passes, wait_s=wait
    )


def live(passes, *, measured=30, phase="window"):
    job = LiveJob(name="a", seconds=(0.1,) * 40, measured=measured, passes=passes)
    return Live(label="", phase=phase, window=LiveWindow(name="w1", number=1, of=1, wanted=100), jobs=(job,))


def test_a_slow_rank_is_named_with_how_sure_that_is_and_as_the_one_that_others_wait_for():
    found = forming.formed(MANIFEST, live(logged(slow=1.6)))
    assert found.waits["a"] == "a: 2 ranks wait for rank 1 on h2, 29.7 ms of 89.9 ms an iteration"
    (cause,) = found.causes
    assert cause.startswith("a: rank 1 on h2 computes longer than the others: ")
    assert "95% interval" in cause
    assert cause.endswith("by the last 30 iterations")


def test_ranks_alike_wait_for_nobody():
    assert forming.formed(MANIFEST, live(logged())) == forming.Forming({"a": ""})


def test_what_the_network_takes_is_told_with_who_will_say_why():
    (line,) = forming.formed(MANIFEST, live(logged(network_s=0.05))).causes
    assert line.startswith("a: the network takes 50% of the time, by the last 30 iterations; ")
    assert "tcpdump" in line


def test_what_forms_is_shown_in_place_of_what_ranks_say_of_their_waiting():
    going = live(logged(slow=1.6))
    found = forming.formed(MANIFEST, going)
    shown = view.of_run(MANIFEST, going, 0, waits=found.waits, causes=found.causes)
    assert (shown.waits, shown.causes) == ((found.waits["a"],), found.causes)
    lines = view.changes(None, shown)
    assert f"    {found.causes[0]}" in lines
    later = replace(shown, causes=tuple(cause.replace("3", "4") for cause in shown.causes))
    assert view.changes(shown, later) == [], "the same cause with other figures is no news"


@pytest.mark.parametrize("more", [{"measured": 5}, {"phase": "warm-up"}])
def test_nothing_is_said_of_too_little(more):
    assert forming.formed(MANIFEST, live(logged(slow=1.6), **more)) == forming.Forming()
    assert forming.formed(MANIFEST, live(None)) == forming.Forming()


def test_columns_of_passes_are_of_one_length():
    with pytest.raises(ValueError, match="differ in length"):
        LivePasses(rank=(0,), iteration=(), start_ns=(), end_ns=(), passes_s=(), wait_s=())


def test_instants_that_no_window_has_are_not_reckoned_with():
    far = logged(slow=1.6)
    far = replace(far, end_ns=(1 << 62,) * len(far.rank))
    assert forming.formed(MANIFEST, live(far)) == forming.Forming()
