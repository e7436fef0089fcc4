"""A mixture of experts: its size, its volume with even gates, and gates that become even."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import moe
from workloads.common.placement import ranks


def topology(hosts: int = 4, *, scale: int = 1) -> Topology:
    nodes = tuple(Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device="eth0"),)) for i in range(1, hosts + 1))
    links = tuple(Link(host=node.name, device="eth0", rate=25e9) for node in nodes)
    return Topology(kind="local", nodes=nodes, links=links, scale=scale)


def config(**options: object) -> moe.Config:
    return moe.Config.model_validate({"compute_time": "1s", **options})


def test_parameters_are_exact() -> None:
    # gpt2 has 124,439,808; six of its twelve feed-forward layers of 4,722,432 become eight experts each.
    dense, experts = moe.parameters(config())
    assert dense == 124_439_808 - 6 * 4_722_432
    assert experts == 6 * 8 * 4_722_432
    assert moe.parameters(config(every=1, experts=4))[1] == 12 * 4 * 4_722_432


def test_volume_with_even_gates() -> None:
    chosen, where = config(batch=2, precision="fp32"), topology()
    found = moe.theory(chosen, Job(name="j", index=0, ranks=ranks(None, where)), where)
    # Six sparse blocks, four exchanges, 2048 tokens to two experts each, three quarters of which are elsewhere.
    exchanged = 6 * 4 * 2048 * 2 * 768 * 4 * 3 / 4
    gates = 6 * 8 * 32 * 4
    assert found.bytes_per_iteration == pytest.approx(exchanged + 1.5 * (moe.parameters(chosen)[0] * 4 + gates))
    assert len(found.pairs) == 12


def test_ranks_of_one_host_exchange_nothing_over_the_network() -> None:
    chosen, where = config(hosts=["h1", "h1"]), topology()
    assert moe.theory(chosen, Job(name="j", index=0, ranks=ranks(chosen.hosts, where)), where).pairs == ()


@pytest.mark.parametrize(
    ("options", "at"),
    [
        ({"experts": 6}, "experts"),
        ({"top": 9}, "top"),
        ({"every": 13}, "every"),
        ({"backend": "nccl"}, "backend"),
        ({"transport": "rdma"}, "transport"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], at: str) -> None:
    (problem,) = moe.problems(config(**options), topology())
    assert problem.at == (at,)


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    good = {"iteration": 0, "copies": [5, 6], "bytes": [50, 60], "highest": 60, "lowest": 20}
    lines = [
        good,
        {**good, "bytes": [1]},
        {**good, "copies": "56"},
        {**good, "highest": -1},
        [],
        {**good, "iteration": 1},
    ]
    (tmp_path / moe.LOG).write_text("\n".join(map(json.dumps, lines)) + '\n{"iterat')
    output = LaunchOutput(
        folder=tmp_path, node="h1", launch="x", job="j", rank=1, window=None, source=None, offset_ns=0
    )
    found = {name: list(values) for name, values in moe.read(output)["routing"].items()}
    assert found["iteration"] == [0, 0, 1, 1]
    assert found["peer"] == [0, 1, 0, 1]
    assert found["bytes"] == [50, 60, 50, 60]
    assert found["nonuniform_bytes"] == [40] * 4


@pytest.fixture
def gating():
    pytest.importorskip("torch")
    from workloads.rank.torch import gating

    return gating


def test_gates_are_told_of_as_many_features_as_they_have(gating) -> None:
    assert moe._GATE_FEATURES == gating.FEATURES


@pytest.mark.parametrize("top", [1, 2, 3])
def test_gates_become_even_and_take_more_experts(gating, top: int) -> None:
    """Li, figures 4 and 5: tokens spread more evenly as training goes on, and more of them go to two experts."""
    import torch

    tokens, gate = gating.Tokens(2048, seed=7, rank=0), gating.Gate(8, top=top, seed=3)
    optimizer = torch.optim.SGD(gate.parameters(), lr=0.5)
    apart, volume = [], []
    for _ in range(101):
        copies, balance = gate(tokens.next(), tokens.chance(top))
        apart.append(int(copies.max() - copies.min()))
        volume.append(int(copies.sum()))
        optimizer.zero_grad()
        balance.backward()
        optimizer.step()
    assert sum(apart[-10:]) < 0.7 * sum(apart[:10])
    assert all(2048 <= count <= 2048 * top for count in volume)
    if top > 1:
        assert sum(volume[-10:]) > sum(volume[:10])
