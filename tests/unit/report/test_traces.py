"""Runs as traces of others' formats: read back by the schema of their makers, and held against what ranks did."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.main import main
from orchestrator.report.runs import Run
from orchestrator.report.traces import chakra, kineto
from orchestrator.report.traces.activity import COMMUNICATION, COMPUTE, Activity, Iteration, RankActivities, of_run
from tests.helpers.sealed_run import make_run

SCHEMA = Path(__file__).parents[2] / "data" / "chakra" / "et_def.desc"


def activity(lane: str, name: str, begin: int, end: int, **more: Any) -> Activity:
    """Instants in microseconds."""
    told = {"what": "", "peer": -1, "size": 0, "iteration": 0, **more}
    return Activity(lane=lane, name=name, start_ns=begin * 1000, end_ns=end * 1000, **told)


# An all-reduce that begins in the backward pass, which the next forward pass waits for; then a pull from rank 2.
STEP = [
    activity(COMPUTE, "forward", 0, 10),
    activity(COMPUTE, "backward", 10, 40),
    activity(COMMUNICATION, "all-reduce", 25, 60, what="bucket 0", size=4000),
    activity(COMMUNICATION, "receive", 62, 70, peer=2, size=80),
    activity(COMPUTE, "forward", 61, 90, iteration=1),
    activity(COMMUNICATION, "receive", 75, 80, peer=2, size=90, iteration=1),
]


def test_a_computation_is_cut_where_a_communication_begins_and_waits_for_what_ended_before_it() -> None:
    found = [(node.activity.name, node.activity.start_ns // 1000, node.after) for node in chakra.nodes(STEP)]
    assert found == [
        ("forward", 0, ()),
        ("backward", 10, (0,)),
        ("backward", 25, (1,)),
        ("all-reduce", 25, (1,)),
        ("forward", 61, (2, 3)),
        ("receive", 62, (4,)),
        ("forward", 62, (4,)),
        ("receive", 75, (5, 6)),
        ("forward", 75, (6,)),
    ]


spans = st.lists(
    st.tuples(st.booleans(), st.integers(0, 60), st.integers(0, 30), st.sampled_from(["send", "receive"])), max_size=12
)


@given(spans)
def test_nothing_depends_on_what_ended_later_and_no_computing_is_lost(drawn) -> None:
    given_ = [
        activity(COMPUTE if compute else COMMUNICATION, "forward" if compute else name, begin, begin + took, peer=1)
        for compute, begin, took, name in drawn
    ]
    nodes = chakra.nodes(given_)
    for number, node in enumerate(nodes):
        assert all(before < number for before in node.after)
        if node.activity.lane == COMMUNICATION:
            assert all(nodes[before].activity.end_ns <= node.activity.start_ns for before in node.after)
    for lane in (COMPUTE, COMMUNICATION):
        took = [one.activity.end_ns - one.activity.start_ns for one in nodes if one.activity.lane == lane]
        assert sum(took) == sum(one.end_ns - one.start_ns for one in given_ if one.lane == lane)


def decoded(content: bytes) -> tuple[Any, list[Any]]:
    """Metadata and nodes as protobuf reads them by MLCommons' schema."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(SCHEMA.read_bytes()).file:
        pool.Add(file)
    kinds = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("GlobalMetadata", "Node")
    ]
    messages, at = [], 0
    while at < len(content):
        size = shift = 0
        while True:
            byte = content[at]
            at, size, shift = at + 1, size | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        messages.append(kinds[bool(messages)].FromString(content[at : at + size]))
        at += size
    return messages[0], messages[1:]


def told(attributes: Any) -> dict[str, Any]:
    return {one.name: getattr(one, one.WhichOneof("value")) for one in attributes}


