"""The collective benchmark: its theory, its bandwidths, and what it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import collective
from workloads.common.collective_traffic import bus_factor
from workloads.common.placement import ranks
from workloads.readers.spans import overlap


def topology(hosts: int = 4, *, scale: int = 100) -> Topology:
    nodes = tuple(Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device="eth0"),)) for i in range(1, hosts + 1))
    links = tuple(Link(host=node.name, device="eth0", rate=25e9) for node in nodes)
    return Topology(kind="local", nodes=nodes, links=links, scale=scale)


def theory(operation: str, **options: object):
    config = collective.Config.model_validate({"operations": [operation], "sizes": ["100mb"], "repeats": 2, **options})
    where = topology()
    return collective.theory(config, Job(name="j", index=0, ranks=ranks(config.hosts, where)), where)


@pytest.mark.parametrize(
    ("operation", "messages"),
    # What a rank sends on average of four, in messages of a megabyte; gloo reduces in full before it scatters.
    [("all-reduce", 1.5), ("all-gather", 0.75), ("reduce-scatter", 1.5), ("all-to-all", 0.75), ("broadcast", 0.75)],
)
def test_bytes_of_an_iteration(operation: str, messages: float) -> None:
    assert theory(operation).bytes_per_iteration == 2 * messages * 1e6


def test_a_broadcast_is_a_tree_and_an_exchange_is_a_mesh() -> None:
    assert [pair[:2] for pair in theory("broadcast").pairs] == [("h1", "h2"), ("h1", "h3"), ("h2", "h4")]
    assert len(theory("all-to-all").pairs) == 12


def test_between_ranks_of_one_host_nothing_crosses_the_network() -> None:
    found = theory("all-reduce", hosts=["h1", "h1", "h2", "h2"])
    assert {pair[:2] for pair in found.pairs} == {("h1", "h2"), ("h2", "h1")}
    assert found.bytes_per_iteration == 2 * 1.5e6 * 2 / 4


@pytest.mark.parametrize(
    ("operation", "factor"),
    [("all-reduce", 1.75), ("all-gather", 0.875), ("reduce-scatter", 0.875), ("all-to-all", 0.875), ("broadcast", 1)],
)
def test_bus_bandwidth_is_that_of_nccl_tests(operation: str, factor: float) -> None:
    assert bus_factor(operation, 8) == factor


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    good = {
        "iteration": 0,
        "operation": "all-reduce",
        "bytes": 1000,
        "repeats": 3,
        "seconds": 0.001,
        "world": 4,
        "link_bps": 16e6,
    }
    nothing = [{**good, name: 0} for name in ("bytes", "repeats", "world", "link_bps")]  # by which a report divides
    odd = [
        {**good, "seconds": 0.0},
        {**good, "bytes": "1"},
        [],
        {**good, "link_bps": -1.0},
        {**good, "seconds": 5e-324},
    ]
    lines = [good, *odd, *nothing, {**good, "iteration": 1}]
    (tmp_path / "collectives.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"iter')
    output = LaunchOutput(
        folder=tmp_path, node="h1", launch="x", job="j", rank=1, window=None, source=None, offset_ns=0
    )
    table = collective.read(output)["collectives"]
    assert output.unread.rows()["count"] == [10]
    assert list(table["iteration"]) == [0, 1]
    assert list(table["algorithm_bps"]) == [pytest.approx(8e6)] * 2
    assert list(table["bus_bps"]) == [pytest.approx(12e6)] * 2


def test_overlap_counts_every_instant_once() -> None:
    spans = [
        ["compute", "forward", "", -1, 0, 0, 10],
        ["compute", "backward", "", -1, 0, 10, 40],
        ["communication", "all-reduce", "bucket 0", -1, 8, 20, 30],
        ["communication", "all-reduce", "bucket 1", -1, 8, 25, 60],
    ]
    found = overlap(spans)
    assert found == {"compute_s": 40e-9, "communication_s": 40e-9, "overlap_s": 20e-9}
