"""nccl-tests under real Open MPI on hosts of an inventory, with a stub in place of its program: no GPU is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.report.runs import Run
from tests.helpers.orch_runs import killed_in_its_window, last_json, measured, nothing_is_left, orch, write
from workloads.common import environments

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.frameworks,
    pytest.mark.skipif(not environments.is_built("torch"), reason="no Open MPI here: run `make frameworks`"),
]

STUB = Path(__file__).parents[1] / "helpers/nccl_tests_stub.py"


@pytest.fixture
def experiment(hosts, tmp_path):
    """All-reduce over three hosts that say they have GPUs, and the stub as the program that they have."""
    inventory, _ = hosts
    folder = tmp_path / "nccl-tests"
    folder.mkdir()
    stub = folder / STUB.name
    stub.write_bytes(STUB.read_bytes())
    program = folder / "all_reduce_perf"
    program.write_text(f'#!/bin/sh\nexec {environments.built("torch")} {stub} "$@"\n')
    program.chmod(0o755)
    gpus = {name: {**host, "gpus": 1} for name, host in inventory["hosts"].items()}
    return {
        "name": "small",
        "testbed": {"inventory": {**inventory, "hosts": gpus}},
        "workload": {
            "collective": {
                "backend": "nccl-tests",
                "nccl_tests": str(folder),
                "sizes": ["100kb", "400kb"],
                "repeats": 2,
                "hosts": ["h1", "h3", "h2"],
            }
        },
        "collect": ["tcpdump", "nic"],
        "measure": {"warmup": 1, "iterations": 15, "at_most": "60s"},
        "validity": {"clock": "100ms"},
    }


@pytest.mark.variants
def test_its_times_are_kept_and_its_messages_told_from_what_ranks_meet_by(experiment, tmp_path):
    summary, results = measured(write(tmp_path, experiment), tmp_path / "results", "--no-report")
    (told,) = summary["runs"]
    nothing_is_left(told["run"])
    run = Run(results / "small" / told["run"])
    rows = [row for row in run.rows("collectives") if row["window_name"]]
    assert {(row["operation"], row["bytes"], row["rank"]) for row in rows} == {
        ("all-reduce", 100032, 0),
        ("all-reduce", 400128, 0),
    }
    # On a ring of 250 Mbit/s the larger takes 17 ms at least; half of that is spent somewhere else on a busy machine.
    assert all(0 < row["bus_bps"] < 1.02 * row["link_bps"] == 1.02 * 250e6 for row in rows if row["bytes"] == 400128)
    sent = told["windows"][0]["jobs"][0]["bytes_per_iteration"]
    assert sent["theory_raw"] == pytest.approx(8 * (100032 + 400128) * 4 / 3)
    assert sent["measured_raw"] == pytest.approx(sent["theory_raw"], rel=0.03)


@pytest.mark.variants
def test_a_rank_killed_ends_the_run(experiment, tmp_path):
    err = killed_in_its_window(tmp_path, experiment, iterations=0)
    assert "training-rank1 ended with status 1 before it was asked to" in err
    assert "rank 1: the command was ended by signal 9" in err


def test_programs_that_are_not_there_are_told_before_anything_starts(experiment, tmp_path):
    experiment["workload"]["collective"]["operations"] = ["broadcast"]
    path = write(tmp_path, experiment)
    status, out, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
    assert status == 1
    assert "broadcast_perf" in err
    assert "make MPI=1" in err
    assert last_json(out)["runs"][0]["stage"] == "check"
