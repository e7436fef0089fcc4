"""DeepSpeed: what each rank is told, what travels in each stage and pipeline, and what its log tells."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import deepspeed
from workloads.common.placement import ranks
from workloads.readers import communication

RESNET = 25_557_032


def topology(*, hosts: int = 4, gpus: int = 0, scale: int = 1, kind: str = "inventory") -> Topology:
    nodes = tuple(
        Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device="eth0"),), gpus=gpus, python="/opt/py")
        for i in range(1, hosts + 1)
    )
    links = tuple(Link(host=node.name, device="eth0", rate=25e9) for node in nodes)
    return replace(Topology(kind="inventory", nodes=nodes, links=links, scale=scale), kind=kind)


def made(where: Topology, **options: object) -> tuple[deepspeed.Config, Job]:
    config = deepspeed.Config.model_validate({"model": "resnet50", **options})
    assert deepspeed.problems(config, where) == []
    return config, Job(name="j", index=0, ranks=ranks(config.hosts, where))


def theory(where: Topology, **options: object):
    config, job = made(where, **options)
    return deepspeed.theory(config, job, where)


def told(where: Topology, **options: object) -> dict[str, object]:
    config, job = made(where, **options)
    return json.loads(deepspeed.launches(config, job, where, seed=1)[0].files["config.json"])


@pytest.mark.parametrize(
    ("options", "rings"),
    [
        ({"zero_stage": 0}, 2),
        ({"zero_stage": 1}, 3),
        ({"zero_stage": 2}, 3),
        ({"zero_stage": 3}, 4),
        ({"zero_stage": 0, "microbatches": 2}, 2),
        ({"zero_stage": 1, "microbatches": 2}, 3),
        ({"zero_stage": 2, "microbatches": 2}, 5),
        ({"zero_stage": 3, "microbatches": 2}, 8),
    ],
)
def test_bytes_of_a_stage(options: dict[str, object], rings: int) -> None:
    found = theory(topology(), **options)
    assert found.bytes_per_iteration == pytest.approx(rings * 3 / 4 * 4 * RESNET, rel=1e-4)
    halved = theory(topology(), **options, precision="bf16")
    assert halved.bytes_per_iteration == pytest.approx(found.bytes_per_iteration / 2)


def test_nccl_scatters_what_gloo_reduces_whole() -> None:
    found = theory(topology(gpus=1), zero_stage=3)
    assert found.bytes_per_iteration == pytest.approx(3 * 3 / 4 * 4 * RESNET, rel=1e-4)


def test_nobody_knows_how_much_is_gathered_twice_where_it_is_prefetched() -> None:
    assert theory(topology(), zero_stage=3, prefetch="10mb") is None
    assert theory(topology(), zero_stage=2, prefetch="10mb") is not None


def test_a_pipeline_passes_on_between_stages_and_reduces_within_them() -> None:
    where = topology(hosts=4)
    options = {"pipeline_stages": 2, "microbatches": 4, "activation": "1mb"}
    pairs = {(a, b): size for a, b, size in theory(where, **options, zero_stage=0).pairs}
    assert set(pairs) == {
        ("h1", "h2"),
        ("h2", "h1"),
        ("h3", "h4"),
        ("h4", "h3"),
        ("h1", "h3"),
        ("h3", "h1"),
        ("h2", "h4"),
        ("h4", "h2"),
    }
    assert pairs["h1", "h3"] == pairs["h3", "h1"] == 4e6
    assert pairs["h1", "h2"] + pairs["h3", "h4"] == 4 * RESNET
    gathered = {(a, b): size for a, b, size in theory(where, **options, zero_stage=1).pairs}
    assert gathered["h1", "h2"] == pytest.approx(1.5 * pairs["h1", "h2"], rel=1e-4)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.integers(1, 4))
def test_no_other_way_to_divide_layers_has_a_smaller_largest_part(sizes: list[int], stages: int) -> None:
    def largest(cuts: tuple[int, ...]) -> int | None:
        parts = [sum(sizes[a:b]) for a, b in pairwise((0, *cuts, len(sizes)))]
        return max(parts) if all(parts) else None

    ways = [found for cuts in combinations(range(1, len(sizes)), stages - 1) if (found := largest(cuts)) is not None]
    assume(ways)
    parts = deepspeed.partition(sizes, stages)
    assert [size for part in parts for size in sizes[part]] == sizes
    assert all(sum(sizes[part]) for part in parts)
    assert max(sum(sizes[part]) for part in parts) == min(ways)


def test_sizes_are_told_in_scaled_elements_and_times_of_a_microbatch() -> None:
    where = topology(scale=100)
    found = told(
        where, zero_stage=3, bucket="20mb", prefetch="4mb", microbatches=2, compute_time="300ms", precision="bf16"
    )
    assert (found["bucket_elements"], found["prefetch_elements"]) == (100_000, 20_000)
    assert sum(layer[0] for layer in found["layers"]) == pytest.approx(0.050)
    assert sum(layer[1] for layer in found["layers"]) == pytest.approx(0.100)
    piped = told(where, pipeline_stages=2, microbatches=2, compute_time="300ms", activation="4mb")
    assert piped["activation"] == 10_000
    assert sum(stage["forward_s"] for stage in piped["stages"]) == pytest.approx(0.050)
    assert sum(size for stage in piped["stages"] for size in stage["sizes"]) == RESNET // 100


def test_a_gpt_tells_what_its_stages_pass_on() -> None:
    found = told(
        topology(), model="gpt2", compute_time="1s", batch=8, microbatches=4, pipeline_stages=2, precision="bf16"
    )
    assert found["activation"] == 2 * 1024 * 768


def test_ranks_know_their_neighbours_on_their_host_and_write_into_their_folder() -> None:
    where = topology(kind="local")
    config, job = made(where, hosts=["h1", "h1", "h2"], env={"TMPDIR": "/tmp", "DS_ACCELERATOR": "xpu"})
    started = deepspeed.launches(config, job, where, seed=1)
    assert [launch.env["LOCAL_SIZE"] for launch in started] == ["2", "2", "1"]
    assert all(Path(launch.argv[0]).parts[-3] == "torch" for launch in started)
    assert (started[0].env["TMPDIR"], started[0].env["DS_ACCELERATOR"]) == ("/tmp", "xpu"), "what is given wins"
    config, job = made(topology(gpus=1))
    launch = deepspeed.launches(config, job, topology(gpus=1), seed=1)[0]
    assert (launch.env["DS_ACCELERATOR"], launch.argv[0]) == ("cuda", "/opt/py")
    assert not any(value.startswith("/") for name, value in launch.env.items() if name in ("TMPDIR", "TRITON_HOME"))


@pytest.mark.parametrize(
    ("options", "at"),
    [
        ({"precision": "fp16"}, ("precision",)),
        ({"microbatches": 7}, ("microbatches",)),
        ({"pipeline_stages": 3, "activation": "1mb"}, ("pipeline_stages",)),
        ({"pipeline_stages": 2, "activation": "1mb", "zero_stage": 2}, ("zero_stage",)),
        ({"pipeline_stages": 2}, ("activation",)),
        ({"transport": "rdma"}, ("transport",)),
        ({"model": "gpt2"}, ("compute_time",)),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], at: tuple[str, ...]) -> None:
    config = deepspeed.Config.model_validate({"model": "resnet50", **options})
    (problem,) = deepspeed.problems(config, topology())
    assert problem.at == at


def test_more_stages_than_layers_are_refused() -> None:
    where = topology(hosts=128)
    config = deepspeed.Config.model_validate({"model": "vgg16", "pipeline_stages": 64, "activation": "1mb"})
    (problem,) = deepspeed.problems(config, where)
    assert problem.at == ("pipeline_stages",)
    assert "at most 16" in problem.accepted


def test_what_is_missing_names_the_step_that_gets_it() -> None:
    where = topology(kind="local")
    config, job = made(where)
    needed = [need for need in deepspeed.requirements(config, job, where) if need.kind == "module"]
    assert {need.what for need in needed} == {"torch", "deepspeed"}
    assert {need.remedy for need in needed} == {"orch prepare --only torch"}


def test_damaged_lines_of_the_log_are_left_out(tmp_path: Path) -> None:
    good = {"iteration": 1, "operations": [["all_reduce", 400, 2, 0.5, 1.0, 2.0]]}
    bad = [
        {"iteration": 2, "operations": [["all_reduce", -1, 2, 0.5, 1.0, 2.0]]},
        {"iteration": 2, "operations": [["all_reduce", 1, 2, float("nan"), 1.0, 2.0]]},
        {"iteration": "2", "operations": []},
        {"iteration": 2, "operations": [[1]]},
        [],
    ]
    (tmp_path / communication.LOG).write_text("\n".join(map(json.dumps, [good, *bad])) + '\n{"iteration": 3, "oper')
    output = LaunchOutput(
        folder=tmp_path, node="h1", launch="j-rank0", job="j", rank=0, window=None, source=None, offset_ns=0
    )
    table = communication.read_communication(output)["communication"]
    assert {name: list(values) for name, values in table.items()} == {
        "job": ["j"],
        "rank": [0],
        "window_name": [""],
        "iteration": [1],
        "operation": ["all_reduce"],
        "bytes": [400],
        "count": [2],
        "seconds": [0.5],
        "algorithm_bps": [1.0],
        "bus_bps": [2.0],
    }
