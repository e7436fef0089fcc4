"""Somebody's own training script, started by `orch run` without knowing of it, and read by a pattern."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.helpers.orch_runs import killed_in_its_window, last_json, measured, nothing_is_left, orch, write

pytestmark = pytest.mark.testbed

SCRIPT = """
import sys, time
import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
gradients = torch.ones(int(sys.argv[1]))
for step in range(10**6):
    began = time.perf_counter()
    time.sleep(0.02)
    dist.all_reduce(gradients)
    gradients /= dist.get_world_size()
    print(f"step {step} took {time.perf_counter() - began:.6f} s, loss {float(gradients.mean()):.3f}")
"""

PRINTING = """
import time
for step in range(10**6):
    print(f"step {step} took long", flush=True)
    time.sleep(0.02)
"""


def experiment(tmp_path, **changes):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    workload = {
        "argv": ["{python}", "train.py", "100000"],
        "files": [str(script)],
        "hosts": ["h1", "h2", "h3"],
        "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s, loss (?P<loss>\S+)"},
        **changes,
    }
    return {
        "name": "own",
        "testbed": {"local": {"hosts": 3, "link": "1gbit"}},
        "workload": {"command": workload},
        "collect": ["tcpdump", "nic"],
        "measure": {"warmup": 2, "iterations": 20, "at_most": "30s"},
        "validity": {"clock": "100ms"},
    }


@pytest.mark.variants
def test_what_pytorchs_profiler_recorded_of_it_is_in_the_tables_and_in_exported_traces(tmp_path):
    changes = {
        "argv": ["{python}", "profiled_training.py"],
        "files": [str(Path(__file__).parents[1] / "helpers/profiled_training.py")],
        "hosts": ["h1", "h2"],
        "env": {"OMP_NUM_THREADS": "1"},
        "iterations": {"pattern": r"step \d+ loss (?P<loss>\S+)"},
    }
    summary, results = measured(write(tmp_path, experiment(tmp_path, **changes)), tmp_path / "results")
    (run,) = summary["runs"]
    rows = pq.read_table(results / "own" / run["run"] / "tables/spans.parquet").to_pylist()
    for rank in (0, 1):
        mine = [row for row in rows if row["rank"] == rank]
        reduced = [row for row in mine if row["span"] == "all-reduce"]
        assert len(reduced) == 3, "a step each that was recorded"
        # Weights and biases of both layers, which are smaller than a bucket; the size is the observer's, whose file
        # may end within the last step: on a busy machine before its all-reduce, whose size then is not known.
        sizes = [row["bytes"] for row in sorted(reduced, key=lambda row: row["start_ns"])]
        assert sizes[:2] == [4 * (300 * 200 + 200 + 200 + 1)] * 2
        assert sizes[2] in (None, 0, sizes[0])
        assert {"forward", "backward", "step", "all-reduce"} <= {row["span"] for row in mine}
        for row in reduced:
            assert min(o["start_ns"] for o in mine if o["span"] == "forward") < row["start_ns"]
            # The end of a collective is stamped by a thread of its own, which a busy machine may hold up.
            assert max(o["end_ns"] for o in mine if o["span"] == "step") > row["end_ns"] - 20_000_000
    status, _, err = orch("export", "chakra", run["run"], "--results", results, "-o", tmp_path / "chakra")
    assert status == 0, err
    assert len(list((tmp_path / "chakra").rglob("*.et"))) == 2


def test_its_iterations_are_measured_and_its_traffic_is_told_apart(tmp_path):
    summary, results = measured(write(tmp_path, experiment(tmp_path)), tmp_path / "results")
    (run,) = summary["runs"]
    folder = results / "own" / run["run"]
    rows = pq.read_table(folder / "tables/iterations.parquet").to_pylist()
    assert {row["rank"] for row in rows} == {0, 1, 2}
    kept = [row for row in rows if row["window_name"] == "w1"]
    assert len(kept) >= 60
    assert all(row["seconds"] >= 0.02 and row["loss"] == 1 and row["forward_s"] is None for row in kept)
    (job,) = run["windows"][0]["jobs"]
    assert job["bytes_per_iteration"]["measured_raw"] == pytest.approx(2 * 2 / 3 * 4 * 100_000, rel=0.03)
    nothing_is_left(run["run"])


@pytest.mark.variants
def test_its_rank_that_is_killed_ends_the_run(tmp_path):
    err = killed_in_its_window(tmp_path, experiment(tmp_path))
    assert "the command was ended by signal 9" in err


def test_a_pattern_that_never_matches_ends_the_run_with_what_was_printed(tmp_path):
    wrong = experiment(tmp_path, iterations={"pattern": "lasted", "first_within": "4s"})
    (tmp_path / "train.py").write_text(PRINTING)  # at once: a busy machine may need 4 s to import torch
    status, out, err = orch("run", write(tmp_path, wrong), "--results", tmp_path / "results", "--json", "--no-report")
    assert (status, last_json(out)["runs"][0]["outcome"]) == (1, "failed")
    assert "4 s went by, and no line matched 'lasted'; the last lines: step " in err
