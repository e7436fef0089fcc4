"""Hosts with two rails, and a data plane of IPv6: the quickstart's training and traffic, counted a rail."""

from __future__ import annotations

import pytest

from orchestrator.report.runs import Run
from tests.helpers.orch_runs import measured, small, write

pytestmark = [pytest.mark.testbed, pytest.mark.variants]

TESTBED = {"local": {"hosts": 3, "link": "25gbit", "scale": 100, "rails": 2}}


def tables(run, results):
    (window,) = run["windows"]
    assert window["valid"], window["reasons"]
    return Run(results / "small" / run["run"])


def test_gloo_takes_both_rails_in_turn_and_cross_traffic_the_second_one(tmp_path):
    """ResNet-50 has three buckets of DDP's usual size, so that each rail carries half of them in the long run."""
    traffic = [{"iperf": {"from": "h1", "to": "h3", "load": "5gbit", "streams": 2, "rail": 1}}]
    changes = {"testbed": TESTBED, "traffic": traffic, "conditions": [{"congestion-control": "reno"}]}
    workload = {"ddp": {"model": "mobilenet_v2", "compute_time": "40ms", "hosts": ["h1", "h2"], "bucket": "4mib"}}
    summary, results = measured(write(tmp_path, small(**changes, workload=workload)), tmp_path)
    (run,) = summary["runs"]
    sealed = tables(run, results)
    rails = sealed.table("rails").to_pylist()
    assert [(row["host"], row["rail"], row["device"]) for row in rails] == [
        ("h1", 0, "eth0"),
        ("h1", 1, "eth1"),
        ("h2", 0, "eth0"),
        ("h2", 1, "eth1"),
    ]
    for row in rails:
        assert row["counted_bytes"] == pytest.approx(row["captured_bytes"], rel=0.02)
        assert row["sent_bytes"] == pytest.approx(row["theory_bytes"], rel=0.1)  # 20 iterations: the ends weigh
        assert row["theory_bytes"] > 0
    flows = sealed.table("capture_flows").to_pylist()
    cross = {
        row["src"] for row in flows if row["kind"] == "cross" and row["node"] == "h1" and row["direction"] == "out"
    }
    assert cross == {"198.18.1.1"}
    training = {row["src"] for row in flows if row["kind"] == "training" and row["node"] == "h2"}
    assert {"198.18.0.2", "198.18.1.2"} <= training
    assert {row["port"] for row in flows if row["node"] == "h1"} == {"eth0", "eth1"}
    assert {name: routes(sealed, name) for name in ("eth0", "eth1")} == {"eth0": "reno", "eth1": "reno"}


def routes(sealed, device):
    """The congestion control of a host's route by a device."""
    (found,) = (route for route in sealed.facts("h1")["routes"] if route["dev"] == device)
    return found["metrics"][0]["congestion"]


@pytest.mark.alone
def test_the_quickstart_is_valid_on_a_data_plane_of_ipv6(tmp_path):
    testbed = {"local": {**TESTBED["local"], "ip": 6, "rails": 1}}
    traffic = [
        {"iperf": {"from": "h1", "to": "h3", "load": "3gbit", "streams": 2}},
        {"websearch": {"from": "h2", "to": "h3", "load": "2gbit"}},
    ]
    # A second of web search holds few flows: its load is that of the flows that began in it.
    validity = {"load": "as-achieved", "load_course": "ignore", "launch_late": "100ms"}
    summary, results = measured(write(tmp_path, small(testbed=testbed, traffic=traffic, validity=validity)), tmp_path)
    (run,) = summary["runs"]
    sealed = tables(run, results)
    flows = sealed.table("capture_flows").to_pylist()
    ends = {row["src"] for row in flows if row["kind"] in ("training", "cross")}
    assert ends <= {"2001:2::1", "2001:2::2", "2001:2::3"}
    assert {row["kind"] for row in flows if row["node"] == "h1"} >= {"training", "cross"}
    loads = {row["source"]: row["achieved_bps"] / row["requested_bps"] for row in sealed.table("loads").to_pylist()}
    assert loads["iperf0"] == pytest.approx(1, rel=0.05)
    assert loads["websearch1"] == pytest.approx(1, rel=0.5)
    sockets = {row["congestion"] for row in sealed.table("sockets").to_pylist() if row["src"] != row["dst"]}
    assert sockets == {"cubic"}
