"""Ranks in containers on hosts that are reached by SSH: each with podman's own store, or docker's own daemon."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.testbed.local.host_image import Tree
from tests.helpers.container_help import PATIENCE_S, PYTHON, python_image
from tests.helpers.orch_runs import (
    in_its_window,
    measured,
    nothing_is_left,
    orch,
    parent_of,
    processes,
    wait_for,
    write,
)
from tests.helpers.rack import Rack, on_inventory, rack

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.variants,
    pytest.mark.skipif(os.geteuid() != 0, reason="containers on a host of this machine take root"),
]
IMAGE = "localhost/orch-test-lab:1"
MARK = "/of-the-image"
STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "/run/podman-graph"\nrunroot = "/run/podman-run"\n'
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    made: Tree = python_image([])
    made.file(MARK, "here")
    path = tmp_path_factory.mktemp("image") / "image.tar"
    path.write_bytes(made.archive())
    return path


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    with rack(tmp_path_factory.mktemp("rack"), hosts=2) as up:
        yield up


@pytest.fixture(scope="module")
def podman(hosts, archive):
    """Hosts with a store of podman each, which have the image."""
    with contextlib.ExitStack() as closing:
        for host in hosts.names:
            closing.enter_context(hosts.mounted(host, "/etc/containers", "tmpfs", "mode=755"))
            settings = hosts.files(host) / "etc/containers"
            (settings / "storage.conf").write_text(STORAGE)
            (settings / "policy.json").write_text(POLICY)
        same_everywhere(hosts, "podman", archive)
        yield hosts


def same_everywhere(hosts: Rack, runtime: str, archive: Path) -> None:
    """Make an image of files on the first host, and bring that to the others: its id has the time in it."""
    first, *others = hosts.names
    hosts.inside(first, runtime, "import", archive, IMAGE)
    saved = hosts.folder / f"{runtime}.tar"
    saved.unlink(missing_ok=True)
    hosts.inside(first, runtime, "save", "--output", saved, IMAGE)
    for host in others:
        hosts.inside(host, runtime, "load", "--input", saved)


@contextlib.contextmanager
def daemon(hosts: Rack, host: str):
    """A docker daemon on one host, in the host's own namespaces, with all of its files in memory there."""
    command = [
        "dockerd",
        "--data-root",
        "/run/docker-data",
        "--exec-root",
        "/run/docker-exec",
        "--pidfile",
        "/run/docker.pid",
        "--host",
        "unix:///run/docker.sock",
        "--bridge",
        "none",
        "--iptables=false",
        "--ip6tables=false",
    ]
    enter = ["nsenter", "-t", str(hosts.pids[host]), "-m", "-n", "-u", "-i", "-p"]
    with (hosts.folder / f"dockerd-{host}.log").open("wb") as log:
        process = subprocess.Popen([*enter, *command], stdout=log, stderr=log, start_new_session=True)
        try:
            wait_for(lambda: answers(hosts, host), PATIENCE_S, "dockerd")
            yield
        finally:
            os.kill(only_child(process.pid), signal.SIGTERM)
            process.wait(PATIENCE_S)


def only_child(pid):
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def answers(hosts, host):
    with contextlib.suppress(AssertionError):
        return hosts.inside(host, "docker", "version", "--format", "{{.Server.Version}}")
    return False


@pytest.fixture
def docker(hosts, archive):
    with contextlib.ExitStack() as closing:
        for host in hosts.names:
            closing.enter_context(daemon(hosts, host))
        same_everywhere(hosts, "docker", archive)
        yield hosts


def contained(hosts, runtime, **changes):
    experiment = on_inventory(hosts.inventory(), traffic=None, conditions=None, collect=["tcpdump", "nic"], **changes)
    container = {"image": IMAGE, "runtime": runtime, "python": PYTHON}
    command = {**experiment["workload"]["command"], "container": container}
    return {**experiment, "workload": {"command": command}}


def in_containers(run):
    """Every process of a run that has the image's files."""
    return [pid for pid in processes(ORCH_RUN=run) if Path(f"/proc/{pid}/root{MARK}").exists()]


def containers(hosts, runtime):
    """What the runtime knows of on any host."""
    return "".join(hosts.inside(host, runtime, "ps", "--all", "--quiet") for host in hosts.names)


@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_a_run_over_ssh_has_its_ranks_in_containers_and_leaves_none(runtime, request, tmp_path):
    hosts = request.getfixturevalue(runtime)
    path = write(tmp_path, contained(hosts, runtime))
    summary, results = measured(path, tmp_path / "results", "--no-report")
    (run,) = summary["runs"]
    manifest = json.loads((results / "small" / run["run"] / "manifest.json").read_text())
    assert manifest["images"][IMAGE]["runtime"] == runtime
    assert {launch["container"]["image"] for launch in manifest["launches"] if launch["rank"] is not None} == {IMAGE}
    nothing_is_left(run["run"])
    assert containers(hosts, runtime) == ""
    assert orch("doctor", path)[0] == 0


@pytest.mark.parametrize("victim", ["agent", "monitor"])
@pytest.mark.parametrize("runtime", ["podman", "docker"])
def test_no_container_of_a_host_is_left_whoever_is_killed(runtime, victim, request, tmp_path):
    hosts = request.getfixturevalue(runtime)
    path = write(tmp_path, {**contained(hosts, runtime), "measure": {"warmup": 1, "at_most": "60s"}})
    with in_its_window(path, tmp_path / "results", "--no-report", iterations=0) as (process, _, run):
        inside = wait_for(lambda: in_containers(run), what="containers")
        first = next(pid for pid in inside if parent_of(pid) not in inside)
        sampler = processes(ORCH_RUN=run, ORCH_LAUNCH="processor.h1")[0]
        killed = {"agent": parent_of(sampler), "monitor": parent_of(first)}[victim]
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in inside) or process.poll() is not None)
        process.communicate(timeout=300)
        assert process.returncode == 1
    nothing_is_left(run)
    wait_for(lambda: containers(hosts, runtime) == "", what="the end of containers")


def test_images_that_differ_between_hosts_are_told_before_anything_starts(podman, archive, tmp_path):
    other = python_image([])
    other.file(MARK, "another")
    changed = tmp_path / "other.tar"
    changed.write_bytes(other.archive())
    podman.inside("h2", "podman", "import", changed, IMAGE)
    try:
        path = write(tmp_path, contained(podman, "podman"))
        status, _, err = orch("run", path, "--results", tmp_path / "results", "--no-report")
        assert status == 1
        assert f"the image {IMAGE} is not the same on all hosts: " in err
        assert " on h1; " in err
    finally:
        same_everywhere(podman, "podman", archive)


def test_a_daemon_that_does_not_run_and_an_image_that_is_not_there_are_told_with_what_to_do(podman, tmp_path):
    absent = contained(podman, "podman")
    absent["workload"]["command"]["container"]["image"] = "localhost/orch-none:1"
    status, _, err = orch("run", write(tmp_path, absent), "--results", tmp_path / "results", "--no-report")
    assert status == 1
    assert "needs image localhost/orch-none:1" in err
    assert "get or build the image first" in err
    status, _, err = orch("run", write(tmp_path, contained(podman, "docker")), "--results", tmp_path / "results")
    assert status == 1
    assert "start it: sudo systemctl start docker" in err
