"""Horovod for real over three hosts: what travels, what is brought home, and how it ends."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tests.helpers import listeners, wire
from tests.helpers.orch_runs import agree, killed_in_its_window, orch, sealed, write
from workloads.common import environments

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.frameworks,
    pytest.mark.skipif(not environments.is_built("torch"), reason="no Horovod here: run `make frameworks`"),
]

# Few tensors and a long cycle, so that what Horovod's ranks agree on weighs little beside them.
EXPERIMENT = {
    "name": "horovod",
    "testbed": {"local": {"hosts": 3, "link": "100gbit", "scale": 100}},
    "workload": {
        "horovod": {"model": "vgg16", "compute_time": "60ms", "cycle_time": "10ms", "timeline": True, "checksum": True}
    },
    "collect": ["tcpdump", "nic"],
    "measure": {"warmup": 2, "iterations": 12, "at_most": "60s"},
    "validity": {"clock": "100ms"},
}

VGG = 1_383_575  # parameters, scaled


def test_ranks_agree_and_send_as_much_as_theory_says(tmp_path):
    run = sealed(tmp_path, EXPERIMENT)
    (row,) = run.rows("training")
    assert row["theory_bytes"] == pytest.approx(2 * 2 / 3 * 4 * VGG)
    assert row["sent_bytes"] == pytest.approx(row["theory_bytes"], rel=0.03)
    agree(run)
    assert wire.pattern_of(run).shape == "ring"
    assert wire.apart(wire.captured(run), wire.told(run)) < 0.07
    reduced: Counter[int] = Counter()
    for row in run.rows("spans"):
        if row["span"] == "all-reduce" and row["window_name"]:
            reduced[row["iteration"]] += row["bytes"]
    del reduced[max(reduced)]  # of which the end may not have been written yet
    assert len(reduced) >= 10
    assert set(reduced.values()) == {4 * VGG}, "by its own Timeline each iteration reduces the whole model"
    overlapped = {row["rank"]: row["overlapped"] for row in run.rows("variation")}
    assert set(overlapped) == {-1, 0, 1, 2}
    assert all(0 <= share <= 1 for share in overlapped.values()), "rank 0 alone wrote a Timeline"


def test_a_rank_killed_in_its_step_ends_the_run_and_until_then_it_listens_where_it_is_told(tmp_path):
    err = killed_in_its_window(tmp_path, EXPERIMENT, before=partial(listeners.as_known, "horovod"))
    assert "training-rank1 ended with status -9" in err


def test_without_its_environment_nothing_is_started(tmp_path):
    workload = {"horovod": {**EXPERIMENT["workload"]["horovod"], "python": "/no/such/python"}}
    path = write(tmp_path, {**EXPERIMENT, "workload": workload})
    status, out, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
    assert status == 1
    assert "orch prepare --only torch" in err
    assert (out, (tmp_path / "results").exists()) == ("", False)
