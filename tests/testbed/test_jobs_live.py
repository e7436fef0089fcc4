"""Two trainings on one link: the offset between them is the one that was asked, and both are slower than alone."""

from __future__ import annotations

import pytest

from orchestrator.questions.interference import interference
from orchestrator.questions.rows import Measured
from orchestrator.report.runs import Run
from orchestrator.store.rundir import opened
from tests.helpers.orch_runs import measured, nothing_is_left, small, write

pytestmark = [pytest.mark.testbed, pytest.mark.alone]

EVERY_S, BY_S = 0.8, 0.03
WORKLOAD = {"ddp": {"model": "vgg16", "compute_time": "60ms", "hosts": ["h1", "h2"]}}  # 177 ms of the link


def run_of(folder, name, jobs):
    """The sealed run of such jobs."""
    data = small(
        name=name,
        workload=None,
        traffic=None,
        jobs=jobs,
        conditions=[
            {"congestion-control": "cubic"},
            *([{"congestion-control": {"algorithm": "reno", "job": "b"}}] if jobs[1:] else []),
        ],
        collect=["nic", "tcp"],
        measure={"warmup": 2, "iterations": 8, "at_most": "30s"},
    )
    summary, results = measured(write(folder, data, f"{name}.yaml"), folder / name, "--no-report")
    (run,) = summary["runs"]
    nothing_is_left(run["run"])
    return Run(results / name / run["run"])


def test_two_jobs_at_an_offset(tmp_path):
    first = {"name": "a", "workload": WORKLOAD, "every": "800ms"}
    second = {**first, "name": "b", "start": {"after": "a", "by": "30ms"}}
    together = run_of(tmp_path, "together", [first, second])
    alone = [run_of(tmp_path, f"alone{job['name']}", [job]) for job in (first, {**first, "name": "b"})]
    times = {row["job"]: row for row in together.rows("training")}
    assert times["b"]["offset_s"] == pytest.approx(BY_S, abs=0.05 * EVERY_S)
    assert times["b"]["off_s"] <= 0.05 * EVERY_S
    assert times["a"]["offset_s"] is None
    for row in times.values():
        assert row["period_s"] == pytest.approx(EVERY_S, rel=0.05)
    gates = {gate.name: gate.passed for gate in together.windows[0].gates}
    assert (gates["period"], gates["offset"]) == (True, True)

    # Connections of one host, each with its own job's congestion control.
    controls = [row["congestion"] for row in together.rows("sockets") if row["src"] != row["dst"]]
    assert {"cubic", "reno"} <= set(controls)

    entries = tuple(opened(run.path) for run in (together, *alone))
    rows = interference(Measured(entries=entries))
    assert {row["training"] for row in rows} == {"a", "b"}
    for row in rows:
        assert row["slowdown"] > 1.2  # two of 177 ms begin within 30 ms of each other
        assert row["both_s"] > 0.1
        assert row["score"] < 1
