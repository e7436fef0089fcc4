"""Marks at a threshold: what a file may ask for, what is planned for it, and what its process tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.agents import ecn as agent
from orchestrator.experiment.dilation import dilated
from orchestrator.parts.conditions import ecn
from orchestrator.testbed.local import netns
from orchestrator.testbed.local.local_spec import FabricSpec
from orchestrator.testing.case import HOSTS, TOPOLOGIES, output
from orchestrator.validity.gates import conditions
from tests.helpers.gate_windows import judged

DATA = Path(__file__).parents[2] / "data"


def topology(**more):
    rates = dict.fromkeys(HOSTS, 25e9)
    return netns.topology(netns.LocalSpec(**{"hosts": HOSTS, "rates": rates, "scale": 10, **more}))


def options(config, where):
    return [(one.node, one.process.argv[5:]) for one in ecn.changes(config, where) if one.process]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"host": "h1"}, "does not say when to mark"),
        ({"host": "h1", "threshold": "1mb", "share": "1%"}, "threshold and share"),
        ({"host": "h1", "share": "1%", "virtual": "95%"}, "beside share"),
        ({"threshold": "1mb"}, "neither a host nor a link"),
        ({"link": "leaf1-spine1", "where": "switch-port", "threshold": "1mb"}, "beside link"),
        ({"host": "h1", "sojourn": "1ms", "virtual": "101%"}, "less than or equal to 1"),
    ],
)
def test_a_file_says_where_and_when_to_mark_once(given, said):
    with pytest.raises(ValidationError, match=said):
        ecn.Config(**given)


def test_a_size_is_divided_by_the_scale_and_a_time_is_not():
    where = topology()
    size = ecn.Config(host="h1", where="switch-port", threshold="200kb")
    assert options(size, where) == [("switch", ("-i", "p-h1", "-k", "20000"))]
    time = ecn.Config(host="h1", sojourn="80us", virtual="95%")
    assert options(time, where) == [("h1", ("-i", "eth0", "-t", "8e-05", "-v", "0.95"))]
    assert options(dilated(time, 10), where) == [("h1", ("-i", "eth0", "-t", "0.0008", "-v", "0.95"))]


def test_a_link_of_a_fabric_is_marked_at_both_of_its_ends():
    where = topology(fabric=FabricSpec(leaves=2, spines=2, hosts=2), uplink=25e9)
    config = ecn.Config(link="leaf1-spine2", threshold="200kb")
    assert ecn.problems(config, where) == []
    assert [(node, argv[1]) for node, argv in options(config, where)] == [("leaf1", "p-spine2"), ("spine2", "p-leaf1")]
    (wrong,) = ecn.problems(ecn.Config(link="leaf1-leaf2", threshold="200kb"), where)
    assert "no link 'leaf1-leaf2'" in wrong.message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"threshold": "15kb"}, "threshold: is 1.5 kB on the wire at scale 10, less than a packet: 15.14kb or more"),
        ({"sojourn": "4us"}, "sojourn: is 1.25 kB on the wire at scale 10, less than a packet: 15.14kb or more"),
        ({"sojourn": "5us", "virtual": "50%"}, "sojourn: is 781.2 bytes on the wire at scale 10"),
    ],
)
def test_a_threshold_of_less_than_a_packet_is_refused(given, said):
    (problem,) = ecn.problems(ecn.Config(host="h1", **given), topology())
    assert f"{problem.at[0]}: {problem.message}: {problem.accepted}".startswith(said)


def test_a_switch_without_an_agent_marks_nothing():
    config = ecn.Config(host="h1", where="switch-port", threshold="1mb")
    (problem,) = ecn.problems(config, TOPOLOGIES["inventory"])
    assert "no agent runs on the switch" in problem.message


def test_a_port_without_a_bucket_has_no_queue_to_mark_by():
    change = ecn.changes(ecn.Config(host="h1", threshold="1mb"), topology())[-1]
    none = json.dumps([{"kind": "noqueue", "handle": "0:", "root": True, "options": {}}])
    with pytest.raises(ValueError, match="give the link a rate"):
        change.apply(change.parse(none))
    old = change.parse((DATA / "rate/qdisc-tbf-100mbit.json").read_text())
    assert (change.apply(old), change.undo(old), change.expect(old)) == ([], [], old)


def test_the_process_reads_its_threshold_off_the_bucket():
    bucket = agent.token_bucket((DATA / "rate/qdisc-tbf-100mbit.json").read_text())
    assert bucket == (12.5e6, 100_000)
    assert agent.threshold_of({"-k": "20000"}, *bucket) == 20_000
    assert agent.threshold_of({"-t": "0.002"}, *bucket) == 25_000
    for wrong in ({"-k": "1513"}, {"-k": "100000"}, {"-t": "0.0001"}, {"-t": "0.008"}):
        with pytest.raises(ValueError, match="less than the 100000 that the queue holds"):
            agent.threshold_of(wrong, *bucket)
    for other in ("qdisc-noqueue.json", "qdisc-pfifo.json"):
        with pytest.raises(ValueError, match="packets wait in a token bucket alone"):
            agent.token_bucket((DATA / "rate" / other).read_text())


def marks(tmp_path, **changes):
    """The verdict on what the process of a run told, with some of it changed."""
    told = json.loads((DATA / "ecn/ecn.json").read_text())
    (tmp_path / "ecn.json").write_text(json.dumps({**told, **changes}))
    row = {name: values[0] for name, values in ecn.read(output(tmp_path))["marks"].items()}
    (gate,) = judged(conditions, rows={"marks": [{"node": "h1", **row}]})
    return gate


def test_marks_are_told_and_a_port_without_capable_packets_is_held_against_the_window(tmp_path):
    gate = marks(tmp_path)
    assert gate.passed
    assert "more than 50 kB in the queue and were marked; 3 others found as much and were not capable" in gate.message
    gate = marks(tmp_path, capable=0, marked=0, least_marked_bytes=None, most_passed_bytes=None)
    assert (gate.passed, gate.required) == (False, True)
    gate = marks(tmp_path, packets=0, capable=0, marked=0)
    assert (gate.passed, gate.required) == (None, False)
