"""Ranks in containers of an image: measured as without, the same image everywhere, and gone whoever dies."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from test_run_launchers import TORCH, as_each_rank_says, experiment

from orchestrator.testbed.local import containers, host_image, runtimes
from tests.helpers.container_help import PYTHON, import_image, own_store, python_image, soon
from tests.helpers.orch_runs import (
    in_its_window,
    light,
    measured,
    nothing_is_left,
    orch,
    parent_of,
    processes,
    wait_for,
    write,
)

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.variants,
    pytest.mark.skipif(os.geteuid() != 0, reason="a container on a host of this machine takes root"),
]
ROOT = Path(__file__).parents[2]
MARK = "/of-the-image"
IMAGE = "localhost/orch-test-ranks:1"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Where the images and containers of these tests are: other tests may have containers at the same time."""
    with own_store(tmp_path_factory.mktemp("podman")) as folder:
        yield folder


@pytest.fixture(scope="module")
def image(store):
    """A user's image: a Python and nothing else of this machine."""
    assert store.is_dir()
    made = python_image([])
    made.file(MARK, "here")
    return import_image("podman", made, IMAGE)


def contained(image, **changes):
    """A light run of two hosts whose ranks are in containers."""
    experiment = light(traffic=None, conditions=None, collect=["tcpdump", "nic"], **changes)
    command = {**experiment["workload"]["command"], "container": {"image": image, "python": PYTHON}}
    return {**experiment, "workload": {"command": command}}


def test_torchrun_and_its_ranks_are_in_containers_of_an_image_with_this_machines_torch(image, tmp_path):
    own = containers.ensure_image(runtimes.able("podman"), soon())
    mounts = [*host_image.programs(), *host_image.environments([])]
    container = {"image": own, "python": sys.executable, "mounts": mounts}
    as_each_rank_says(tmp_path, experiment(tmp_path, TORCH, "torchrun", container=container))


def firsts(run):
    """The first process of each container of a run: its parent is none of the run's."""
    inside = [pid for pid in processes(ORCH_RUN=run) if Path(f"/proc/{pid}/root{MARK}").exists()]
    return [pid for pid in inside if parent_of(pid) not in inside]


def monitors(store):
    """podman's processes that watch containers of a store."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "comm").read_text() == "conmon\n" and str(store) in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


def container_of(monitor):
    """The id of the container that a monitor watches."""
    words = Path(f"/proc/{monitor}/cmdline").read_text().split("\0")
    return words[words.index("-c") + 1]


def test_ranks_in_containers_are_measured_as_they_are_without(store, image, tmp_path):
    summary, results = measured(write(tmp_path, contained(image)), tmp_path / "results", "--no-report")
    (run,) = summary["runs"]
    folder = results / "small" / run["run"]
    manifest = json.loads((folder / "manifest.json").read_text())
    about = manifest["images"][image]
    assert re.fullmatch(r"[0-9a-f]{64}", about["id"])
    assert about["runtime"] == "podman"
    rows = pq.read_table(folder / "tables/iterations.parquet").to_pylist()
    assert {row["rank"] for row in rows} == {0, 1}
    used = pq.read_table(folder / "tables/tasks.parquet").to_pylist()
    assert max(row["run_s"] for row in used if row["process"] == "training-rank1") > 0
    stopped = [
        event
        for event in map(json.loads, (folder / "events.jsonl").read_text().splitlines())
        if event["event"] == "stopped" and event["name"] == "training-rank0"
    ]
    assert stopped[0]["status"] == 0
    assert stopped[0]["max_rss_bytes"] > 5e6
    nothing_is_left(run["run"])
    assert monitors(store) == []
    assert not [path for path in folder.rglob("*") if path.name in (".containers", "container.socket")]


AROUND = """
from orchestrator.core.fields import Model
from orchestrator.parts.launch import Wrapper

NAME = "around"


class Config(Model):
    pass


def problems(config, topology):
    return []


def requirements(config, topology):
    return []


def wrapper(config, rank, topology):
    return Wrapper(argv=("sh", "-c", 'echo begun >said; "$@"; echo ended >>said', "sh"))


def read(output):
    return {}
