"""Hosts that are containers, as far as that shows without any: files, command lines, images, what is told."""

from __future__ import annotations

import io
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from orchestrator.core import private_folder
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import ConfigError, TestbedError
from orchestrator.core.private_folder import PrivateFolder
from orchestrator.experiment import loading, testbeds
from orchestrator.experiment.experiment import on_this_machine
from orchestrator.testbed.local import containers, netns_needs, runtimes
from orchestrator.testbed.local.host_image import Tree, digest
from orchestrator.testbed.local.local_spec import Containers, LocalSpec, topology
from orchestrator.testbed.local.netns_setup import new_keys, setup_document
from tests.helpers.experiments import orch
from workloads.common import environments

ROOT = Path(__file__).parents[3]
HEAD = "name: x\nworkload: {ddp: {model: resnet50, hosts: [h1, h2]}}\nmeasure: {iterations: 30}\n"
LOCAL = HEAD + "testbed: {local: {hosts: 2, link: 25gbit, scale: 100%s}}\n"
ON_RACK = HEAD + "testbed: {inventory: rack.yaml}\n%s\n"
RACK = "link: 25gbit\nhosts:\n" + "".join(
    f"  h{i}: {{ssh: h{i}, data: {{address: 10.0.0.{i}/24, device: eth1}}}}\n" for i in (1, 2)
)


@pytest.fixture
def local(tmp_path):
    """What an experiment says of a local testbed with more keys; `local_run` makes it one of an inventory."""

    def load(more: str = "", *, local_run: str | None = None):
        path = tmp_path / "x.yaml"
        (tmp_path / "rack.yaml").write_text(RACK)
        path.write_text(LOCAL % more if local_run is None else ON_RACK % local_run)
        return loading.checked(path, [], local=local_run is not None)[0].testbed.local

    return load


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (", image: a:1", "testbed.local.image: is for containers"),
        (", mounts: [/data]", "testbed.local.mounts: is for containers"),
        (", runtime: podman, python: python3.12", "testbed.local.python: is of an image"),
        (", runtime: lxc", "runtime"),
        (", runtime: podman, image: '--privileged'", "not an image's name"),
        (", runtime: podman, image: 'a b'", "not an image's name"),
        (", runtime: podman, mounts: [data]", "not a folder of this machine"),
        (", runtime: podman, mounts: [/]", "not a folder of this machine"),
        (", runtime: podman, mounts: [/a/../b]", "not a folder of this machine"),
        (", runtime: podman, image: a, python: -c", "not a program"),
    ],
)
def test_what_makes_no_sense_is_a_mistake_with_its_place(local, more, told):
    with pytest.raises(ConfigError, match=r"x\.yaml:\d+:\d+") as caught:
        local(more)
    assert told in str(caught.value)


def test_hosts_are_namespaces_unless_a_runtime_is_named(local):
    assert testbeds.local_spec(local()).containers is None
    assert testbeds.local_spec(local(", runtime: podman")).containers == Containers(runtime="podman")
    given = testbeds.local_spec(local(", runtime: docker, image: a/b:1, python: /opt/python, mounts: [/data]"))
    assert given.containers == Containers(runtime="docker", image="a/b:1", python="/opt/python", mounts=("/data",))


def test_a_local_run_can_take_the_clusters_image(local):
    asked = "local_run: {runtime: podman, image: lab/torch:2, mounts: [/data]}"
    found = local(local_run=asked)
    assert (found.runtime, found.image, found.mounts, found.scale) == ("podman", "lab/torch:2", ("/data",), 100)
    assert local(local_run="").runtime == "namespaces"
    with pytest.raises(ConfigError, match="cannot be containers of this machine: is for containers"):
        local(local_run="local_run: {image: lab/torch:2}")


