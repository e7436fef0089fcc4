"""TensorFlow for real over three hosts: what travels and to whom, and how it ends."""

from __future__ import annotations

import json

import pytest
import wire
from orch_runs import killed_in_its_window, last_json, nothing_is_left, orch, write

from orchestrator.analysis import traffic
from orchestrator.report.runs import Run
from workloads import environments

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.any_user,
    pytest.mark.skipif(
        not environments.built("tensorflow").exists(),
        reason="no TensorFlow here: run `playbooks/hosts/prepare-frameworks tensorflow`",
    ),
]

MODEL = {"model": "mobilenet_v2", "compute_time": "60ms"}
MIRRORED = {"tensorflow": {**MODEL, "strategy": "multi-worker-mirrored", "checksum": True}}
SERVED = {"tensorflow": {**MODEL, "strategy": "parameter-server", "hosts": ["h2", "h3"], "servers": ["h1"]}}
# A long cycle, so that what Horovod's ranks agree on weighs little beside the tensors.
HOROVOD = {"horovod": {**MODEL, "framework": "tensorflow", "cycle_time": "10ms", "checksum": True}}


def experiment(workload, **measure):
    """Unscaled, so that what TensorFlow says beside the tensors weighs little."""
    return {
        "name": "tensorflow",
        "testbed": {"local": {"hosts": 3, "link": "1gbit"}},
        "workload": workload,
        "collect": ["tcpdump", "nic"],
        "measure": {"warmup": 2, "at_most": "60s", **measure},
        "validity": {"clock": "100ms"},
    }


def measured(tmp_path, workload):
    """What `orch run --json` says of a completed run, and its folder."""
    path = write(tmp_path, experiment(workload, iterations=12))
    status, out, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
    (run,) = last_json(out)["runs"]
    assert run["outcome"] == "completed", err
    assert status in (0, 3), err  # a busy machine may spoil the verdict, not the bytes
    (folder,) = (tmp_path / "results").glob("tensorflow/*")
    nothing_is_left(run["run"])
    return run, folder


@pytest.mark.parametrize("workload", [MIRRORED, HOROVOD], ids=["mirrored", "horovod"])
def test_ranks_agree_and_send_around_a_ring_what_theory_says(tmp_path, workload):
    run, folder = measured(tmp_path, workload)
    sent = run["windows"][0]["jobs"][0]["bytes_per_iteration"]
    assert sent["theory_raw"] == pytest.approx(2 * 2 / 3 * 4 * 3_504_872)
    assert sent["measured_raw"] == pytest.approx(sent["theory_raw"], rel=0.03)
    sealed = Run(folder)
    assert wire.pattern_of(sealed).shape == "ring"
    assert wire.apart(wire.captured(sealed), wire.told(sealed)) < 0.07
    logs = [
        {record["iteration"]: record["checksum"] for record in map(json.loads, path.read_text().splitlines())}
        for path in sorted(folder.glob("hosts/*/training-rank*/iterations.jsonl"))
    ]
    assert len(logs) == 3
    together = set.intersection(*map(set, logs))
    assert len(together) >= 12
    assert all(len({log[number] for log in logs}) == 1 for number in together), "weights differ between ranks"
    assert len({logs[0][number] for number in together}) > 1, "nothing was learned"


def test_workers_of_a_parameter_server_fetch_and_send_the_model(tmp_path):
    run, folder = measured(tmp_path, SERVED)
    model = 4 * 3_504_872
    assert run["windows"][0]["jobs"][0]["bytes_per_iteration"]["theory_raw"] == model
    sealed = Run(folder)
    pattern = wire.pattern_of(sealed)
    assert {pattern.shape, *pattern.same_as} & {"parameter servers", "one parameter server"}
    seen = wire.captured(sealed)
    assert seen[wire.told(sealed) == 0].max() < 0.005 * seen.sum(), "workers send each other nothing"
    for rank, host in enumerate(("h2", "h3")):
        # Workers do not wait for each other: each one's bytes are held against its own iterations.
        (log,) = folder.glob(f"hosts/{host}/training-rank{rank}/iterations.jsonl")
        records = [json.loads(line) for line in log.read_text().splitlines()][2:-2]
        inside = traffic.within(sealed.traffic, records[0]["start_ns"], records[-1]["end_ns"])
        sent = traffic.matrix(inside, inside.kind == "training")
        place = sealed.traffic.hosts.index(host)
        assert sent[place].sum() / len(records) == pytest.approx(model, rel=0.03)
        assert sent[:, place].sum() / len(records) == pytest.approx(model, rel=0.03)


def test_a_rank_killed_in_its_step_ends_the_run(tmp_path):
    err = killed_in_its_window(tmp_path, experiment(MIRRORED))
    assert "training-rank1 ended with status -9" in err


def test_a_killed_parameter_server_ends_the_run(tmp_path):
    err = killed_in_its_window(tmp_path, experiment(SERVED), launch="training-server0")
    assert "training-server0 ended with status -9" in err


def test_without_its_environment_nothing_is_started(tmp_path):
    workload = {"tensorflow": {**SERVED["tensorflow"], "python": "/no/such/python"}}
    path = write(tmp_path, experiment(workload, iterations=12))
    status, out, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
    assert status == 1
    assert "prepare-frameworks tensorflow" in err
    assert last_json(out)["runs"][0]["stage"] == "check"
