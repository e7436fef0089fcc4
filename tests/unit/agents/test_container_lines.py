"""Containers of ranks as plain data: what an experiment says, what the plan makes of it, and command lines."""

from __future__ import annotations

import json

import msgspec
import pytest

from orchestrator.agents.agent.container_lines import Host, checked, line
from orchestrator.agents.agent.containers import ImageFound
from orchestrator.core.errors import TestbedError
from orchestrator.execution.nodes import images
from orchestrator.experiment import feasibility
from orchestrator.parts.launch import Container, Mount, Requirement
from orchestrator.parts.topology import Topology
from orchestrator.remote.agent_client import Finding
from tests.helpers.experiments import LOCAL, WORKLOAD, changed, orch

ROOT = Host(uid=0, gid=0, groups=(0,), infiniband=True, runc="/usr/sbin/runc", limits=(("nofile", 20000),), node="n7")
USER = ROOT._replace(uid=1000, gid=1000, groups=(1000, 44), infiniband=False, runc="")
TOPOLOGY = Topology(kind="local", nodes=(), links=())
MOUNTS = (Mount(source="/data", target="/data"), Mount(source="/scratch/me", target="/scratch", writable=True))


def words(runtime, host, *, gpus=False, image="lab/training:3"):
    container = Container(runtime=runtime, image=image, mounts=MOUNTS, gpus=gpus)
    return line(
        checked(msgspec.to_builtins(container)),
        host,
        folder="/var/tmp/orch-0/r.n7/rank0",
        cidfile="/x/rank0.cid",
        label="r/n7/rank0",
        env=["ORCH_RUN=r"],
        command=["-I", "program.py"],
    )


def after(argv, option):
    """Every value of an option."""
    return [argv[place + 1] for place, word in enumerate(argv) if word == option]


def test_podman_is_told_to_share_the_hosts_network_and_memory_and_to_keep_out_of_the_way():
    argv = words("podman", ROOT, gpus=True)
    assert argv[:4] == ["podman", "--runtime", "/usr/sbin/runc", "run"]
    for option, value in (("--network", "host"), ("--ipc", "host"), ("--user", "0:0"), ("--pull", "never")):
        assert after(argv, option) == [value]
    assert after(argv, "--cidfile") == ["/x/rank0.cid"]
    assert after(argv, "--device") == ["/dev/infiniband", "nvidia.com/gpu=all"]
    assert after(argv, "--mount") == [
        "type=bind,src=/var/tmp/orch-0/r.n7/rank0,dst=/var/tmp/orch-0/r.n7/rank0",
        "type=bind,src=/data,dst=/data,readonly",
        "type=bind,src=/scratch/me,dst=/scratch",
    ]
    assert argv[-5:] == ["--entrypoint", "python3", "lab/training:3", "-I", "program.py"]
    assert after(argv, "--ulimit") == ["nofile=20000:20000"]
    assert after(words("podman", USER), "--cap-add") == []


def test_dockers_containers_belong_to_the_launches_user():
    argv = words("docker", USER)
    assert argv[0] == "docker"
    assert after(argv, "--user") == ["1000:1000"]
    assert after(argv, "--group-add") == ["1000", "44"]
    assert after(argv, "--device") == []


def test_enroot_starts_a_squashfs_without_its_entry_point():
    argv = words("enroot", USER, image="/lab/training.sqsh", gpus=True)
    assert argv[:5] == ["enroot", "start", "--rw", "--rc", "/var/tmp/orch-0/r.n7/rank0/container_rc.sh"]
    assert "/scratch/me:/scratch:none:x-create=auto,rbind,rw" in after(argv, "--mount")
    assert "/data:/data:none:x-create=auto,rbind,ro" in after(argv, "--mount")
    assert after(argv, "--env") == ["NVIDIA_VISIBLE_DEVICES=all", "ORCH_RUN=r"]
    assert argv[-5:] == ["--", "/lab/training.sqsh", "python3", "-I", "program.py"]


