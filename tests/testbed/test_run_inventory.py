"""Real hosts: an inventory file that points at the sshds of a local testbed, which stays when the run ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.helpers.orch_runs import SMALL, last_json, measured, orch, start, told_of, wait_for, write
from tests.helpers.rack import on_inventory

pytestmark = pytest.mark.testbed

POLICER = """table inet policer {
  set connections { type inet_service; size 1000; flags dynamic; timeout 60s; }
  chain out { type filter hook output priority 0;
    tcp dport 15201 add @connections { tcp sport limit rate over 600 kbytes/second burst 32 kbytes } drop
  }
}
"""


def state(on, host):
    return on(host, "tc", "qdisc", "show", "dev", "eth0"), on(host, "ip", "route", "show")


@pytest.mark.alone
@pytest.mark.rights
def test_a_run_on_an_inventory_brings_everything_home_and_leaves_the_hosts_as_they_were(hosts, tmp_path):
    inventory, on = hosts
    before = state(on, "h1")
    on("h2", "ip route change $(ip route show dev eth0) dev eth0 congctl cubic")  # in force already
    other = state(on, "h2")
    rack = write(tmp_path, inventory, "rack.yaml")
    path = write(tmp_path, {**on_inventory(inventory), "testbed": {"inventory": rack.name}})
    summary, results = measured(path, tmp_path / "results", "--no-report")
    (run,) = summary["runs"]
    folder = results / "small" / run["run"]
    assert run["scale"] == 1
    assert run["windows"][0]["cross_traffic"][0]["achieved_bps"] == pytest.approx(30e6, rel=0.05)
    assert (folder / "hosts/h3/tcpdump.h3/capture.pcap").stat().st_size > 1000
    assert (state(on, "h1"), state(on, "h2")) == (before, other)
    assert on("h1", "ls", "-A", "/run/orch").strip() == ""  # the empty work folder went, too
    assert orch("doctor", rack)[0] == 0


@pytest.mark.rights
def test_two_runs_on_the_same_hosts(hosts, tmp_path):
    inventory, _ = hosts
    results = tmp_path / "results"
    path = write(tmp_path, on_inventory(inventory, traffic=None, measure={"at_most": "60s"}))
    first = start("run", path, "--results", results)
    wait_for(told_of(results, event="phase", name="ranks"), 360, "the first run's ranks")
    second = write(tmp_path, on_inventory(inventory), "second.yaml")
    status, _, err = orch("run", second, "--results", tmp_path / "second", "--wait", "0s")
    assert status == 1
    assert re.search(r"h\d: held by \S+@\S+, process \d+, run \S+", err)
    assert not list((tmp_path / "second").glob("*/*"))
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=120)
    assert first.returncode == 130
    status, out, _ = orch("clean", write(tmp_path, inventory, "rack.yaml"))
    assert (status, out.count("nothing to clean")) == (0, 3), out


def test_what_a_host_lacks_is_told_before_anything_starts(hosts, tmp_path):
    inventory, on = hosts
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    before = state(on, "h2")
    inventory = {**inventory, "hosts": {**inventory["hosts"]}}
    inventory["hosts"]["h2"] = {**inventory["hosts"]["h2"], "python": str(bare / "bin/python")}
    needs_torch = on_inventory(inventory, workload=SMALL["workload"])
    status, out, err = orch("run", write(tmp_path, needs_torch), "--results", tmp_path / "r", "--json")
    assert status == 1
    assert "h2: ddp needs module torch" in err
    assert "pip install torch" in err
    (run,) = last_json(out)["runs"]
    assert run["stage"] == "check"
    assert state(on, "h2") == before
    status, out, _ = orch("doctor", write(tmp_path, inventory, "rack.yaml"))
    assert status == 1
    assert "h2: missing module torch" in out
    assert "h1: ok" in out


@pytest.mark.rights
def test_a_host_that_lacks_what_conditions_run_is_told_the_packages(hosts, tmp_path):
    inventory, on = hosts
    before = state(on, "h2")
    on("h2", "for program in nft tc iptables; do mount --bind /dev/null $(command -v $program); done")
    conditions = [
        {"loss": {"host": "h2", "share": "1%"}},
        {"rate": {"where": "nic", "host": "h2", "rate": "120mbit"}},
        {"delay": {"host": "h2", "time": "1ms"}},
    ]
    path = write(tmp_path, on_inventory(inventory, conditions=conditions, traffic=None))
    status, out, err = orch("run", path, "--results", tmp_path / "r", "--json")
    assert status == 1
    for condition, program, package in (
        ("loss", "nft", "nft"),
        ("rate", "tc", "ip"),
        ("delay", "iptables", "iptables"),
    ):
        told = rf"h2: condition {condition} needs program {program}: no program .*remedy: .*install.* {package}"
        assert re.search(told, err, re.DOTALL), err
    assert last_json(out)["runs"][0]["stage"] == "check"
    on("h2", "for program in nft tc iptables; do umount $(command -v $program); done")
    assert state(on, "h2") == before


def test_a_host_that_is_too_small_is_told_before_anything_starts(hosts, tmp_path):
    inventory, on = hosts
    before = state(on, "h1")
    training = {"ddp": {"model": "gpt-3b", "compute_time": "1s", "hosts": ["h1", "h2"]}}
    path = write(tmp_path, on_inventory(inventory, workload=training, traffic=None))
    told = r"h1: 1 rank and what runs beside them take about \d+\.\d GiB of memory, and \d+\.\d GiB is free; remedy: "
    status, out, err = orch("run", path, "--results", tmp_path / "r", "--json")
    assert status == 1
    assert re.search(told, err), err
    assert last_json(out)["runs"][0]["stage"] == "check"
    assert state(on, "h1") == before
    status, out, _ = orch("doctor", path)
    assert status == 1
    assert re.search(f"too small: {told}", out), out
    assert re.search(r"h1: ok, \d+ requirements met; \d+ processors?, \d+\.\d GiB of memory free", out), out


def test_a_device_that_is_not_what_the_file_says(hosts, tmp_path):
    inventory, _ = hosts
    path = write(tmp_path, on_inventory({**inventory, "mtu": 9000}, traffic=None))
    status, out, err = orch("run", path, "--results", tmp_path / "r", "--json")
    assert status == 1
    assert "h1: the data plane needs mtu 9000 on eth0: it is 1500" in err
    assert "in the testbed file" in err
    assert last_json(out)["runs"][0]["stage"] == "check"


def test_a_data_plane_without_a_route(hosts, tmp_path):
    inventory, _ = hosts
    inventory = json.loads(json.dumps(inventory))
    inventory["hosts"]["h3"]["data"]["address"] = "203.0.113.3/24"
    status, _, err = orch("run", write(tmp_path, on_inventory(inventory)), "--results", tmp_path / "r")
    assert status == 1
    assert "no route from 198.18.0.1 to 203.0.113.3 (h3)" in err


def swapped(inventory):
    """The file with the data planes of h1 and h2 the wrong way round, as after a cable was moved."""
    h1, h2 = (inventory["hosts"][name] for name in ("h1", "h2"))
    return {**inventory["hosts"], "h1": {**h1, "data": h2["data"]}, "h2": {**h2, "data": h1["data"]}}


@pytest.mark.rights
def test_the_doctor_finds_what_a_run_would(hosts, tmp_path):
    """Addresses on the wrong hosts, one on another device, a device down: each told alike; nothing starts."""
    inventory, on = hosts
    rack = write(tmp_path, inventory, "rack.yaml")
    usual = write(tmp_path, on_inventory(inventory), "usual.yaml")
    mistaken = write(tmp_path, on_inventory({**inventory, "hosts": swapped(inventory)}), "mistaken.yaml")
    assert orch("doctor", usual)[0] == 0
    assert on("h1", "ls", "-A", "/run/orch").strip() == ""

    def told_alike(path, *lines):
        status, out, _ = orch("doctor", path)
        assert status == 1, out
        assert all(line in out for line in lines), out
        status, out, err = orch("run", path, "--results", tmp_path / "r", "--json")
        assert status == 1
        assert all(line.partition(": ")[2] in err for line in lines), err
        assert last_json(out)["runs"][0]["stage"] == "check"

    told_alike(mistaken, "h1: no route from 198.18.0.2 to 198.18.0.1 (h2)", "h2: no route from 198.18.0.1 to")
    on("h2", "ip link add other type veth peer name far && ip link set other up && ip link set far up")
    on("h2", "ip address del 198.18.0.2/24 dev eth0")
    on("h2", "ip address add 198.18.0.2/24 dev other")
    told_alike(usual, "h2: traffic to 198.18.0.1 (h1) would not leave by eth0: ")
    on("h2", "ip link del other && ip address add 198.18.0.2/24 dev eth0 && ip link set eth0 down")
    status, out, _ = orch("doctor", rack)
    assert status == 1
    assert "h2: missing link eth0, needed by the data plane (it is down)" in out
    assert "h2: no route from 198.18.0.2 to 198.18.0.1 (h1)" in out
    status, _, err = orch("run", usual, "--results", tmp_path / "r")
    assert (status, "h2: the data plane needs link eth0: it is down" in err) == (1, True), err


def test_a_local_run_takes_the_inventorys_names_and_rates(hosts, tmp_path):
    inventory, _ = hosts
    inventory = {**inventory, "link": "25gbit"}
    status, out, err = orch("plan", write(tmp_path, on_inventory(inventory)), "--dry-run", "--json")
    assert status == 0, err
    (run,) = json.loads(out)["runs"]
    assert run["topology"]["kind"] == "local"
    assert run["topology"]["scale"] == 100
    assert {link["rate"] for link in run["topology"]["links"]} == {25e9}
    assert [node["name"] for node in run["topology"]["nodes"]] == ["h1", "h2", "h3", "switch"]


@pytest.mark.alone
@pytest.mark.variants
def test_streams_are_raised_until_the_load_is_reached_and_the_record_says_so(hosts, tmp_path):
    """A policer gives every connection about 5 Mbit/s: one, two and four streams cannot carry 30, eight can."""
    inventory, on = hosts
    on("h1", "nft", "-f", "-", "<<'EOF'\n" + POLICER + "EOF")
    traffic = [{"iperf": {"from": "h1", "to": "h3", "load": "30mbit", "streams": 1}}]
    # As achieved: the policer lets the first second's worth pass twice, and only a load that stands shows that.
    validity = {"load": "as-achieved", "min_iterations": 5}
    path = write(tmp_path, on_inventory(inventory, conditions=None, traffic=traffic, validity=validity))
    summary, results = measured(path, tmp_path / "results", "--no-report")
    (run,) = summary["runs"]
    (note,) = (note for note in run["notes"] if "raised to" in note and "iperf0 with 8 streams" in note)
    assert note.startswith("window w1: h3 receives ")
    tables = results / "small" / run["run"] / "tables"
    flows = pq.read_table(tables / "flows.parquet").to_pylist()
    kept = [flow for flow in flows if flow["window_name"] == "w1"]
    assert len(kept) >= 8
    assert {flow["launch"] for flow in kept} <= {f"w1.iperf0.client.escalated{step}" for step in (3, 4)}
    assert {flow["window_name"] for flow in flows if flow["launch"] == "w1.iperf0.client"} == {"preflight of w1"}
    assert run["windows"][0]["cross_traffic"][0]["achieved_bps"] == pytest.approx(30e6, rel=0.2)


def test_a_source_that_may_not_be_raised_is_not(hosts, tmp_path):
    inventory, on = hosts
    on("h1", "nft", "-f", "-", "<<'EOF'\n" + POLICER + "EOF")
    traffic = [{"iperf": {"from": "h1", "to": "h3", "load": "30mbit", "streams": 1, "most_streams": 2}}]
    path = write(tmp_path, on_inventory(inventory, conditions=None, traffic=traffic))
    status, out, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
    assert status == 1
    assert re.search(r"preflight of window w1: .* h3 receives \d+\S* of 30mbit", err)
    (run,) = last_json(out)["runs"]
    assert [note.rpartition(": ")[2] for note in run["notes"]] == ["raised to iperf0 with 2 streams"]
