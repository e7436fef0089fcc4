"""Trainings under launchers of others: each rank's iterations are read, and who dies is told."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from tests.helpers.orch_runs import killed_in_its_window, measured, nothing_is_left, write
from workloads.common import environments

pytestmark = [pytest.mark.testbed, pytest.mark.variants]

TORCH = """
import os, sys, time
import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
assert "TORCHELASTIC_RUN_ID" in os.environ
values = torch.ones(25000)
for step in range(10**6):
    began = time.perf_counter()
    time.sleep(0.03)
    dist.all_reduce(values)
    values /= dist.get_world_size()
    place = f"{dist.get_rank()}/{dist.get_world_size()} local {os.environ['LOCAL_RANK']}"
    print(f"{place} step {step} took {time.perf_counter() - began:.6f} s", flush=True)
"""

MPI = """
import os, time
import mpi4py
mpi4py.rc.threads = False
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
values = np.ones(25000, np.float32)
for step in range(10**6):
    began = time.perf_counter()
    time.sleep(0.03)
    world.Allreduce(MPI.IN_PLACE, values)
    values /= world.size
    place = f"{world.rank}/{world.size} local {os.environ['OMPI_COMM_WORLD_LOCAL_RANK']}"
    print(f"{place} step {step} took {time.perf_counter() - began:.6f} s", flush=True)
"""


def experiment(tmp_path, script, launcher, python="{python}", **options):
    path = tmp_path / "train.py"
    path.write_text(script)
    command = {
        "argv": [python, "-u", "train.py"],
        "files": [str(path)],
        "hosts": ["h1", "h1", "h2", "h2"],
        "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"},
        "launcher": launcher,
        **options,
    }
    return {
        "name": "launched",
        "testbed": {"local": {"hosts": 2, "link": "1gbit"}},
        "workload": {"command": command},
        "collect": ["tcpdump", "nic"],
        "measure": {"warmup": 2, "iterations": 20, "at_most": "60s"},
        "validity": {"clock": "100ms"},
    }


def as_each_rank_says(tmp_path, data):
    """A valid run of four ranks on two hosts, each of which counted its own iterations and knew its place."""
    summary, results = measured(write(tmp_path, data), tmp_path / "results", "--no-report")
    (run,) = summary["runs"]
    folder = results / "launched" / run["run"]
    rows = pq.read_table(folder / "tables/iterations.parquet").to_pylist()
    for rank in range(4):
        mine = [row for row in rows if row["rank"] == rank and row["window_name"] == "w1"]
        assert len(mine) >= 20
        assert all(row["seconds"] >= 0.03 for row in mine)
        (log,) = folder.glob(f"hosts/*/training-rank{rank}/stdout*")
        assert f"{rank}/4 local {rank % 2} step 3 took" in log.read_text()
        assert log.parent.parent.name == f"h{1 + rank // 2}"
    nothing_is_left(run["run"])


def test_torchrun_on_each_host_makes_one_job_of_the_ranks_of_all(tmp_path):
    as_each_rank_says(tmp_path, experiment(tmp_path, TORCH, "torchrun"))


def test_a_rank_that_is_killed_ends_a_run_under_torchrun(tmp_path):
    err = killed_in_its_window(tmp_path, experiment(tmp_path, TORCH, "torchrun"), launch="training-rank3")
    assert "training-rank3" in err
    assert "the command was ended by signal 9" in err


@pytest.mark.frameworks
@pytest.mark.skipif(not environments.is_built("torch"), reason="no Open MPI here: run `make frameworks`")
def test_mpirun_makes_one_job_of_the_ranks_of_all(tmp_path):
    python = environments.built("torch")
    as_each_rank_says(tmp_path, experiment(tmp_path, MPI, "mpirun", python=str(python)))