def test_pyxis_is_a_step_on_the_host_itself():
    argv = words("pyxis", ROOT, image="nvcr.io#nvidia/pytorch:25.09-py3")
    assert argv[0] == "srun"
    assert {"--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n7", "--no-container-entrypoint"} <= set(argv)
    assert "--container-image=nvcr.io#nvidia/pytorch:25.09-py3" in argv
    folder = "/var/tmp/orch-0/r.n7/rank0"
    seen = f"{folder}:{folder},/data:/data:ro,/scratch/me:/scratch,/dev/infiniband:/dev/infiniband"
    assert f"--container-mounts={seen}" in argv
    assert "--export=ALL,ORCH_RUN=r" in argv


@pytest.mark.parametrize("wrong", [{"image": "-v"}, {"image": ""}, {"runtime": "lxc"}, {"python": ""}])
def test_an_agent_makes_no_line_of_what_is_no_container(wrong):
    with pytest.raises(ValueError, match="not a container"):
        checked({**msgspec.to_builtins(Container(runtime="podman", image="x")), **wrong})


def in_container(said):
    return changed(WORKLOAD, f"workload:\n  ddp: {{model: resnet50, container: {said}}}\n")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("{image: '-x'}", "not an image's name"),
        ("{image: x, runtime: lxc}", "podman"),
        ("{image: x, mounts: [data]}", "not a folder and where it is seen"),
        ("{image: x, mounts: ['/data:/a:/b']}", "not a folder and where it is seen"),
        ("{image: x, mounts: ['/da,ta']}", "a character that ends a path"),
        ("{image: x, python: ''}", "not a program"),
        ("{image: x, runtime: docker}", "hosts of this machine have a network each"),
    ],
)
def test_mistakes_in_a_container_are_told_with_their_place(tmp_path, said, told):
    path = tmp_path / "e.yaml"
    path.write_text(in_container(said))
    status, _, err = orch("plan", str(path))
    assert status == 2
    assert told in err
    assert "e.yaml:5:" in err


def test_hosts_that_are_containers_hold_no_others(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(in_container("{image: x}").replace(LOCAL, LOCAL.replace("}", ", runtime: podman}")))
    status, _, err = orch("plan", str(path))
    assert status == 2
    assert "hosts are containers of podman themselves" in err


def test_the_plan_says_what_ranks_run_in_and_what_images_must_have(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(in_container("{image: 'lab/t:3', python: /opt/conda/bin/python, mounts: [/data]}"))
    status, out, _ = orch("plan", str(path))
    assert status == 0
    assert "in a container of lab/t:3 by podman, sees /data:/data" in out
    assert "/opt/conda/bin/python -u rank.pyz torch.ddp" in out
    status, out, _ = orch("plan", str(path), "--json")
    (run,) = json.loads(out)["runs"] if "runs" in json.loads(out) else [json.loads(out)]
    needs = run["requirements"]
    assert [need["what"] for need in needs if need["kind"] == "image"] == ["lab/t:3"] * 3
    (torch,) = [need for need in needs if need["what"] == "torch" and need["node"] == "h1"]
    assert torch["container"]["image"] == "lab/t:3"
    assert torch["python"] == "/opt/conda/bin/python"


def test_without_root_hosts_of_this_machine_run_no_containers(monkeypatch):
    need = Requirement(
        node="h1", kind="image", what="x", container=Container(runtime="podman", image="x"), remedy="", needed_by="ddp"
    )
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (lack,) = feasibility.lacking_on(TOPOLOGY, [need])
    assert "takes root" in lack.what
    assert "sudo" in lack.remedy


def test_images_that_differ_between_hosts_are_an_error_that_names_both():
    container = Container(runtime="docker", image="lab/t:3")

    def found(node, number):
        need = Requirement(node=node, kind="image", what="lab/t:3", container=container, remedy="", needed_by="ddp")
        return [Finding(need, True, number, image=ImageFound(number, "28.2", "3.11.2", {}, {}))]

    same = {"h1": found("h1", "a" * 64), "h2": found("h2", "a" * 64)}
    assert images.agreed(same)["lab/t:3"].id == "a" * 64
    with pytest.raises(TestbedError, match=r"is not the same on all hosts: a{12} on h1, h3; b{12} on h2"):
        images.agreed({**same, "h2": found("h2", "b" * 64), "h3": found("h3", "a" * 64)})
