"""Collectors that see ranks in one real run: `perf`, and the two of docs/own-parts.md as another package's parts."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from documentation import markdown
from orchestrator.report.runs import Run
from orchestrator.store.tabular import tables
from tests.helpers.orch_runs import measured, nothing_is_left, small, write

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(shutil.which("perf") is None, reason="no perf of this kernel (Ubuntu has a package for each)"),
]

ROOT = Path(__file__).parents[2]
HOSTS = ["h1", "h2"]
DDP = {"ddp": {"model": "mobilenet_v2", "compute_time": "40ms", "hosts": HOSTS}}
COMMAND = {
    "command": {
        "argv": ["{python}", "-S", "light_rank.py", "{rank}", "{hosts}", "{port}", "140000", "0.04"],
        "files": [str(ROOT / "tests/helpers/light_rank.py")],
        "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"},
        "hosts": HOSTS,
    }
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The collectors of the page, each as it stands there, installed as pip would."""
    site = tmp_path_factory.mktemp("site")
    about = site / "mylab_parts-1.0.dist-info"
    about.mkdir()
    names = []
    for block in markdown.blocks((ROOT / "docs/own-parts.md").read_text()):
        name = re.search(r'^NAME = "([a-z-]+)"$', block.text, re.MULTILINE)
        if name and "def read(" in block.text:  # a gate has a name, too
            (site / f"mylab_{name[1]}.py").write_text(block.text + "\n")
            names.append(name[1])
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mylab-parts\nVersion: 1.0\n")
    listed = "".join(f"{name} = mylab_{name}\n" for name in names)
    (about / "entry_points.txt").write_text(f"[orch.collectors]\n{listed}")
    assert names == ["lifetime", "resident"]
    return site


@pytest.mark.parametrize("workload", [DDP, COMMAND], ids=["ddp", "command"])
def test_collectors_see_each_rank_and_the_rank_is_as_without(package, workload, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package), str(ROOT)]))
    data = small(workload=workload, traffic=None, collect=["tcpdump", "lifetime", "perf", "resident"])
    summary, results = measured(write(tmp_path, data), tmp_path / "results", "--no-report", "--wait", "5min")
    (run,) = summary["runs"]
    nothing_is_left(run["run"])
    sealed = Run(results / "small" / run["run"])
    ranks = {one.name: one for one in sealed.manifest.launches if one.rank is not None}
    assert {name: (one.wrapped_by, one.status, one.failed) for name, one in ranks.items()} == {
        f"training-rank{rank}": (("collector.lifetime",), ranks[f"training-rank{rank}"].status, None) for rank in (0, 1)
    }
    assert all(one.status in (0, -15) for one in ranks.values())
    window = sealed.manifest.windows[0]
    rows = tables.read(sealed.path / "tables", "counters").to_pylist()
    for rank, node in enumerate(HOSTS):
        port = f"training-rank{rank}"
        mine = {
            counter: [
                row["value"] for row in rows if (row["node"], row["port"], row["counter"]) == (node, port, counter)
            ]
            for counter in ("perf.task-clock_s", "perf.context-switches", "resident_bytes")
        }
        assert all(len(values) > 2 for values in mine.values()), mine
        assert 0 < mine["perf.task-clock_s"][-1] < 60
        assert mine["perf.task-clock_s"] == sorted(mine["perf.task-clock_s"])
        assert mine["perf.context-switches"][-1] > 20
        assert min(mine["resident_bytes"]) > 5e6
        alive = {
            row["value"]: row["time_ns"] for row in rows if (row["port"], row["counter"]) == (f"rank{rank}", "alive")
        }
        assert alive[1.0] < window.start_ns < window.end_ns < alive[0.0]
        assert {row["launch"] for row in rows if row["port"] == f"rank{rank}"} == {f"{port}/lifetime"}
