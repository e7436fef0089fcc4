"""A run beside other work: what its processors did is sampled on every host, and judged."""

from __future__ import annotations

import os
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.helpers.orch_runs import last_json, manifest_of, orch, small, write

pytestmark = [pytest.mark.testbed, pytest.mark.alone]

SPIN = "import os\nprint('up', flush=True)\nwhile os.getppid() == {parent}: pass"


@pytest.fixture
def taken():
    """Twice as many processes as there are processors, none of which ever waits for anything."""
    code = SPIN.format(parent=os.getpid())
    spinning = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2 * os.cpu_count())
    ]
    for process in spinning:
        assert process.stdout.readline() == "up\n"
    yield
    for process in spinning:
        process.kill()
        process.communicate()


def test_a_window_beside_work_that_takes_the_processors_is_not_valid(taken, tmp_path):
    measure = {"warmup": 2, "iterations": 20, "at_most": "30s"}
    experiment = small(traffic=None, collect=None, measure=measure, validity={"processor": "5%", "min_iterations": 3})
    status, out, err = orch("run", write(tmp_path, experiment), "--results", tmp_path / "results", "--json")
    assert status == 3, out + err
    (run,) = last_json(out)["runs"]
    manifest, folder = manifest_of(tmp_path / "results")
    gates = {gate["name"]: gate for gate in manifest["windows"][0]["gates"]}
    gate = gates["processor"]
    assert (gate["passed"], gate["required"]) == (False, True)
    assert gate["measured"] > 0.05
    assert f"for {gate['measured']:.1%} of the window its threads waited for processors" in gate["message"]
    assert gate["message"] in run["reasons"]
    assert gates["clock"]["passed"], "hosts of one kernel have one clock, however slowly they answer"
    rows = {row["host"]: row for row in pq.read_table(folder / "tables/processors.parquet").to_pylist()}
    assert set(rows) == {"h1", "h2", "h3"}  # the congestion control of all three was changed
    assert all(row["others_share"] > 0.5 for row in rows.values())
    (report,) = (tmp_path / "results/small").glob("report-*.html")
    assert "kept by others" in report.read_text()