def test_a_trace_is_read_by_the_schema_of_chakra() -> None:
    rank = RankActivities("job0", 1, 3, [Iteration(0, 0, 61_000)], STEP)
    metadata, nodes = decoded(chakra.encoded(rank, {"run": "r", "scale": 100}, {}))
    assert told(metadata.attr) == {"run": "r", "scale": 100}
    comp, recv, coll = 4, 6, 7  # COMP_NODE, COMM_RECV_NODE, COMM_COLL_NODE
    assert [(node.id, node.name, node.type) for node in nodes] == [
        (0, "forward", comp),
        (1, "backward", comp),
        (2, "backward", comp),
        (3, "all-reduce", coll),
        (4, "forward", comp),
        (5, "receive", recv),
        (6, "forward", comp),
        (7, "receive", recv),
        (8, "forward", comp),
    ]
    assert [list(node.data_deps) for node in nodes] == [[], [0], [1], [1], [2, 3], [4], [4], [5, 6], [6]]
    assert [(node.start_time_micros, node.duration_micros) for node in nodes[:4]] == [
        (0, 10),
        (10, 15),
        (25, 15),
        (25, 35),
    ]
    assert told(nodes[3].attr) == {
        "is_cpu_op": False,
        "iteration": 0,
        "comm_size": 4000,
        "comm_type": 0,
        "what": "bucket 0",
    }
    received = told(nodes[7].attr)
    assert received == {
        "is_cpu_op": False,
        "iteration": 1,
        "comm_size": 90,
        "comm_src": 2,
        "comm_dst": 1,
        "comm_tag": 0,
    }
    widths = {one.name: one.WhichOneof("value") for one in nodes[7].attr}
    assert widths["comm_size"] == "int64_val"
    assert widths["comm_src"] == widths["comm_dst"] == "int32_val"


def test_numbers_of_the_wire_format() -> None:
    """The examples of its documentation."""
    assert chakra.varint(150) == b"\x96\x01"
    assert chakra.integer(1, 150) == b"\x08\x96\x01"
    assert chakra.text(2, "testing") == b"\x12\x07testing"
    assert chakra.integers(6, [3, 270, 86942]) == b"\x32\x06\x03\x8e\x02\x9e\xa7\x05"
    assert chakra.varint(-1) == b"\xff" * 9 + b"\x01"


def test_kinetos_json_has_what_holistic_trace_analysis_looks_at(tmp_path: Path) -> None:
    overlapping = [*STEP, activity(COMMUNICATION, "all-reduce", 26, 50, size=8)]
    rank = RankActivities("job0", 1, 3, [Iteration(0, 0, 61_000), Iteration(1, 61_000, 90_000)], overlapping)
    document = kineto.document(rank, Run(make_run(tmp_path, iterations=5)))
    assert document["distributedInfo"] == {"backend": "nccl", "rank": 1, "world_size": 3}
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    steps = [event["name"] for event in events if event["cat"] == "user_annotation"]
    assert steps == ["ProfilerStep#0", "ProfilerStep#1"]
    kernels = [event for event in events if event["cat"] == "kernel"]
    launches = {event["args"]["correlation"]: event for event in events if event["cat"] == "cuda_runtime"}
    assert [launches[one["args"]["correlation"]]["ts"] for one in kernels] == [one["ts"] for one in kernels]
    assert [one["name"] for one in kernels if one["args"]["stream"] == 7] == ["forward", "backward", "forward"]
    others = [one for one in kernels if one["args"]["stream"] != 7]
    assert {one["name"] for one in others} == {"ncclKernel_AllReduce", "ncclKernel_SendRecv"}
    assert [one["args"]["stream"] for one in others if one["name"].endswith("AllReduce")] == [20, 21]


def test_a_run_without_spans_is_told_by_its_passes(tmp_path: Path) -> None:
    ranks = list(of_run(Run(make_run(tmp_path, iterations=5))))
    assert [(one.job, one.rank, one.ranks) for one in ranks] == [("training", rank, 4) for rank in range(4)]
    for one in ranks:
        assert [a.name for a in one.activities[:4]] == ["forward", "backward", "forward", "backward"]
        assert {a.lane for a in one.activities} == {COMPUTE}


@pytest.mark.parametrize(("what", "ending"), [("chakra", "trace.3.et"), ("kineto", "rank-3.json.gz")])
def test_export_writes_a_file_a_rank(what: str, ending: str, tmp_path: Path, capsys) -> None:
    run = make_run(tmp_path / "results" / "made", iterations=5)
    out = tmp_path / "out"
    assert main(["export", what, run.name, "--results", str(tmp_path / "results"), "-o", str(out)]) == 0
    assert "traces of 4 ranks" in capsys.readouterr().out
    files = sorted(path.name for path in (out / "training").iterdir())
    assert len(files) == 4
    assert files[-1] == ending
    if what == "kineto":
        assert json.loads(gzip.decompress((out / "training" / ending).read_bytes()))["distributedInfo"]["rank"] == 3


def test_several_runs_are_refused(tmp_path: Path, capsys) -> None:
    for repetition in (1, 2):
        make_run(tmp_path / "results" / "made", iterations=5, repetition=repetition)
    assert main(["export", "chakra", "--results", str(tmp_path / "results"), "-o", str(tmp_path / "out")]) != 0
    assert "chakra: 2 runs are selected; accepted: one" in capsys.readouterr().err
