from __future__ import annotations

import json
import math
import struct
from dataclasses import replace

import numpy as np
import pytest

from cross_traffic import flow_records, replay, websearch
from cross_traffic.agents import flow_sender
from orchestrator.analysis.windows import generated_flows
from orchestrator.core.errors import StoreError
from orchestrator.parts.launch import Line
from orchestrator.parts.protocols import Source
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import Link, Node, Rail, Topology
from orchestrator.validity.gates import flows, load_course
from orchestrator.validity.window import GeneratedFlows
from tests.helpers.gate_windows import judged

HOSTS = ("h1", "h2", "h3", "h4")
SOURCE = Source(name="websearch0", window="w1", port=15217, duration_s=100.0, seed=3)
TOPOLOGY = Topology(
    kind="local",
    nodes=tuple(
        Node(name=host, rails=(Rail(address=f"10.0.0.{i}", device="eth0"),)) for i, host in enumerate(HOSTS, start=1)
    ),
    links=tuple(Link(host=host, device="eth0", rate=25e9) for host in HOSTS),
    scale=100,
)


def config(**options):
    return websearch.Config.model_validate({"from": "h4", "to": "h1", "load": "10gbit", **options})


def specs(launches, ending):
    return {launch.node: json.loads(launch.files["spec.json"]) for launch in launches if launch.name.endswith(ending)}


def test_one_sender_and_one_sink():
    sink, sender = websearch.launches(config(), SOURCE, TOPOLOGY)
    assert (sink.node, sink.order, sink.ready) == ("h1", 0, Line(pattern="^listening$"))
    assert (sender.node, sender.order, sender.ready) == ("h4", 1, Line(pattern="^sending$"))
    assert sender.argv == ("python3", "-I", "-S", "-B", "flow_sender.py", "spec.json")
    assert not sender.privileged
    spec = json.loads(sender.files["spec.json"])
    (stream,) = spec["streams"]
    assert stream["load_bps"] == pytest.approx(100e6)
    assert stream["factor"] == pytest.approx(0.01)
    assert stream["duration_s"] is None
    assert json.loads(sink.files["spec.json"]) == {
        "address": "10.0.0.1",
        "ports": [15217],
        "senders": ["10.0.0.4"],
        "starters": 1,
    }
    assert [(flow.src, flow.dst, flow.port) for flow in sender.flows] == [("10.0.0.4", "10.0.0.1", 15217)]


def test_an_incast_shares_each_flow_and_starts_it_everywhere_at_once():
    made = config(**{"from": ["h2", "h3", "h4"]}, fan_in=3, load="20gbit", distribution="datamining")
    senders = specs(websearch.launches(made, SOURCE, TOPOLOGY), ".sender")
    streams = [spec["streams"] for spec in senders.values()]
    assert streams[0] == streams[1] == streams[2]
    assert streams[0][0]["factor"] == pytest.approx(1 / 300)
    assert {(demand.src, demand.dst, demand.rate) for demand in websearch.demands(made)} == {
        (host, "h1", 20e9 / 3) for host in ("h2", "h3", "h4")
    }


@pytest.mark.parametrize("fan_in", [1, 2])
@pytest.mark.parametrize(("senders", "receivers"), [(["h2", "h3", "h4"], ["h1"]), (["h1", "h2", "h3"], ["h1", "h4"])])
def test_the_load_is_what_all_pairs_have_together(senders, receivers, fan_in):
    made = config(**{"from": senders}, to=receivers, fan_in=fan_in)
    assert websearch.problems(made, TOPOLOGY) == []
    assert sum(demand.rate for demand in websearch.demands(made)) == pytest.approx(10e9)
    scaled = specs(websearch.launches(made, SOURCE, TOPOLOGY), ".sender")
    assert sum(stream["load_bps"] for spec in scaled.values() for stream in spec["streams"]) == pytest.approx(100e6)
    sinks = specs(websearch.launches(made, SOURCE, TOPOLOGY), ".sink")
    starts = {(spec["start"]["address"], spec["start"]["port"]) for spec in scaled.values()}
    assert len(starts) == 1
    (meeting,) = [sink for sink in sinks.values() if sink["address"] == next(iter(starts))[0]]
    assert set(meeting["senders"]) >= {spec["source"] for spec in scaled.values()}
    assert meeting["starters"] == len(scaled)