def test_a_local_run_of_a_local_testbed_changes_what_it_names(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(LOCAL % "" + "local_run: {runtime: podman}\n")
    experiment, _ = loading.checked(path, [], local=False)
    assert experiment.testbed.local.runtime == "namespaces"
    swapped = on_this_machine(experiment).testbed.local
    assert (swapped.runtime, swapped.scale) == ("podman", 100)


def spec(**more):
    return LocalSpec(hosts=("h1", "h2"), rates={"h1": 1e9, "h2": 1e9}, **more)


def test_an_image_of_ones_own_brings_its_own_python_and_frameworks():
    ours = topology(spec(containers=Containers(runtime="podman")))
    own = topology(spec(containers=Containers(runtime="docker", image="a:1", python="python3.12")))
    assert [node.python for node in ours.nodes] == [sys.executable] * 3
    assert [node.python for node in own.nodes] == ["python3.12", "python3.12", sys.executable]
    assert (ours.described, own.described) == ("local (podman containers)", "local (docker containers of a:1)")
    assert (ours.shares_files, own.shares_files) == (True, False)
    host = own.node("h1")
    assert environments.interpreter(None, "tensorflow", host, own) == "python3.12"
    assert environments.interpreter(None, "tensorflow", host, ours) == str(environments.built("tensorflow"))
    assert "image" in environments.remedy("torch", own)


def test_only_hosts_that_are_containers_are_entered_through_their_first_process():
    folders = {name: Path("/x") / name for name in ("h1", "h2", "switch")}

    def entered(containers):
        told = setup_document(spec(containers=containers), keys=new_keys(), folders=folders, sshd="/sshd", limit_s=1.0)
        return [(node["joins"], "ForceCommand" in node["files"]["/run/orch-sshd/config"][1]) for node in told["nodes"]]

    assert entered(Containers(runtime="podman")) == [(True, True), (True, True), (False, False)]
    assert entered(None) == [(False, False)] * 3


def test_a_containers_name_has_its_run_and_only_what_names_may_have():
    assert containers.container("20261122T0700-abc", "h1") == "orch-20261122T0700-abc-h1"
    assert containers.container("a/b c", "h1") == "orch-a-b-c-h1"


def test_a_path_with_commas_and_quotes_is_one_mount():
    (option, plain) = runtimes.mount("/data/x", "/x")
    assert (option, plain) == ("--mount", "type=bind,src=/data/x,dst=/x,readonly")
    (_, odd) = runtimes.mount('/a,b"c', "/x", writable=True)
    assert odd == 'type=bind,"src=/a,b""c",dst=/x'


SAID = [
    (
        "docker",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "start",
    ),
    (
        "docker",
        "permission denied while trying to connect to the Docker daemon socket at unix:///run/docker.sock",
        "sudo",
    ),
    ("podman", "Error: OCI runtime error: crun: cgroups in hybrid mode not supported", "install runc"),
    ("podman", 'exec: "python3": executable file not found in $PATH: No such file or directory', "3.8 or later"),
    ("docker", "standard_init_linux.go:228: exec user process caused: exec format error", "processors"),
    ("docker", "no space left on device", "docker system df"),
    ("podman", "Error: x: image not known", "podman pull IMAGE"),
    ("podman", "something nobody has seen", None),
]


@pytest.mark.parametrize(("name", "said", "told"), SAID)
def test_what_a_runtime_complains_of_has_a_remedy(name, said, told):
    found = runtimes.remedy(name, said)
    assert found is None if told is None else told in found


def stub(folder: Path, name: str, text: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """The only folder in which programs are found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(netns_needs, "SBIN", ())
    monkeypatch.setattr(runtimes.os, "geteuid", lambda: 0)
    return tmp_path


def test_a_runtime_that_is_not_there_is_told_with_its_package(programs, monkeypatch):
    monkeypatch.setattr(runtimes.packages, "local_family", lambda: "ID=fedora\n")
    for name, package in (("podman", "podman"), ("docker", "moby-engine")):
        assert runtimes.problems(name) == [(f"the program {name} is not installed", f"sudo dnf install {package}")]
        with pytest.raises(TestbedError, match=f"{name} is not installed"):
            runtimes.able(name)


def test_a_runtime_that_is_too_old_is_told(programs):
    stub(programs, "docker", "echo 19.03.1")
    assert runtimes.problems("docker") == [("docker 19.03.1 is too old", "install docker 20.10 or later")]
    stub(programs, "docker", "echo 28.2.2")
    assert runtimes.problems("docker") == []


def test_where_cgroups_are_in_hybrid_mode_podman_is_told_to_take_runc(programs, monkeypatch):
    stub(programs, "podman", "echo 4.3.1")
    monkeypatch.setattr(runtimes, "_UNIFIED", programs)
    ((what, _),) = runtimes.problems("podman")
    assert "runc is not installed" in what
    stub(programs, "runc", "exit")
    assert runtimes.problems("podman") == []
    assert runtimes.detected("podman").argv("ps") == [f"{programs}/podman", "--runtime", f"{programs}/runc", "ps"]
    monkeypatch.setattr(runtimes, "_UNIFIED", programs / "none")
    assert runtimes.detected("podman").options == ()


def test_an_ordinary_user_is_sent_from_docker_to_podman(programs, monkeypatch):
    stub(programs, "docker", "echo 28.2.2")
    monkeypatch.setattr(runtimes.os, "geteuid", lambda: 1000)
    ((_, remedy),) = runtimes.problems("docker")
    assert remedy == "run with sudo, or take podman"


def test_an_error_of_a_runtime_has_what_it_printed(programs):
    stub(programs, "podman", "echo 'Error: x: image not known' >&2; exit 125")
    with pytest.raises(TestbedError) as caught:
        runtimes.detected("podman").ask("run", "x", deadline=Deadline.after(60))
    assert "podman run failed" in caught.value.message
    assert "image not known" in caught.value.tail
    assert "podman pull" in caught.value.hint


def members(made: Tree) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(made.archive())) as archive:
        return {member.name: member for member in archive}


def test_a_tree_is_the_same_for_the_same_content_and_holds_nothing_that_not_everybody_may_read(tmp_path):
    source = tmp_path / "etc"
    (source / "left").mkdir(parents=True)
    for name, mode in (("open", 0o644), ("key", 0o600), ("left/out", 0o644)):
        (source / name).write_text(name)
        (source / name).chmod(mode)
    (source / "link").symlink_to("open")

    def made() -> Tree:
        tree = Tree()
        tree.copy(source, without=["left"])
        tree.folder("/home/me", owner=1000)
        return tree

    found = members(made())
    own = [name.rpartition("/")[2] for name in found if name.startswith(str(source).lstrip("/") + "/")]
    assert own == ["link", "open"]
    assert found["home/me"].uid == 1000
    assert stat.S_IMODE(found["home"].mode) == 0o755
    before = digest(made().archive())
    os.utime(source / "open", (1, 1))
    assert digest(made().archive()) == before
    (source / "open").write_text("other")
    assert digest(made().archive()) != before


def test_a_private_folder_tells_whether_its_owner_lives(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = PrivateFolder("x-")
    assert private_folder.owned(folder.path)
    assert not private_folder.owned(tmp_path / "none")
    folder.close()
    folder.close()
    assert not private_folder.owned(folder.path)
    assert list(tmp_path.iterdir()) == []
    killed = "import os; from orchestrator.core.private_folder import PrivateFolder as F; one = F('x-')\n"
    killed += "print(one.path, flush=True); os._exit(0)"
    done = subprocess.run([sys.executable, "-c", killed], capture_output=True, text=True, check=True, cwd=ROOT)
    left = Path(done.stdout.strip())
    assert left.is_dir()
    assert not private_folder.owned(left)


def test_a_private_folder_lies_elsewhere_where_the_runtime_folder_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = PrivateFolder("x-")
    assert folder.path.parent.parent == tmp_path
    folder.close()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "neither"))
    with pytest.raises(TestbedError, match="cannot be made"):
        PrivateFolder("x-")


def test_a_private_folder_that_somebody_removed_is_closed(tmp_path, monkeypatch):
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    folder = PrivateFolder("x-")
    shutil.rmtree(runtime)
    folder.close()
    assert folder.closed


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--link", "1kbit"), "--link: 1kbit is too slow; accepted: 1mbit or more"),
        (("--image", "a:1"), "--image: is for containers; accepted: with runtime: podman or runtime: docker"),
        (("--hosts", "1"), "--hosts: "),
    ],
)
def test_a_mistake_in_the_options_of_orch_testbed_names_the_option(options, told):
    status, _, err = orch("testbed", *options)
    assert (status, told in err, "Traceback" in err) == (2, True, False), err


def test_orch_prepare_takes_a_testbed_or_an_image():
    status, _, err = orch("prepare", "rack.yaml", "--image", "podman")
    assert status == 2
    assert "--image" in err
