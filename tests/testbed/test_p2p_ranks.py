"""Real ranks of the p2p workload over gloo: every synchronous strategy gives what DDP's all-reduce gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.rank_processes import SEED, loopback, others_end_with_one_line, running
from tests.helpers.skipping import needs_torch
from workloads import collective, ddp, p2p
from workloads.rank.torch.exchange import pulling
from workloads.rank.torch.parameter_server import TRACED

pytestmark = [pytest.mark.testbed, needs_torch]

ITERATIONS = 3


def checksums(workload, folder: Path, count: int, **options: object) -> list[list[float]]:
    """The sum of all weights of each rank after each of the first iterations, of a small emulated model."""
    folder.mkdir()
    launches = loopback(workload, count, scale=1000, model="resnet50", compute_time="10ms", bucket="10mb", **options)
    with running(launches, folder, extra=("--checksum",)) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(ITERATIONS)
        assert started.end() == [0] * count
        return [[json.loads(line)["checksum"] for line in started.lines(r)[:ITERATIONS]] for r in range(count)]


@pytest.fixture(scope="module")
def averaged(tmp_path_factory) -> list[float]:
    (first, *others) = checksums(ddp, tmp_path_factory.mktemp("ddp") / "ranks", 3)
    assert all(other == first for other in others)
    return first


@pytest.mark.parametrize("strategy", ["ring", "halving-doubling", "binary-tree-star"])
def test_gradients_agree_with_all_reduce(strategy: str, averaged: list[float], tmp_path: Path) -> None:
    found = checksums(p2p, tmp_path / "ranks", 3, strategy=strategy)
    for one in found:
        # 25,557 weights near one, of which each is off by rounding in its last place
        assert one == pytest.approx(averaged, abs=0.01)
    assert len(set(averaged)) == ITERATIONS


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> list[list[float]]:
    """Checksums of a server and its workers that wait for all that they pull."""
    return checksums(p2p, tmp_path_factory.mktemp("served") / "ranks", 3, strategy="parameter-server")


def test_workers_of_a_parameter_server_agree_and_servers_take_part(served: list[list[float]]) -> None:
    server, *workers = served
    assert workers[0] == workers[1] == server
    assert len(set(server)) == ITERATIONS


@pytest.mark.parametrize("order", ["ready", "layer"])
def test_in_whatever_order_workers_pull_they_learn_the_same(order: str, served: list[list[float]], tmp_path: Path):
    launches = loopback(
        p2p,
        3,
        scale=1000,
        model="resnet50",
        compute_time="10ms",
        bucket="10mb",
        strategy="parameter-server",
        order=order,
    )
    with running(launches, tmp_path, extra=("--checksum",)) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(ITERATIONS + 2)
        assert started.end() == [0] * 3
        found = [[json.loads(line)["checksum"] for line in started.lines(r)[: ITERATIONS + 1]] for r in range(3)]
        spans = started.read(p2p, 1, "spans")
    server, *workers = found
    assert server[:ITERATIONS] == served[0]
    for worker in workers:
        assert worker[1:] == server[:-1], "a worker's layers are those of the iteration before"
    received = [what for span, what in zip(spans["span"], spans["what"], strict=True) if span == "receive"]
    count = len(set(received))
    seen = [received[count * k : count * (k + 1)] for k in range(ITERATIONS)]
    told = [[f"bucket {n}" for n in pulling(order, buckets=count, iteration=k, seed=SEED)] for k in range(ITERATIONS)]
    assert seen == told


@pytest.mark.variants
@pytest.mark.parametrize("order", ["tic", "tac"])
def test_an_order_computed_of_the_first_passes_is_that_of_the_layers_on_every_worker(order: str, tmp_path: Path):
    """PyTorch computes one layer after the other, and of such a chain TicTac's orders are the layers'."""
    launches = loopback(
        p2p,
        4,
        scale=1000,
        model="resnet50",
        compute_time="40ms",
        bucket="10mb",
        strategy="parameter-server",
        servers=2,
        order=order,
    )
    with running(launches, tmp_path, extra=("--checksum",)) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(TRACED + 3)
        assert started.end() == [0] * 4
        sums = [[json.loads(line)["checksum"] for line in started.lines(r)[: TRACED + 2]] for r in range(4)]
        spans = [started.read(p2p, r, "spans") for r in (2, 3)]
    assert sums[2] == sums[3]
    assert len(set(sums[2])) == TRACED + 2, "weights move in every iteration"
    for of_worker in spans:
        received = [what for span, what in zip(of_worker["span"], of_worker["what"], strict=True) if span == "receive"]
        once = received[::2]  # a half of each bucket comes from each server
        count = len(set(once))
        seen = [once[count * k : count * (k + 1)] for k in range(TRACED + 1)]
        traced = [pulling("random", buckets=count, iteration=k, seed=SEED) for k in range(TRACED - 1)]
        layers = [pulling("layer", buckets=count, iteration=k, seed=SEED) for k in range(2)]
        assert seen == [[f"bucket {n}" for n in numbers] for numbers in (*traced, *layers)]


@pytest.mark.parametrize("order", ["random", "tic", "tac"])
def test_a_graph_with_branches_is_computed_as_buckets_come_and_workers_learn_the_same(order: str, tmp_path: Path):
    """Of Inception TIC and TAC are other orders than the layers', and another one than each other's."""
    options = {"model": "inception_v3", "compute_time": "60ms", "bucket": "1mb", "strategy": "parameter-server"}
    sums = {}
    for graph in (True, False):
        launches = loopback(p2p, 3, scale=1000, order=order, graph=graph, **options)
        folder = tmp_path / str(graph)
        folder.mkdir()
        with running(launches, folder, extra=("--checksum",)) as started:
            started.wait_ready()
            started.go()
            started.wait_iterations(TRACED + 3)
            assert started.end() == [0] * 3
            sums[graph] = [[json.loads(line)["checksum"] for line in started.lines(r)[:TRACED]] for r in range(3)]
            spans = started.read(p2p, 2, "spans")
        received = [what for span, what in zip(spans["span"], spans["what"], strict=True) if span == "receive"]
        count = len(set(received))
        last = received[count * TRACED : count * (TRACED + 1)]
        layers = [f"bucket {n}" for n in reversed(range(count))]
        assert sorted(last) == sorted(layers)
        assert (last == layers) == (order != "random" and not graph)
    assert sums[True][1] == sums[True][2]
    assert sums[True] == sums[False], "the order in which layers compute changes nothing of what is learnt"


def test_pair_averaging_draws_weights_together_and_spans_tell_of_it(tmp_path: Path) -> None:
    launches = loopback(
        p2p, 3, scale=1000, model="resnet50", compute_time="10ms", strategy="pair-averaging", peers="round-robin"
    )
    with running(launches, tmp_path) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(8)
        assert started.end() == [0, 0, 0]
        spans = started.read(p2p, 1, "spans")
        overlaps = started.read(p2p, 1, "overlaps")
    received = [peer for peer, span in zip(spans["peer"], spans["span"], strict=True) if span == "receive"]
    assert received[:6] == [2, 0, 2, 0, 2, 0]
    assert set(spans["bytes"]) == {0, 25_557 * 4}
    assert list(overlaps["iteration"]) == list(range(len(overlaps["iteration"])))
    assert all(
        0 <= both <= wire + 1e-9 for both, wire in zip(overlaps["overlap_s"], overlaps["communication_s"], strict=True)
    )


@pytest.mark.parametrize(
    ("workload", "options"),
    [
        (collective, {"sizes": ["1mb"], "operations": ["all-reduce", "all-to-all"]}),
        (p2p, {"model": "resnet50", "strategy": "star", "compute_time": "20ms"}),
        (p2p, {"model": "resnet50", "strategy": "pair-averaging", "compute_time": "20ms"}),
        (p2p, {"model": "resnet50", "strategy": "parameter-server", "order": "layer", "compute_time": "20ms"}),
    ],
    ids=["collective", "p2p-star", "p2p-pairs", "p2p-layer"],
)
def test_a_killed_rank_ends_the_others_with_one_line(workload, options: dict[str, object], tmp_path: Path) -> None:
    others_end_with_one_line(loopback(workload, 3, **options), tmp_path)
