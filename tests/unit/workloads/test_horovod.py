"""The Horovod workload: who is told what, and where its Python is looked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.parts.launch import Listening
from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import horovod
from workloads.common import environments
from workloads.common.placement import ranks


def topology(*, scale: int = 100, kind: str = "inventory") -> Topology:
    nodes = tuple(
        Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device=f"eth{i}"),), python="/opt/py") for i in (1, 2, 3)
    )
    links = tuple(Link(host=node.name, device=node.first.device, rate=25e9) for node in nodes)
    return replace(Topology(kind="inventory", nodes=nodes, links=links, scale=scale), kind=kind)


def made(where: Topology, **options: object) -> tuple[horovod.Config, Job]:
    config = horovod.Config.model_validate({"model": "resnet50", **options})
    return config, Job(name="job0", index=2, ranks=ranks(config.hosts, where))


def test_the_rendezvous_stands_before_the_ranks_at_the_host_of_rank_0() -> None:
    where = topology()
    config, job = made(where, hosts=["h2", "h2", "h1"])
    server, *started = horovod.launches(config, job, where, seed=1)
    assert (server.node, server.rank, server.gate, server.ready) == ("h2", None, False, Listening(29502))
    assert server.argv[-4:] == ("10.0.0.2", "29502", "h2:2,h1:1", "3")
    assert all(launch.order > server.order for launch in started)
    assert [flow.kind for flow in server.flows] == ["control", "training"]


def test_each_rank_is_told_who_it_is_on_its_host_and_across_hosts() -> None:
    where = topology()
    config, job = made(where, hosts=["h2", "h2", "h1"])
    told = [launch.env for launch in horovod.launches(config, job, where, seed=1) if launch.rank is not None]
    keys = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert [tuple(int(env[f"HOROVOD_{key}"]) for key in keys) for env in told] == [
        (0, 3, 0, 2, 0, 2),
        (1, 3, 1, 2, 0, 1),
        (2, 3, 0, 1, 1, 2),
    ]
    assert {env["HOROVOD_GLOO_IFACE"] for env in told} == {"eth1", "eth2"}


def test_sizes_are_scaled_and_times_are_not() -> None:
    where = topology()
    config, job = made(where, fusion="64MiB", cycle_time="5ms")
    env = horovod.launches(config, job, where, seed=1)[1].env
    assert env["HOROVOD_FUSION_THRESHOLD"] == str(round(64 * 2**20 / 100))
    assert env["HOROVOD_CYCLE_TIME"] == "5"


def test_a_timeline_is_asked_for_on_every_rank() -> None:
    """A rank that is not told of it takes no part in what the others then agree on, and all hang."""
    where = topology()
    config, job = made(where, timeline=True)
    told = [launch.env for launch in horovod.launches(config, job, where, seed=1) if launch.rank is not None]
    assert {env.get("HOROVOD_TIMELINE") for env in told} == {"timeline.json"}


def test_half_the_floats_are_half_the_bytes() -> None:
    where = topology(scale=1)
    config, job = made(where)
    whole = horovod.theory(config, job, where)
    half = horovod.theory(config.model_copy(update={"compression": "fp16"}), job, where)
    assert whole.bytes_per_iteration == pytest.approx(2 * 2 / 3 * 4 * 25_557_032)
    assert half.bytes_per_iteration == whole.bytes_per_iteration / 2


def test_ranks_of_a_host_that_do_not_follow_each_other_are_refused() -> None:
    where = topology()
    config, _ = made(where, hosts=["h1", "h2", "h1"])
    (problem,) = horovod.problems(config, where)
    assert problem.at == ("hosts", 2)
    assert "side by side" in problem.accepted


def test_the_interpreter_is_the_given_one_then_the_built_one_then_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_FRAMEWORKS", "/cache/f")
    node = topology().nodes[0]
    local, remote = topology(kind="local"), topology()
    assert environments.interpreter("/my/python", "torch", node, local) == "/my/python"
    assert environments.interpreter(None, "torch", node, local) == "/cache/f/torch/bin/python"
    assert environments.interpreter(None, "torch", node, remote) == "/opt/py"
    monkeypatch.delenv("ORCH_FRAMEWORKS")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert environments.built("torch") == Path("/x/orch/frameworks/torch/bin/python")


def test_what_is_missing_names_the_step_that_gets_it() -> None:
    where = topology()
    config, job = made(where)
    needed = [need for need in horovod.requirements(config, job, where) if need.kind == "module"]
    assert {need.what for need in needed} == {"torch", "horovod"}
    assert all("--only torch" in need.remedy for need in needed)


def test_tensorflow_has_its_own_program_and_environment() -> None:
    where = topology(kind="local")
    config, job = made(where, framework="tensorflow")
    server, *started = horovod.launches(config, job, where, seed=1)
    assert all("horovod.on_tensorflow" in launch.argv for launch in started)
    assert {Path(launch.argv[0]).parts[-3] for launch in (server, *started)} == {"tensorflow"}
    needed = {need.what for need in horovod.requirements(config, job, where) if need.kind == "module"}
    assert needed == {"tensorflow", "horovod"}


def with_gpus(count: int = 2, **options: object) -> tuple[horovod.Config, Job, Topology]:
    where = topology(scale=1)
    where = replace(where, nodes=tuple(replace(node, gpus=count) for node in where.nodes))
    hosts = ["h1", "h1", "h2", "h2"]
    config = horovod.Config.model_validate({"model": "resnet50", "hosts": hosts, "operations": "nccl", **options})
    return config, Job(name="job0", index=0, ranks=ranks(config.hosts, where)), where


def test_ranks_on_gpus_are_told_of_nccl_its_transport_and_how_hosts_sum_up() -> None:
    config, job, where = with_gpus(controller="mpi", hierarchical=True, transport="rdma", rdma_device="mlx5_0:1")
    assert horovod.problems(config, where) == []
    launch = next(launch for launch in horovod.launches(config, job, where, seed=1) if launch.rank == 2)
    assert json.loads(launch.files["config.json"])["device"] == "cuda"
    told = {name: launch.env[name] for name in launch.env if name.startswith("NCCL_") or "HIERARCHICAL" in name}
    assert told.pop("NCCL_DEBUG") == "INFO"
    assert told == {
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH",
        "NCCL_DEBUG_FILE": "nccl.%p.log",
        "NCCL_SOCKET_IFNAME": "=eth2",
        "NCCL_IB_DISABLE": "0",
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": "mlx5_0:1",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
    }
    assert (launch.env["HOROVOD_CONTROLLER"], launch.env["UCX_NET_DEVICES"]) == ("mpi", "mlx5_0:1")


def test_summed_up_by_hosts_each_rank_sends_its_part_to_its_like() -> None:
    config, job, where = with_gpus(controller="mpi", hierarchical=True)
    theory = horovod.theory(config, job, where)
    gradients = 4 * 25_557_032
    assert theory.bytes_per_iteration == pytest.approx(gradients / 2)  # a ring of two hosts: once, of a half
    assert sorted(theory.pairs) == [("h1", "h2", 2 * gradients / 2), ("h2", "h1", 2 * gradients / 2)]
    flat = horovod.theory(config.model_copy(update={"hierarchical": False}), job, where)
    assert sum(size for *_, size in flat.pairs) == pytest.approx(2 * 2 * 3 / 4 * gradients)  # two edges of the ring


@pytest.mark.parametrize(
    ("gpus", "options", "at", "message"),
    [
        (1, {}, "operations", "rank 1 on h1 has none"),
        (2, {"framework": "tensorflow"}, "operations", "with PyTorch alone"),
        (2, {"hierarchical": True}, "hierarchical", "requires operations: nccl and controller: mpi"),
        (
            2,
            {"operations": "cpu", "controller": "mpi", "hierarchical": True},
            "hierarchical",
            "requires operations: nccl",
        ),
        (2, {"controller": "mpi", "algorithm": "ring"}, "algorithm", "NCCL chooses"),
        (2, {"controller": "mpi", "hierarchical": True, "hosts": ["h1", "h1", "h2"]}, "hosts", "as many ranks"),
    ],
)
def test_what_nccl_cannot_do_is_refused(gpus: int, options: dict[str, object], at: str, message: str) -> None:
    config, _, where = with_gpus(gpus, **options)
    found = horovod.problems(config, where)
    assert any(problem.at == (at,) and message in problem.message for problem in found), found


def test_nccl_goes_by_rdma_whatever_the_ranks_agree_by() -> None:
    config, _, where = with_gpus(transport="rdma")
    assert horovod.problems(config, where) == []
