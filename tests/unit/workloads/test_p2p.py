"""The strategies' schedules, carried out here message by message, and their volumes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import p2p
from workloads.common.placement import ranks
from workloads.rank.torch.exchange import parents, pulling, schedule

SYNCHRONOUS = ("ring", "halving-doubling", "parameter-server", "star", "tree", "binary-tree-star", "clique")


def carried_out(strategy: str, hosts: list[int], size: int, servers: int) -> list[list[int]]:
    """What each rank holds in the end, of which rank r brought 10 ** r in each element (a server brings 0)."""
    world = len(hosts)
    aside = servers if strategy == "parameter-server" else 0
    held = [[0 if rank < aside else 10**rank] * size for rank in range(world)]
    todo = [schedule(strategy, rank=rank, hosts=hosts, size=size, servers=servers) for rank in range(world)]
    wire: dict[tuple[int, int], list[tuple[int, int, list[int]]]] = {}
    sent = [False] * world
    while any(todo):
        moved = False
        for rank, rounds in enumerate(todo):
            if not rounds:
                continue
            one = rounds[0]
            if not sent[rank]:
                for part in one.sends:
                    wire.setdefault((rank, part.peer), []).append(
                        (part.low, part.high, held[rank][part.low : part.high])
                    )
                sent[rank] = moved = True
            if all(wire.get((got.peer, rank)) for got in one.receives):
                for got in one.receives:
                    low, high, values = wire[got.peer, rank].pop(0)
                    assert (low, high) == (got.low, got.high), "both ends mean the same elements"
                    for place, value in zip(range(low, high), values, strict=True):
                        held[rank][place] = held[rank][place] + value if got.add else value
                rounds.pop(0)
                sent[rank], moved = False, True
        assert moved, "every rank waits for another"
    assert not any(wire.values()), "something was sent that nobody received"
    return held


@given(
    strategy=st.sampled_from(SYNCHRONOUS),
    hosts=st.lists(st.integers(0, 3), min_size=2, max_size=9),
    size=st.integers(1, 40),
    servers=st.integers(1, 3),
)
def test_every_rank_ends_with_the_sum(strategy: str, hosts: list[int], size: int, servers: int) -> None:
    servers = min(servers, len(hosts) - 1)
    aside = servers if strategy == "parameter-server" else 0
    total = sum(10**rank for rank in range(aside, len(hosts)))
    for rank, held in enumerate(carried_out(strategy, hosts, size, servers)):
        if rank >= aside:
            assert held == [total] * size


def test_trees_are_those_of_kungfu() -> None:
    four = [0, 1, 2, 3]
    assert parents("star", four) == parents("tree", four) == [-1, 0, 0, 0]
    assert parents("binary-tree-star", four) == [-1, 0, 0, 1]
    two_a_host = [0, 0, 1, 1, 2, 2, 3, 3]
    assert parents("tree", two_a_host) == [-1, 0, 0, 2, 0, 4, 0, 6]
    assert parents("binary-tree-star", two_a_host) == [-1, 0, 0, 2, 0, 4, 2, 6]


def theory(strategy: str, **options: object):
    nodes = tuple(Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device="eth0"),)) for i in range(1, 5))
    links = tuple(Link(host=node.name, device="eth0", rate=25e9) for node in nodes)
    where = Topology(kind="local", nodes=nodes, links=links, scale=1)
    config = p2p.Config.model_validate({"model": "vgg16", "strategy": strategy, **options})
    assert p2p.problems(config, where) == []
    return p2p.theory(config, Job(name="j", index=0, ranks=ranks(config.hosts, where)), where)


@pytest.mark.parametrize(
    ("strategy", "models", "ways"),
    # Models that a rank sends on average, and pairs of hosts that talk, of four ranks on as many hosts.
    [
        ("ring", 1.5, 4),
        ("halving-doubling", 1.5, 8),
        ("clique", 1.5, 12),
        ("star", 1.5, 6),
        ("tree", 1.5, 6),
        ("binary-tree-star", 1.5, 6),
        ("parameter-server", 1.5, 6),
        ("pair-averaging", 1.0, 12),
    ],
)
def test_volumes(strategy: str, models: float, ways: int) -> None:
    found = theory(strategy)
    assert found.bytes_per_iteration == pytest.approx(models * 4 * 138_357_544, rel=1e-6)
    assert len(found.pairs) == ways


def test_a_servers_link_carries_most() -> None:
    out = {(src, dst): size for src, dst, size in theory("parameter-server", servers=2).pairs}
    assert set(out) == {(a, b) for a in ("h1", "h2") for b in ("h3", "h4")} | {
        (b, a) for a in ("h1", "h2") for b in ("h3", "h4")
    }
    assert out["h1", "h3"] == pytest.approx(4 * 138_357_544 / 2)


def test_what_cannot_be_is_refused() -> None:
    served = {"strategy": "parameter-server"}
    nodes = tuple(Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device="eth0"),), gpus=1) for i in range(1, 3))
    where = Topology(kind="local", nodes=nodes, links=(), scale=1)
    for options, at in (
        ({"servers": 2, "strategy": "parameter-server"}, "servers"),
        ({"backend": "nccl"}, "backend"),
        ({"order": "layer"}, "order"),
        ({"graph": True, "model": "inception_v3", "compute_time": "1s", **served}, "graph"),
        ({"graph": True, "order": "tic", **served}, "graph"),
        ({"graph": True, "order": "tic", "model": "inception_v3", "compute": "real", **served}, "graph"),
    ):
        config = p2p.Config.model_validate({"model": "vgg16", "strategy": "ring", **options})
        assert [problem.at for problem in p2p.problems(config, where)] == [(at,)]


@pytest.mark.parametrize("order", ["ready", "layer", "reverse", "random"])
def test_whatever_the_order_each_bucket_is_pulled_once(order: str) -> None:
    orders = [pulling(order, buckets=12, iteration=iteration, seed=3) for iteration in range(5)]
    assert all(sorted(one) == list(range(12)) for one in orders)
    assert len(set(map(tuple, orders))) == (5 if order == "random" else 1)
    assert orders == [pulling(order, buckets=12, iteration=iteration, seed=3) for iteration in range(5)]
    first = {"ready": 0, "reverse": 0, "layer": 11}
    assert orders[0][0] == first.get(order, orders[0][0])
