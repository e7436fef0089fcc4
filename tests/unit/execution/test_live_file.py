"""The live file of a run has what its controller is told, soon, and costs the run nothing."""

from __future__ import annotations

import itertools
import shutil
import threading
import time

import pytest

from orchestrator.execution.observers.live import LiveFile
from orchestrator.execution.observers.observing import Observer, Several
from orchestrator.store import live
from tests.helpers.metrics_help import logged, sample

PATIENCE_S = 60.0


@pytest.fixture
def told(tmp_path):
    made = LiveFile(tmp_path, label="run 1 of 2")
    yield made
    made.close()


def written(folder, ready):
    """What the file says, once it says so."""
    ends = time.monotonic() + PATIENCE_S
    while (found := live.load(folder)) is None or not ready(found):
        assert time.monotonic() < ends, found
        time.sleep(0.01)
    return found


def test_iterations_of_all_ranks_are_told_with_their_waiting(told, tmp_path):
    told.phase("window")
    told.window("w1", number=1, of=2, wanted=20)
    for number in range(300):
        told.iteration(logged(number, 0.1, passes_s=0.05, wait_s=0.02), job="a", rank=0)
        told.iteration(logged(number, 0.1), job="a", rank=1)
    told.measured({"a": 12}, left_s=4.0)
    found = written(tmp_path, lambda state: state.window is not None and state.window.left_s == 4.0)
    (job,) = found.jobs
    assert (len(job.seconds), job.measured) == (live.MOST_TIMES, 12)
    assert [(rank.last, rank.seconds, rank.wait_s) for rank in job.ranks] == [(299, 0.1, 0.02), (299, 0.1, None)]
    assert (found.label, found.phase, found.window.of) == ("run 1 of 2", "window", 2)


def test_passes_of_the_last_iterations_are_told_while_somebody_watches(told, tmp_path):
    live.watch(tmp_path)
    numbers = itertools.count()

    def going_on(state):
        number = next(numbers)
        for rank in (0, 1):
            told.iteration(logged(number, 0.1, passes_s=0.06, wait_s=0.02), job="a", rank=rank)
        return state.jobs and state.jobs[0].passes is not None and min(state.jobs[0].passes.iteration) > 0

    passes = written(tmp_path, going_on).jobs[0].passes
    assert passes.rank == (0,) * live.MOST_PASSES + (1,) * live.MOST_PASSES
    assert len(set(passes.iteration)) == live.MOST_PASSES
    assert (set(passes.passes_s), set(passes.wait_s)) == ({0.06}, {0.02})


def test_passes_that_a_rank_does_not_log_are_not_told(told, tmp_path):
    live.watch(tmp_path)
    told.iteration(logged(0, 0.1, passes_s=0.06), job="a", rank=0)
    told.iteration(logged(0, 0.1), job="a", rank=1)
    assert written(tmp_path, lambda state: bool(state.jobs)).jobs[0].passes is None


def test_a_window_begins_without_the_iterations_of_the_one_before(told, tmp_path):
    told.measured({"a": 12}, left_s=None)
    told.window("w2", number=2, of=2, wanted=None)
    assert written(tmp_path, lambda state: state.window is not None).jobs[0].measured == 0


def test_loads_are_at_full_size_and_averaged_over_a_phase(told, tmp_path):
    told.phase("preflight")
    told.loads(requested={"h3": 10.0}, received={}, scale=10)
    told.phase("window")
    for rate in (8.0, 10.0):
        told.loads(requested={"h3": 10.0}, received={"h3": rate}, scale=10)
    found = written(tmp_path, lambda state: bool(state.loads))
    assert [(one.requested_bps, one.received_bps, one.mean_bps) for one in found.loads] == [(100.0, 100.0, 90.0)]
    assert "preflight" in found.phases


def test_hosts_are_told_by_what_grew_and_by_what_waits(told, tmp_path):
    told.hosts({"h1": sample()}, scale=10)
    told.hosts({"h1": sample(second=1, grown=1000, queue_bytes=3000)}, scale=10)
    told.hosts({"h1": sample(second=2, grown=1500, queue_bytes=200)}, scale=10)
    found = written(tmp_path, lambda state: bool(state.hosts) and state.hosts[0].retransmits == 1500)
    (host,) = found.hosts
    assert (host.received_bps, host.sent_bps, host.queue_bytes, host.busy) == (40_000.0, 80_000.0, 2000, 0.25)
    assert host.dropped == 3000  # received and queued, none sent


def test_hosts_are_asked_while_somebody_watches(told, tmp_path):
    assert not told.samples_hosts
    live.watch(tmp_path)
    assert told.samples_hosts


def test_both_files_go_with_the_run_and_nothing_writes_on(told, tmp_path):
    told.phase("open")
    written(tmp_path, lambda state: state.phase == "open")
    told.close()
    told.phase("late")
    told.close()
    assert list(tmp_path.iterdir()) == []
    assert not any(thread.name == "live" for thread in threading.enumerate())


def test_a_folder_that_cannot_be_written_fails_nothing(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    told = LiveFile(folder, label="")
    shutil.rmtree(folder, ignore_errors=True)
    told.phase("open")
    assert not told.samples_hosts
    told.close()


def test_several_observers_hear_everything_and_one_that_wants_hosts_is_enough():
    heard = []

    class Each(Observer):
        def __init__(self, wants):
            self.wants = wants

        @property
        def samples_hosts(self):
            return self.wants

    calls = {
        "run_began": ((None,), {}),
        "run_ended": ((None,), {}),
        "phase": (("open",), {}),
        "window": (("w1",), {"number": 1, "of": 1, "wanted": None}),
        "measured": (({},), {"left_s": None}),
        "iteration": ((logged(0, 0.1),), {"job": "a", "rank": 0}),
        "failure": ((), {"node": "h1", "what": "p"}),
        "loads": ((), {"requested": {}, "received": {}, "scale": 1}),
        "hosts": (({},), {"scale": 1}),
    }
    told = [name for name, value in vars(Observer).items() if callable(value) and not name.startswith("_")]
    assert sorted(told) == sorted(calls)
    for name in calls:
        setattr(Each, name, lambda _, *args, _name=name, **more: heard.append((_name, args, more)))
    several = Several([Each(wants=False), Each(wants=True)])
    for name, (args, more) in calls.items():
        getattr(several, name)(*args, **more)
    assert heard == [(name, args, more) for name, (args, more) in calls.items() for _ in range(2)]
    assert several.samples_hosts
    assert not Several([Each(wants=False)]).samples_hosts