"""


def test_collectors_see_ranks_in_containers(store, image, tmp_path, monkeypatch):
    """A command around the rank runs in its image; what has its process id counts the rank, not podman."""
    about = tmp_path / "site/around-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: around\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[orch.collectors]\naround = around_ranks\n")
    (about.parent / "around_ranks.py").write_text(AROUND)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(about.parent), str(ROOT)]))
    path = write(tmp_path, {**contained(image), "collect": ["tcpdump", "perf", "around"]})
    summary, results = measured(path, tmp_path / "results", "--no-report")
    (run,) = summary["runs"]
    folder = results / "small" / run["run"]
    for rank, host in enumerate(("h1", "h2")):
        said = folder / f"hosts/{host}/training-rank{rank}/around/said"
        assert said.read_text().split() == ["begun", "ended"]
    rows = pq.read_table(folder / "tables/counters.parquet").to_pylist()
    switches = [row["value"] for row in rows if row["counter"] == "perf.context-switches"]
    assert max(switches) > 20
    nothing_is_left(run["run"])
    assert monitors(store) == []


def test_a_rank_in_a_container_has_its_hosts_network_and_its_images_files(store, image, tmp_path):
    path = write(tmp_path, {**contained(image), "measure": {"warmup": 1, "at_most": "60s"}})
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=2) as (_, _, run):
        ranks = [processes(ORCH_RUN=run, ORCH_LAUNCH=f"training-rank{number}")[-1] for number in (0, 1)]
        agents = {parent_of(monitor) for monitor in monitors(store)}
        for space in ("net", "ipc", "uts"):
            seen = {Path(f"/proc/{pid}/ns/{space}").readlink() for pid in ranks}
            assert seen == {Path(f"/proc/{pid}/ns/{space}").readlink() for pid in agents}
            assert len(seen) == 2
        assert all(Path(f"/proc/{pid}/root{MARK}").read_text() == "here" for pid in ranks)
        assert all("Seccomp:\t0" in Path(f"/proc/{pid}/status").read_text() for pid in ranks)
    nothing_is_left(run)


@pytest.mark.parametrize("victim", ["agent", "monitor", "client", "rank"])
def test_nothing_of_a_container_is_left_whoever_is_killed(store, image, victim, tmp_path):
    path = write(tmp_path, {**contained(image), "measure": {"warmup": 1, "at_most": "60s"}})
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=2) as (process, _, run):
        first = firsts(run)[0]
        monitor = parent_of(first)
        agent = parent_of(monitor)
        ids = {container_of(monitor) for monitor in monitors(store)}
        clients = [
            pid
            for pid in processes(ORCH_RUN=run, ORCH_LAUNCH="")
            if parent_of(pid) == agent and "podman" in Path(f"/proc/{pid}/comm").read_text()
        ]
        rank = processes(ORCH_RUN=run, ORCH_LAUNCH="training-rank0")[-1]
        os.kill({"agent": agent, "monitor": monitor, "client": clients[0], "rank": rank}[victim], signal.SIGKILL)
        if victim != "rank":
            wait_for(lambda: not Path(f"/proc/{first}").exists(), what="the end of the container")
        _, err = process.communicate(timeout=300)
        assert process.returncode == 1, err
    nothing_is_left(run)
    assert monitors(store) == []
    assert len(ids) == 2
    groups = {path.name.rpartition("-")[2] for path in Path("/sys/fs/cgroup").rglob("libpod-*")}
    assert victim == "monitor" or not groups & ids, (
        "podman leaves empty ones; without its monitor it does not know them"
    )


def test_what_keeps_containers_from_starting_is_told_before_anything_starts(image, tmp_path):
    absent = contained("localhost/orch-none:1")
    status, out, err = orch("run", write(tmp_path, absent), "--results", tmp_path / "results")
    assert status == 1
    assert "podman has no image localhost/orch-none:1 here, and a run downloads none" in err
    assert not list((tmp_path / "results").glob("*/*"))
    wrong = contained(image)
    wrong["workload"]["command"]["container"]["python"] = "/opt/no/python"
    status, out, err = orch("run", write(tmp_path, wrong), "--results", tmp_path / "results")
    assert status == 1
    assert "/opt/no/python" in err
    assert "give the image a Python" in err
    assert out is not None