def test_bursts_may_exceed_the_link_and_the_mean_may_not():
    burst = {"width": "1ms", "period": "10ms", "height": 5}
    assert websearch.problems(config(load="20gbit", burst=burst), TOPOLOGY) == []
    (problem,) = websearch.problems(config(load="30gbit", burst=burst), TOPOLOGY)
    assert problem.at == ("load",)


@pytest.mark.parametrize(
    ("options", "at", "told"),
    [
        ({"from": "h9"}, ("from",), "no host 'h9'"),
        ({"from": ["h2", "h2"]}, ("from", 1), "twice"),
        ({"to": []}, ("to",), "names no host"),
        ({"to": "h4"}, ("to",), "to itself"),
        ({"load": "0bit"}, ("load",), "no traffic"),
        ({"load": "26gbit"}, ("load",), "does not fit"),
        ({"fan_in": 2}, ("fan_in",), "only 1"),
        ({"distribution": "nosuch"}, (), "no distribution"),
        ({"burst": {"width": "5ms", "period": "4ms"}}, (), "does not fit"),
        ({"burst": {"height": 20}}, (), "more than all bytes"),
        ({"burst": {}, "load": "100mbit"}, (), "too little"),
    ],
)
def test_mistakes_have_a_place_and_a_way_out(options, at, told):
    (problem,) = websearch.problems(config(**options), TOPOLOGY)
    assert problem.at == at
    assert told in problem.message
    assert problem.accepted


def test_a_file_is_replayed_at_its_own_load(tmp_path):
    path = tmp_path / "flows.csv"
    path.write_text("start_s,bytes,to\n" + "".join(f"{i / 10},100000,h{1 + i % 2}\n" for i in range(11)))
    made = replay.Config.model_validate({"from": "h4", "schedule": str(path)})
    assert replay.problems(made, TOPOLOGY) == []
    wire = 100_000 + 66 * math.ceil(100_000 / 1448) + 272
    rates = {demand.dst: demand.rate for demand in replay.demands(made)}
    assert rates == {"h1": pytest.approx(6 * wire * 8 / 1.1), "h2": pytest.approx(5 * wire * 8 / 1.1)}
    launches = replay.launches(made, replace(SOURCE, name="replay0"), TOPOLOGY)
    assert [(launch.node, launch.order) for launch in launches] == [("h1", 0), ("h2", 0), ("h4", 1)]
    assert launches[2].files["flows.csv"].splitlines()[:2] == [b"0,100000,0", b"100000000,100000,1"]
    assert specs(launches, ".sender")["h4"]["recorded"] == {
        "path": "flows.csv",
        "factor": 0.01,
        "length_s": pytest.approx(1.1),
    }


def two_files(tmp_path, **changes):
    texts = {"h4": "start_s,bytes,to\n0,1000,h1\n1,1000,h2\n", "h1": "start_s,bytes,to\n0.5,1000,h2\n3,1000,h4\n"}
    for host, text in (texts | changes).items():
        (tmp_path / f"{host}.csv").write_text(text)
    return {host: str(tmp_path / f"{host}.csv") for host in texts | changes}


