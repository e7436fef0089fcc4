"""FSDP2's volume: what is gathered, what is scattered, and what padding adds."""

from __future__ import annotations

import pytest

from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import fsdp
from workloads.common.placement import ranks

VGG = 138_357_544


def theory(hosts: int, *, gpus: int = 0, scale: int = 1, **options: object):
    nodes = tuple(
        Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device="eth0"),), gpus=gpus) for i in range(1, hosts + 1)
    )
    links = tuple(Link(host=node.name, device="eth0", rate=25e9) for node in nodes)
    where = Topology(kind="local", nodes=nodes, links=links, scale=scale)
    config = fsdp.Config.model_validate({"model": "vgg16", **options})
    assert fsdp.problems(config, where) == []
    return fsdp.theory(config, Job(name="j", index=0, ranks=ranks(config.hosts, where)), where)


@pytest.mark.parametrize(
    ("gpus", "reshard", "passes"),
    # Gather, gather again, reduce-scatter: which gloo does as an all-reduce, of twice the volume.
    [(1, True, 3), (1, False, 2), (0, True, 4), (0, False, 3)],
)
def test_bytes_of_an_iteration(gpus: int, reshard: bool, passes: int) -> None:
    found = theory(4, gpus=gpus, reshard=reshard)
    assert found.bytes_per_iteration == pytest.approx(passes * 0.75 * VGG * 4, rel=1e-4)


def test_a_shard_is_an_equal_part_of_each_parameter() -> None:
    found = theory(4)
    assert VGG <= found.parameters <= VGG + 32 * 3
    assert found.parameters % 4 == 0


def test_a_model_without_a_time_is_refused() -> None:
    where = Topology(
        kind="local", nodes=tuple(Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}"),)) for i in (1, 2)), links=()
    )
    (problem,) = fsdp.problems(fsdp.Config.model_validate({"model": "gpt2"}), where)
    assert problem.at == ("compute_time",)
