"""The collective benchmark: its theory, its bandwidths, and what it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import collective
from workloads.common.collective_traffic import bus_factor
from workloads.common.placement import ranks
from workloads.common.skew import Skew, busiest, parts_of
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


def test_by_zipf_every_rank_sends_most_to_rank_0():
    parts = parts_of(Skew(zipf=1.0), 4)
    assert parts == [[pytest.approx(12 / 25 / rank) for rank in (1, 2, 3, 4)]] * 4  # H(4) = 25/12
    assert 4 * parts[0][0] == pytest.approx(1.92)
    assert 4 * parts_of(Skew(zipf=0.5), 4)[0][0] == pytest.approx(1.44, abs=0.005)
    assert busiest(parts) == pytest.approx(3 * 12 / 25)


def test_an_exponent_of_0_is_even():
    parts = parts_of(Skew(zipf=0.0), 4)
    assert parts == [[0.25] * 4] * 4
    assert busiest(parts) == pytest.approx(0.75)  # as nccl-tests has it
    assert theory("all-to-all", skew={"zipf": 0}).pairs == theory("all-to-all").pairs


def recorded(tmp_path, text):
    path = tmp_path / "routing.csv"
    path.write_text(text)
    return Skew(matrix=path)


def test_of_a_recorded_matrix_only_relations_count(tmp_path):
    text = "# tokens\nrank,peer,tokens\n0,1,10\n0,2,10\n0,3,15\n0,3,5\n1,0,20\n2,0,20\n3,0,80\n"
    made = recorded(tmp_path, text)
    parts = parts_of(made, 4)
    assert parts[0] == [0.0, 0.25, 0.25, 0.5]
    assert sum(map(sum, parts)) == 4
    assert busiest(parts) == 3.0  # what rank 0 receives: 120 of 160 tokens, of four messages
    found = theory("all-to-all", skew={"matrix": str(made.matrix)})
    sent = {pair[:2]: pair[2] for pair in found.pairs}
    assert sent == {
        ("h1", "h2"): 2 * 0.25e6,
        ("h1", "h3"): 2 * 0.25e6,
        ("h1", "h4"): 2 * 0.5e6,
        ("h2", "h1"): 2 * 0.5e6,
        ("h3", "h1"): 2 * 0.5e6,
        ("h4", "h1"): 2 * 2e6,
    }
    assert str(made.matrix) in found.source


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0,1\n", ":1: not rank, peer and amount"),
        ("0,1,a\n", ":1: not rank, peer and amount"),
        ("rank,peer,bytes\n0,4,1\n", ":2: 0 or 4 is none of 4 ranks"),
        ("-1,0,1\n", ":1: -1 or 0 is none"),
        ("0,1,-1\n", ":1: -1 is no amount"),
        ("0,1,nan\n", ":1: nan is no amount"),
        ("0,1,0\n", "nothing is sent"),
        ("", "nothing is sent"),
    ],
)
def test_a_file_of_something_else_says_what_is_wrong(tmp_path, text, told):
    with pytest.raises(ConfigError) as error:
        parts_of(recorded(tmp_path, text), 4)
    assert told in error.value.message
    options = {"operations": ["all-to-all"], "skew": {"matrix": str(tmp_path / "routing.csv")}}
    (problem,) = collective.problems(collective.Config.model_validate(options), topology())
    assert problem.at == ("skew",)


@pytest.mark.parametrize(
    "options", [{"operations": ["all-reduce"]}, {"operations": ["all-to-all"], "backend": "mpi", "hosts": ["h1", "h2"]}]
)
def test_a_skew_of_nothing_uneven_is_refused(options):
    made = collective.Config.model_validate({"skew": {"zipf": 1}, **options})
    assert [problem.at for problem in collective.problems(made, topology())] == [("skew",)]


@pytest.mark.parametrize("options", [{}, {"zipf": 1, "matrix": "x.csv"}])
def test_how_uneven_it_is_stands_there_once(options):
    with pytest.raises(ValueError, match="does not say once"):
        Skew.model_validate(options)