def test_files_of_several_hosts_begin_together_and_again_together(tmp_path):
    made = replay.Config.model_validate({"schedules": two_files(tmp_path)})
    assert replay.problems(made, TOPOLOGY) == []
    assert {(demand.src, demand.dst) for demand in replay.demands(made)} == {
        ("h4", "h1"), ("h4", "h2"), ("h1", "h2"), ("h1", "h4")
    }  # fmt: skip
    launches = replay.launches(made, replace(SOURCE, name="replay0"), TOPOLOGY)
    sinks, senders = specs(launches, ".sink"), specs(launches, ".sender")
    assert set(sinks) == {"h1", "h2", "h4"}
    assert {spec["starters"] for spec in sinks.values()} == {2}
    assert len({str(spec["start"]) for spec in senders.values()}) == 1
    assert {spec["recorded"]["length_s"] for spec in senders.values()} == {6.0}  # of the longer file
    assert len(sinks["h2"]["senders"]) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "no sender"),
        ({"from": "h4"}, "no sender"),
        ({"schedule": "x.csv"}, "no sender"),
        ({"from": "h4", "schedule": "x.csv", "schedules": {"h1": "y.csv"}}, "no sender"),
        ({"from": "h4", "schedules": {"h1": "y.csv"}}, "no sender"),
    ],
)
def test_a_replay_names_its_senders_in_one_way(options, told):
    with pytest.raises(ValueError, match=told):
        replay.Config.model_validate(options)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"h9": "start_s,bytes,to\n0,10,h1\n"}, "no host 'h9'"),
        ({"h1": "start_s,bytes,to\n0,10,h1\n"}, "to itself"),
        ({"h1": "start_s,bytes,to\n0,10,h8\n"}, "no host 'h8'"),
        ({"h1": "start_s,bytes\n0,10\n"}, "name no receiver"),
        ({"h1": "nonsense"}, "the head must be"),
    ],
)
def test_one_of_several_files_that_cannot_be_replayed_says_why(tmp_path, changes, told):
    made = replay.Config.model_validate({"schedules": two_files(tmp_path, **changes)})
    (problem,) = replay.problems(made, TOPOLOGY)
    assert told in problem.message
    assert problem.accepted


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("start_s,bytes\n0,10\n", {}, "name no receiver"),
        ("start_s,bytes,to\n0,10,h9\n", {}, "no host 'h9'"),
        ("start_s,bytes,to\n0,10,h4\n", {}, "to itself"),
        ("start_s,bytes,to\n2,10,h1\n", {"length": "1s"}, "after the 1 s"),
        ("nonsense", {}, "the head must be"),
    ],
)
def test_a_file_that_cannot_be_replayed_says_why(tmp_path, text, options, told):
    path = tmp_path / "flows.csv"
    path.write_text(text)
    made = replay.Config.model_validate({"from": "h4", "schedule": str(path), **options})
    assert any(told in problem.message for problem in replay.problems(made, TOPOLOGY))


