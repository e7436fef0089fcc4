"""Horovod for real over three hosts: what travels, what is brought home, and how it ends."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import wire
from orch_runs import killed_in_its_window, last_json, nothing_is_left, orch, write

from orchestrator.report.runs import Run
from workloads import environments

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.any_user,
    pytest.mark.skipif(not environments.built("torch").exists(), reason="no Horovod here: run `make frameworks`"),
]

# Unscaled and with a long cycle, so that what Horovod's ranks agree on weighs little beside the tensors.
EXPERIMENT = {
    "name": "horovod",
    "testbed": {"local": {"hosts": 3, "link": "1gbit"}},
    "workload": {
        "horovod": {
            "model": "mobilenet_v2", "compute_time": "60ms", "cycle_time": "10ms", "timeline": True, "checksum": True,
        },
    },
    "collect": ["tcpdump", "nic"],
    "measure": {"warmup": 2, "iterations": 12, "at_most": "60s"},
    "validity": {"clock": "100ms"},
}  # fmt: skip


def test_ranks_agree_and_send_as_much_as_theory_says(tmp_path):
    status, out, err = orch(
        "run", write(tmp_path, EXPERIMENT), "--results", tmp_path / "results", "--json", "--no-report"
    )
    (run,) = last_json(out)["runs"]
    assert run["outcome"] == "completed", err
    assert status in (0, 3), err  # a busy machine may spoil the verdict, not the bytes
    sent = run["windows"][0]["jobs"][0]["bytes_per_iteration"]
    assert sent["theory_raw"] == pytest.approx(2 * 2 / 3 * 4 * 3_504_872)
    assert sent["measured_raw"] == pytest.approx(sent["theory_raw"], rel=0.03)
    (folder,) = (tmp_path / "results").glob("horovod/*")
    logs = [
        {record["iteration"]: record["checksum"] for record in map(json.loads, path.read_text().splitlines())}
        for path in sorted(folder.glob("hosts/*/training-rank*/iterations.jsonl"))
    ]
    assert len(logs) == 3
    together = set.intersection(*map(set, logs))
    assert len(together) >= 12
    assert all(len({log[number] for log in logs}) == 1 for number in together), "weights differ between ranks"
    assert len({logs[0][number] for number in together}) > 1, "nothing was learned"
    sealed = Run(folder)
    assert wire.pattern_of(sealed).shape == "ring"
    assert wire.apart(wire.captured(sealed), wire.told(sealed)) < 0.07
    reduced: Counter[int] = Counter()
    for row in sealed.rows("spans"):
        if row["span"] == "all-reduce" and row["window"]:
            reduced[row["iteration"]] += row["bytes"]
    del reduced[max(reduced)]  # of which the end may not have been written yet
    assert len(reduced) >= 10
    assert set(reduced.values()) == {4 * 3_504_872}, "by its own Timeline each iteration reduces the whole model"
    nothing_is_left(run["run"])


def test_a_rank_killed_in_its_step_ends_the_run(tmp_path):
    err = killed_in_its_window(tmp_path, EXPERIMENT)
    assert "training-rank1 ended with status -9" in err


def test_without_its_environment_nothing_is_started(tmp_path):
    workload = {"horovod": {**EXPERIMENT["workload"]["horovod"], "python": "/no/such/python"}}
    path = write(tmp_path, {**EXPERIMENT, "workload": workload})
    status, out, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
    assert status == 1
    assert "make frameworks" in err
    assert last_json(out)["runs"][0]["stage"] == "check"
