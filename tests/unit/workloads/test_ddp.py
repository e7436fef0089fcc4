"""The DDP workload: its configuration, launches, theory and reader."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.parts.launch import Flow, Line
from orchestrator.parts.rows import TABLES, LaunchOutput
from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import ddp, p2p
from workloads.common.placement import ranks

SAMPLE = Path(__file__).parents[2] / "data" / "ddp" / "iterations.jsonl"


def topology(*, scale: int = 100, hosts: int = 4, gpus: int = 0) -> Topology:
    nodes = tuple(
        Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device=f"eth{i}"),), python="/opt/py", gpus=gpus)
        for i in range(1, hosts + 1)
    )
    switch = Node(name="tor", kind="switch")
    links = tuple(Link(host=node.name, device=node.first.device, rate=25e9) for node in nodes)
    return Topology(kind="inventory", nodes=(*nodes, switch), links=links, scale=scale)


def config(**options: object) -> ddp.Config:
    return ddp.Config.model_validate({"model": "resnet50", **options})


def job(settings: ddp.Config, where: Topology, *, index: int = 0) -> Job:
    return Job(name="job0", index=index, ranks=ranks(settings.hosts, where))


def told(settings: ddp.Config, where: Topology) -> dict[str, object]:
    launch = ddp.launches(settings, job(settings, where), where, seed=3)[0]
    content = launch.files["config.json"]
    assert isinstance(content, bytes)
    return dict(json.loads(content))


def test_every_attribute_is_documented() -> None:
    properties = ddp.Config.model_json_schema()["properties"]
    assert [name for name, schema in properties.items() if not schema.get("description")] == []
    assert "vgg16" in properties["model"]["enum"]


def test_an_unknown_model_names_the_known_ones() -> None:
    with pytest.raises(ValidationError, match=r"no model 'resnet5'; accepted: one of bert-base, .*vgg16"):
        config(model="resnet5")


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 0},
        {"compute_time": 5},
        {"compute": "fake"},
        {"backend": "mpi"},
        {"threads": 0},
        {"image": 8},
        {"bucket": "0mb"},
        {"bucket": 25},
        {"gpus": 2},
    ],
)
def test_bad_values_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        config(**options)


@pytest.mark.parametrize(
    ("options", "scale", "at", "message", "accepted"),
    [
        ({"compute": "real"}, 100, ("compute",), "cannot be divided by the testbed's scale of 100", "scale: 1"),
        ({"compute": "real", "model": "bert-base"}, 1, ("model",), "bert-base has no real compute", "resnet50"),
        ({"compute": "real", "compute_time": "1s"}, 1, ("compute_time",), "takes the time", "emulated"),
        ({"model": "densenet201"}, 100, ("compute_time",), "densenet201 has no calibrated", "150ms"),
        ({"model": "bert-large", "classes": 10}, 100, ("classes",), "bert-large has no choice of classes", "vgg16"),
        ({"hosts": ["h1", "h2", "h9"]}, 100, ("hosts", 2), "no host 'h9'", "h1, h2, h3, h4"),
        ({"hosts": ["h1", "tor"]}, 100, ("hosts", 1), "no host 'tor'", "h1, h2, h3, h4"),
        ({"hosts": ["h1"]}, 100, ("hosts",), "at least 2 ranks, here 1", "more than once"),
        ({"hosts": []}, 100, ("hosts",), "at least 2 ranks, here 0", "2 or more"),
    ],
)
def test_problems_say_what_would_do(
    options: dict[str, object], scale: int, at: tuple[str | int, ...], message: str, accepted: str
) -> None:
    (problem,) = ddp.problems(config(**options), topology(scale=scale))
    assert problem.at == at
    assert message in problem.message
    assert accepted in problem.accepted


def test_no_problems() -> None:
    for options in ({}, {"model": "resnet101", "compute_time": "100ms"}, {"hosts": ["h4", "h1", "h4"]}):
        assert ddp.problems(config(**options), topology()) == []
    assert ddp.problems(config(compute="real"), topology(scale=1)) == []


def test_nccl_needs_a_gpu_for_each_rank() -> None:
    settings = config(backend="nccl", hosts=["h1", "h1", "h2"])
    (problem,) = ddp.problems(settings, topology(gpus=1))
    assert "rank 1 on h1" in problem.message
    assert ddp.problems(settings, topology(gpus=2)) == []


@pytest.mark.parametrize(
    ("options", "gpus", "scale", "backend", "device"),
    [
        ({}, 0, 100, "gloo", "cpu"),
        ({}, 1, 1, "nccl", "cuda"),
        ({"backend": "gloo"}, 1, 1, "gloo", "cpu"),
        ({"backend": "gloo", "compute": "real"}, 1, 1, "gloo", "cuda"),
        ({"compute": "real"}, 0, 1, "gloo", "cpu"),
        ({"hosts": ["h1", "h1"]}, 1, 1, "gloo", "cpu"),
    ],
)
def test_backend_and_device(options: dict[str, object], gpus: int, scale: int, backend: str, device: str) -> None:
    program = told(config(**options), topology(gpus=gpus, scale=scale))
    assert (program["backend"], program["device"]) == (backend, device)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"transport": "tcp"}, {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}),
        ({"transport": "rdma"}, {"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB"}),
        (
            {"transport": "rdma", "rdma_device": "=mlx5_0:1", "env": {"NCCL_NET": "mine"}},
            {"NCCL_IB_DISABLE": "0", "NCCL_NET": "mine", "NCCL_IB_HCA": "=mlx5_0:1"},
        ),
    ],
)
def test_the_transport_is_told_to_nccl(options: dict[str, object], expected: dict[str, str]) -> None:
    settings, where = config(hosts=["h1", "h2"], **options), topology(gpus=1, scale=1)
    assert ddp.problems(settings, where) == []
    for launch in ddp.launches(settings, job(settings, where), where, 1):
        device = where.node(launch.node).first.device
        env = {name: value for name, value in launch.env.items() if name.startswith("NCCL_")}
        written = {name: env.pop(name) for name in list(env) if name.startswith("NCCL_DEBUG")}
        assert env == {"NCCL_SOCKET_IFNAME": f"={device}", **expected}
        assert written["NCCL_DEBUG"] == "INFO"


def test_a_transport_that_nothing_can_use_is_a_problem() -> None:
    (gloo,) = ddp.problems(config(transport="rdma"), topology())
    assert (gloo.at, gloo.message) == (("transport",), "gloo sends over TCP alone")
    (lost,) = ddp.problems(config(rdma_device="mlx5_0"), topology(gpus=1))
    assert lost.at == ("rdma_device",)
    rings = p2p.Config.model_validate({"model": "resnet50", "strategy": "ring", "transport": "rdma"})
    assert [problem.at for problem in p2p.problems(rings, topology(gpus=1))] == [("transport",)]


def test_launches_one_rank_a_host_in_the_given_order() -> None:
    where, settings = topology(), config(hosts=["h3", "h1", "h3"], env={"OMP_NUM_THREADS": "2", "X": "y"})
    launches = ddp.launches(settings, job(settings, where, index=2), where, seed=3)
    assert [(launch.name, launch.node, launch.rank) for launch in launches] == [
        ("job0-rank0", "h3", 0),
        ("job0-rank1", "h1", 1),
        ("job0-rank2", "h3", 2),
    ]
    assert [launch.follow for launch in launches] == ["iterations.jsonl"] * 3
    for launch in launches:
        assert launch.argv == ("/opt/py", "-u", "rank.pyz", "torch.ddp")
        assert launch.gate
        assert launch.ready == Line("^ready")
        assert launch.role == "rank"
        assert launch.job == "job0"
        assert all(Path(str(path)).is_file() for path in launch.files.values() if isinstance(path, Path))
    assert dict(launches[2].env) == {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "10.0.0.3",
        "MASTER_PORT": "29502",
        "OMP_NUM_THREADS": "2",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GLOO_SOCKET_IFNAME": "eth3",
        "X": "y",
        "TORCHINDUCTOR_CACHE_DIR": "cache",
    }


def test_flows_name_the_store_first_and_each_pair_once() -> None:
    where, settings = topology(), config(hosts=["h1", "h2", "h3", "h1"])
    launches = ddp.launches(settings, job(settings, where), where, seed=3)
    assert launches[0].flows == (
        Flow(kind="control", name="job0", src="10.0.0.1", port=29500),
        Flow(kind="training", name="job0", src="10.0.0.1", dst="10.0.0.2"),
        Flow(kind="training", name="job0", src="10.0.0.1", dst="10.0.0.3"),
        Flow(kind="training", name="job0", src="10.0.0.2", dst="10.0.0.3"),
    )
    assert all(launch.flows == () for launch in launches[1:])


def test_the_program_is_told_scaled_layers_and_buckets() -> None:
    program = told(config(batch=32), topology())
    layers = program["layers"]
    assert isinstance(layers, list)
    assert sum(size for _, _, sizes in layers for size in sizes) == 255_570
    assert sum(forward_s + backward_s for forward_s, backward_s, _ in layers) == pytest.approx(0.148 / 2)
    assert program["bucket_mib"] == pytest.approx(0.25)
    assert program["seed"] == 3
    assert program["batch"] == 32


def test_a_given_compute_time_is_not_scaled_by_the_batch() -> None:
    layers = told(config(model="resnet101", batch=8, compute_time="100ms"), topology())["layers"]
    assert isinstance(layers, list)
    assert sum(forward_s + backward_s for forward_s, backward_s, _ in layers) == pytest.approx(0.1)


def test_real_compute_is_told_no_layers() -> None:
    program = told(config(compute="real", batch=4, image=64), topology(scale=1))
    assert (program["layers"], program["image"], program["batch"], program["bucket_mib"]) == ([], 64, 4, 25)


def test_theory_is_the_published_volume() -> None:
    """Salamy, Tables 3.2 and 3.4: MB of four and of three workers, to the printed digit."""
    printed = {
        "bert-large": ("2011.0", "1787.6"),
        "vgg16": ("830.1", "737.9"),
        "densenet161": ("172.1", "153.0"),
        "resnet50": ("153.3", "136.3"),
    }
    for model, megabytes in printed.items():
        for hosts, text in zip((4, 3), megabytes, strict=True):
            settings, where = config(model=model), topology(scale=1, hosts=hosts)
            found = ddp.theory(settings, job(settings, where), where)
            assert f"{found.bytes_per_iteration / 1e6:.1f}" == text, model
    settings, where = config(), topology(hosts=3)
    found = ddp.theory(settings, job(settings, where), where)
    assert found.parameters == 255_570
    assert found.bytes_per_iteration == pytest.approx(4 / 3 * 255_570 * 4)
    assert "Salamy" in found.source


def test_a_model_for_ten_classes_sends_less() -> None:
    """Zerwas et al.: CIFAR-10, whose ResNet-101 sends 4,000 GB in 3,920 steps of four workers."""
    settings, where = config(model="resnet101", classes=10, compute_time="1s"), topology(scale=1)
    found = ddp.theory(settings, job(settings, where), where)
    assert 4 * 3920 * found.bytes_per_iteration / 1e9 == pytest.approx(4000.3, abs=0.1)
    sizes = [size for _, _, sizes in told(settings, where)["layers"] for size in sizes]
    assert (sum(sizes), sizes[-2:]) == (42_520_650, [20480, 10])


def test_requirements() -> None:
    settings, where = config(hosts=["h1", "h2", "h1"]), topology()
    needed = ddp.requirements(settings, job(settings, where), where)
    assert [(need.node, need.kind, need.what, need.python) for need in needed] == [
        ("h1", "module", "torch", "/opt/py"),
        ("h1", "device", "eth1", ""),
        ("h2", "module", "torch", "/opt/py"),
        ("h2", "device", "eth2", ""),
    ]
    assert needed[0].remedy == "pip install torch==2.13.0"
    real = config(compute="real")
    assert "torchvision" in {need.what for need in ddp.requirements(real, job(real, where), where)}


def output(folder: Path, *, offset_ns: int = 0) -> LaunchOutput:
    return LaunchOutput(
        folder=folder, node="h1", launch="job0-rank1", job="job0", rank=1, window=None, source=None, offset_ns=offset_ns
    )


def test_read_a_real_log(tmp_path: Path) -> None:
    (tmp_path / "iterations.jsonl").write_bytes(SAMPLE.read_bytes())
    table = ddp.read(output(tmp_path, offset_ns=-1000))["iterations"]
    assert list(table) == list(TABLES["iterations"])
    first = json.loads(SAMPLE.read_text().splitlines()[0])
    assert list(table["iteration"]) == list(range(12))
    assert table["start_ns"][0] == first["start_ns"] - 1000
    assert table["end_ns"][0] == first["end_ns"] - 1000
    assert table["seconds"][0] == pytest.approx((first["mono_end_ns"] - first["mono_start_ns"]) / 1e9)
    assert all(0.06 < seconds < 0.6 for seconds in table["seconds"])
    assert (set(table["job"]), set(table["rank"]), set(table["window_name"])) == ({"job0"}, {1}, {""})
    spent = [sum(parts) for parts in zip(table["forward_s"], table["backward_s"], table["wait_s"], strict=True)]
    assert all(a < b for a, b in zip(spent, table["seconds"], strict=True))


@pytest.mark.parametrize("cut", [1, 2, 20, 150])
def test_a_cut_last_line_is_left_out(cut: int, tmp_path: Path) -> None:
    (tmp_path / "iterations.jsonl").write_bytes(SAMPLE.read_bytes()[:-cut])
    kept = 12 if cut == 1 else 11  # without its line end alone a record is whole
    assert list(ddp.read(output(tmp_path))["iterations"]["iteration"]) == list(range(kept))


@pytest.mark.parametrize(
    "damaged",
    [
        b"\xff\xfe\x00",
        b"[]",
        b"null",
        b"{}",
        b'{"iteration": "4"}',
        b"\0" * 50,
        b"",
        b"[" * 100_000,
        b'{"iteration": 4.5}',
    ],
)
def test_a_corrupt_line_leaves_a_gap(damaged: bytes, tmp_path: Path) -> None:
    lines = SAMPLE.read_bytes().splitlines()
    lines[4] = damaged
    (tmp_path / "iterations.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    assert list(ddp.read(output(tmp_path))["iterations"]["iteration"]) == [0, 1, 2, 3, *range(5, 12)]


def test_damaged_times_are_left_out_and_an_overflowed_loss_is_kept(tmp_path: Path) -> None:
    lines = SAMPLE.read_text().splitlines()
    records = [json.loads(line) for line in lines[:3]]
    records[0]["loss"] = float("nan")
    records[1]["wait_s"] = float("inf")
    records[2]["start_ns"] = 10**30
    (tmp_path / "iterations.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert list(ddp.read(output(tmp_path))["iterations"]["iteration"]) == [0]


def test_without_a_log_there_are_no_rows(tmp_path: Path) -> None:
    table = ddp.read(output(tmp_path))["iterations"]
    assert {name: list(column) for name, column in table.items()} == {name: [] for name in TABLES["iterations"]}


def test_ranks_are_told_all_rails_of_their_host() -> None:
    where = topology(hosts=2, gpus=1)
    nodes = tuple(
        dataclasses.replace(
            node,
            rails=tuple(
                Rail(device=f"ens{rail}", address=f"10.0.{rail}.{number}", rdma=f"mlx5_{rail}:1") for rail in (0, 1)
            ),
        )
        for number, node in enumerate(where.hosts, 1)
    )
    where = dataclasses.replace(where, nodes=nodes)
    config = ddp.Config(model="resnet50")
    first, _ = ddp.launches(config, job(config, where), where, 1)
    assert first.env["GLOO_SOCKET_IFNAME"] == "ens0,ens1"
    assert first.env["NCCL_SOCKET_IFNAME"] == "=ens0,ens1"
    assert first.env["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_1:1"
    assert first.env["NCCL_CROSS_NIC"] == "0"
    pairs = {(flow.src, flow.dst) for flow in first.flows if flow.kind == "training"}
    assert pairs == {("10.0.0.1", "10.0.0.2"), ("10.0.1.1", "10.0.1.2")}
    theory = ddp.theory(config, job(config, where), where)
    assert theory is not None
    assert theory.spread == "even"