def test_the_record_of_the_agent_is_what_is_read():
    assert flow_sender.RECORD.size == flow_records.RECORD.itemsize
    packed = flow_sender.RECORD.pack(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    (row,) = np.frombuffer(packed, flow_records.RECORD)
    assert list(row)[:-1] == list(range(1, 14))


def test_a_log_of_something_else_is_refused(tmp_path):
    (tmp_path / "flows.0.bin").write_bytes(b"x" * 200)
    (tmp_path / "spec.json").write_text("{}")
    output = LaunchOutput(
        folder=tmp_path, node="h4", launch="x", job=None, rank=None, window="w1", source="s", offset_ns=0
    )
    with pytest.raises(StoreError, match="no log of flows"):
        flow_records.read(output)


def test_instants_are_in_the_controllers_time_and_absent_where_nothing_happened(tmp_path):
    spec = json.loads(websearch.launches(config(), SOURCE, TOPOLOGY)[1].files["spec.json"])
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    head = struct.pack("<16sq", flow_sender.MAGIC, 1_000_000)
    good = flow_sender.RECORD.pack(0, 100, 150, 200, 250, 300, 7, 16, 0, 40000, 15217, 0, 2)
    shed = flow_sender.RECORD.pack(1, 110, 160, -1, -1, -1, 9, 0, 0, 0, 0, flow_sender.SHED, 0)
    (tmp_path / "flows.0.bin").write_bytes(head + shed + good + good[:30])
    output = LaunchOutput(
        folder=tmp_path, node="h4", launch="x", job=None, rank=None, window="w1", source="s", offset_ns=50
    )
    flows = flow_records.read(output)["flows"]
    assert list(flows["flow"]) == [0, 1]
    assert list(flows["planned_start_ns"]) == [1_000_150, 1_000_160]
    assert flows["end_ns"] == [1_000_350, None]
    assert flows["error"] == ["", "shed: too many flows were open"]
    assert flows["dst"] == ["10.0.0.1", "10.0.0.1"]
    assert list(flows["planned_bytes"]) == [7, 9]


def test_sizes_from_their_own_distribution_are_near_it_and_others_are_far():
    points, cdf = [0, 1000, 2000], [0.0, 0.5, 1.0]
    even = np.arange(1, 2000)
    assert generated_flows.size_distance(even, points, cdf) < 0.002
    assert generated_flows.size_distance(even // 2 + 1, points, cdf) == pytest.approx(0.5, abs=0.01)
    assert generated_flows.size_distance(np.full(100, 500), [500], [1.0]) == 0
    assert math.isnan(generated_flows.size_distance(even, [], []))


def test_jitter_hardly_moves_gaps_and_lateness_does():
    planned = np.cumsum(np.full(1000, 1_000_000))
    jitter = np.arange(1000) % 7 * 1000
    assert generated_flows.gap_distance(planned, planned + jitter) == 0
    held_up = planned // 10_000_000 * 10_000_000 + 10_000_000
    assert generated_flows.gap_distance(planned, held_up) > 0.8


def test_what_flows_weigh_on_the_wire_is_counted_alike_on_both_sides():
    from cross_traffic.agents import flow_drawing

    sizes = np.array([1, 16, 1448, 1449, 123_456])
    ours = generated_flows.wire_bytes(sizes, flow_drawing.Framing(1500))
    assert ours.tolist() == [flow_drawing.Framing(1500).wire_bytes(int(size)) for size in sizes]


GOOD = GeneratedFlows(
    source="websearch0",
    flows=5000,
    shed=0,
    starved=0,
    unfinished=2,
    failed=0,
    late_p50_s=1e-5,
    late_p99_s=2e-4,
    late_max_s=3e-3,
    planned_bps=1e8,
    acknowledged_bps=1e8,
    received_payload_bps=9.5e7,
    size_distance=0.01,
    size_limit=0.03,
    gap_distance=0.02,
)


@pytest.mark.parametrize(
    ("changes", "failed", "told"),
    [
        ({}, [], ""),
        ({"shed": 1}, ["flows"], "0 failed, 1 shed (1 because too many were open, 0 for"),
        ({"shed": 3, "starved": 3}, ["flows"], "3 shed (0 because too many were open, 3 for want of processor time)"),
        ({"failed": 6}, ["flows"], "6 failed"),
        ({"failed": 5}, [], ""),
        ({"flows": 0}, ["flows"], "planned none"),
        ({"late_p99_s": 0.02}, ["launch"], "the p99 is above 10 ms"),
        ({"size_distance": 0.04}, ["flow-sizes"], "0.04"),
        ({"size_distance": math.nan}, [], ""),
    ],
)
def test_a_window_counts_only_with_traffic_as_planned(changes, failed, told):
    gates = judged(flows, generated=(replace(GOOD, **changes),))
    assert [gate.name for gate in gates if gate.passed is False] == failed
    assert told in "".join(gate.message for gate in gates if gate.passed is False)


@pytest.mark.parametrize(("course", "required"), [(0.05, True), ("ignore", False)])
def test_gaps_off_the_schedule_are_a_remark_where_the_course_is_ignored(course, required):
    for distance, kept in ((0.2, False), (0.02, True)):
        made = replace(GOOD, gap_distance=distance)
        (gate,) = judged(load_course, validity={"load_course": course}, courses=(), generated=(made,))
        assert (gate.name, gate.passed, gate.required, gate.measured) == ("flow-gaps", kept, required, distance)
