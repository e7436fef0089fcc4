"""TensorFlow for real over three hosts: what travels and to whom, and how it ends."""

from __future__ import annotations

import json
import re
import tempfile
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.analysis.traffic import traffic
from tests.helpers import listeners, wire
from tests.helpers.orch_runs import agree, killed_in_its_window, orch, sealed, write
from workloads.common import environments

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.frameworks,
    pytest.mark.skipif(
        not environments.is_built("tensorflow"),
        reason="no TensorFlow here: run `playbooks/hosts/prepare-frameworks tensorflow`",
    ),
]

# Few tensors: TensorFlow takes seconds to trace many, and says less beside few.
MODEL = {"model": "vgg16", "compute_time": "60ms"}
VGG = 1_383_575  # parameters, scaled
MIRRORED = {"tensorflow": {**MODEL, "strategy": "multi-worker-mirrored", "checksum": True}}
SERVED = {"tensorflow": {**MODEL, "strategy": "parameter-server", "hosts": ["h2", "h3"], "servers": ["h1"]}}
# A long cycle, so that what Horovod's ranks agree on weighs little beside the tensors.
HOROVOD = {"horovod": {**MODEL, "framework": "tensorflow", "cycle_time": "10ms", "checksum": True}}


@pytest.fixture(autouse=True)
def _no_generated_code_is_left():
    """TensorFlow compiles functions from files of its own, which it removes only at an exit that ranks do not take."""

    def left():
        return {path for folder in ("/tmp", tempfile.gettempdir()) for path in Path(folder).glob("__autograph*")}

    before = left()
    yield
    assert left() == before


def experiment(workload, **measure):
    return {
        "name": "tensorflow",
        "testbed": {"local": {"hosts": 3, "link": "100gbit", "scale": 100}},
        "workload": workload,
        "collect": ["tcpdump", "nic"],
        "measure": {"warmup": 2, "at_most": "60s", **measure},
        "validity": {"clock": "100ms"},
    }


@pytest.mark.variants
@pytest.mark.parametrize("workload", [MIRRORED, HOROVOD], ids=["mirrored", "horovod"])
def test_ranks_agree_and_send_around_a_ring_what_theory_says(tmp_path, workload):
    run = sealed(tmp_path, experiment(workload, iterations=12))
    (row,) = run.rows("training")
    assert row["theory_bytes"] == pytest.approx(2 * 2 / 3 * 4 * VGG)
    assert row["sent_bytes"] == pytest.approx(row["theory_bytes"], rel=0.03)
    assert wire.pattern_of(run).shape == "ring"
    assert wire.apart(wire.captured(run), wire.told(run)) < 0.07
    agree(run)
    assert not list(run.path.glob("hosts/*/*/scratch")), "temporary files are no result"


def test_workers_of_a_parameter_server_fetch_and_send_the_model(tmp_path):
    run = sealed(tmp_path, experiment(SERVED, iterations=12))
    model = 4 * VGG
    (row,) = run.rows("training")
    assert row["theory_bytes"] == model
    pattern = wire.pattern_of(run)
    assert {pattern.shape, *pattern.same_as} & {"parameter servers", "one parameter server"}
    seen = wire.captured(run)
    assert seen[wire.told(run) == 0].max() < 0.005 * seen.sum(), "workers send each other nothing"
    for rank, host in enumerate(("h2", "h3")):
        # Workers do not wait for each other: each one's bytes are held against its own iterations.
        (log,) = run.path.glob(f"hosts/{host}/training-rank{rank}/iterations.jsonl")
        records = [json.loads(line) for line in log.read_text().splitlines()][2:-2]
        inside = traffic.within(run.traffic, records[0]["start_ns"], records[-1]["end_ns"])
        sent = traffic.matrix(inside, inside.kind == "training")
        place = run.traffic.hosts.index(host)
        assert sent[place].sum() / len(records) == pytest.approx(model, rel=0.03)
        assert sent[:, place].sum() / len(records) == pytest.approx(model, rel=0.03)


@pytest.mark.variants
def test_a_workers_transfers_are_traced(tmp_path):
    """Every variable is received and its gradient sent in each step, on the timeline of what the worker computes."""
    workload = {"tensorflow": {**SERVED["tensorflow"], "trace": True}}
    run = sealed(tmp_path, experiment(workload, iterations=12))
    rows = run.rows("spans")
    steps = {(row["rank"], row["iteration"]): row for row in run.rows("iterations")}
    for key in [key for key in steps if key[1] >= 2][:20]:
        mine = [row for row in rows if (row["rank"], row["iteration"]) == key]
        for name in ("receive", "send"):
            moved = [row for row in mine if row["span"] == name]
            assert {row["what"].rpartition(", ")[2] for row in moved} == {"server 0"}
            assert sum(row["bytes"] for row in moved) == pytest.approx(4 * VGG, rel=0.001)
        assert {row["span"] for row in mine} == {"receive", "send", "forward", "backward"}
        # TensorFlow tells instants in microseconds, by a clock of its own.
        assert min(row["start_ns"] for row in mine) >= steps[key]["start_ns"] - 1_000_000
        assert max(row["end_ns"] for row in mine) <= steps[key]["end_ns"] + 1_000_000
        forward = next(row for row in mine if row["span"] == "forward")
        assert max(row["end_ns"] for row in mine if row["span"] == "receive") <= forward["start_ns"] + 1_000_000


@pytest.mark.variants
def test_in_an_enforced_order_variables_come_one_after_the_other_while_layers_compute(tmp_path):
    workload = {"tensorflow": {**SERVED["tensorflow"], "trace": True, "order": "layer"}}
    run = sealed(tmp_path, experiment(workload, iterations=12))
    spans = [row for row in run.rows("spans") if row["iteration"] >= 2]
    for key in list(dict.fromkeys((row["rank"], row["iteration"]) for row in spans))[:20]:
        mine = [row for row in spans if (row["rank"], row["iteration"]) == key]
        received = sorted((row for row in mine if row["span"] == "receive"), key=lambda row: row["start_ns"])
        numbers = [int(re.search(r"Read(?:_(\d+))?/", row["what"])[1] or 0) for row in received]
        assert numbers == sorted(numbers), "the first layers' variables were made first"
        assert all(before["end_ns"] <= after["start_ns"] for before, after in pairwise(received))
        forward = next(row for row in mine if row["span"] == "forward")
        assert forward["start_ns"] < received[-1]["end_ns"], "the first layers do not wait for the last ones'"


@pytest.mark.variants
def test_a_rank_killed_in_its_step_ends_the_run_and_until_then_what_listens_is_known(tmp_path):
    err = killed_in_its_window(tmp_path, experiment(MIRRORED), before=partial(listeners.as_known, "mirrored"))
    assert "training-rank1 ended with status -9" in err


@pytest.mark.variants
def test_a_killed_parameter_server_ends_the_run_and_until_then_what_listens_is_known(tmp_path):
    looked = partial(listeners.as_known, "served")
    err = killed_in_its_window(tmp_path, experiment(SERVED), launch="training-server0", before=looked)
    assert "training-server0 ended with status -9" in err


def test_without_its_environment_nothing_is_started(tmp_path):
    workload = {"tensorflow": {**SERVED["tensorflow"], "python": "/no/such/python"}}
    path = write(tmp_path, experiment(workload, iterations=12))
    status, out, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
    assert status == 1
    assert "orch prepare --only tensorflow" in err
    assert (out, (tmp_path / "results").exists()) == ("", False)
