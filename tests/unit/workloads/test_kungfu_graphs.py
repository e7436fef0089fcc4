"""Our graphs beside those that KungFu's own code made; `tests/data/kungfu/README.md` says how."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import p2p
from workloads.common.placement import ranks
from workloads.rank.torch.exchange import asked, asking_share, schedule

DATA = Path(__file__).parents[2] / "data/kungfu"
OURS = {"STAR": "star", "TREE": "tree", "BINARY_TREE_STAR": "binary-tree-star", "CLIQUE": "clique", "RING": "ring"}

Edges = frozenset[tuple[int, int]]


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def kungfus(graphs: list[list[list[str]]]) -> Counter[tuple[Edges, Edges]]:
    """Pairs of a reduce and a broadcast graph."""

    def edges(texts: list[str]) -> Edges:
        found = [tuple(map(int, text.split(":"))) for text in texts]
        assert len(set(found)) == len(found), "no edge twice"
        return frozenset((a, b) for a, b in found)

    return Counter((edges(reduce), edges(broadcast)) for reduce, broadcast in graphs)


def ours(strategy: str, hosts: list[int]) -> Counter[tuple[Edges, Edges]]:
    """The same of our schedule, of which each element of a gradient as long as there are ranks is a part of its own."""
    world = len(hosts)
    added: dict[int, set[tuple[int, int]]] = {element: set() for element in range(world)}
    copied: dict[int, set[tuple[int, int]]] = {element: set() for element in range(world)}
    for rank in range(world):
        for one in schedule(strategy, rank=rank, hosts=hosts, size=world):
            for got in one.receives:
                for element in range(got.low, got.high):
                    (added if got.add else copied)[element].add((got.peer, rank))
    found = Counter((frozenset(added[element]), frozenset(copied[element])) for element in range(world))
    return found if len(found) > 1 or world == 1 else Counter(dict.fromkeys(found, 1))


@pytest.mark.parametrize("strategy", OURS)
def test_each_edge_is_kungfus(strategy: str) -> None:
    held = [line for line in lines("graphs.jsonl") if line["strategy"] == strategy]
    assert {len(line["hosts"]) for line in held} == set(range(2, 17))
    for line in held:
        assert ours(OURS[strategy], line["hosts"]) == kungfus(line["graphs"]), line["hosts"]


def test_several_hosts_are_among_what_is_compared() -> None:
    for strategy in ("TREE", "BINARY_TREE_STAR"):
        hosts = [line["hosts"] for line in lines("graphs.jsonl") if line["strategy"] == strategy]
        counts = Counter(len(set(one)) for one in hosts)
        assert all(counts[number] for number in (1, 2, 3, 4, 8, 16))
        assert any(len(set(Counter(one).values())) > 1 for one in hosts), "a host with fewer peers than others"


def test_pair_averaging_asks_whom_kungfu_asks() -> None:
    worlds = lines("peers.jsonl")
    assert [line["world"] for line in worlds] == list(range(2, 17))
    for line in worlds:
        world = line["world"]
        for rank, theirs in enumerate(line["peers"]):
            assert [asked(drawn, rank=rank, world=world) for drawn in range(world)] == theirs
            for peer in range(world):
                share = Fraction(theirs.count(peer), world)
                assert asking_share("random", peer, rank=rank, world=world) == pytest.approx(float(share))


@pytest.mark.parametrize("peers", ["random", "uniform", "round-robin"])
def test_theory_of_pair_averaging_follows_who_is_asked(peers: str) -> None:
    nodes = tuple(Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device="eth0"),)) for i in range(1, 5))
    where = Topology(kind="local", nodes=nodes, links=tuple(Link(host=n.name, device="eth0", rate=1e9) for n in nodes))
    config = p2p.Config.model_validate({"model": "mobilenet_v2", "strategy": "pair-averaging", "peers": peers})
    found = p2p.theory(config, Job(name="j", index=0, ranks=ranks(None, where)), where)
    size = 4 * 3_504_872
    assert found.bytes_per_iteration == pytest.approx(size)
    out = {(src, dst): sent / size for src, dst, sent in found.pairs}
    # Rank 0 on h1 asks h2, its next one, which then sends.
    assert out["h2", "h1"] == pytest.approx(1 / 2 if peers == "random" else 1 / 3)
    assert out["h3", "h1"] == pytest.approx(1 / 4 if peers == "random" else 1 / 3)
