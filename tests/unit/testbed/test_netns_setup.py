from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.core.machines import packages
from orchestrator.testbed.local import local_spec, netns_needs
from orchestrator.testbed.local.local_spec import port_name
from orchestrator.testbed.local.netns import LocalSpec, topology
from orchestrator.testbed.local.netns_setup import new_keys, setup_document


def spec(hosts=("h1", "h2", "h3"), rate=25e9, **more):
    return LocalSpec(hosts=hosts, rates=dict.fromkeys(hosts, rate), **more)


def document(local):
    folders = {node.name: Path("/x/hosts") / node.name for node in topology(local).nodes}
    return setup_document(local, keys=new_keys(), folders=folders, sshd="/usr/sbin/sshd", limit_s=1.0)


def test_the_topology_is_known_without_a_network():
    plan = topology(spec(scale=100, mtu=9000))
    assert [host.address for host in plan.hosts] == ["198.18.0.1", "198.18.0.2", "198.18.0.3"]
    assert str(plan.hosts[0].first.network) == "198.18.0.0/24"
    assert plan.link("h2").switch_port == "p-h2"
    assert plan.node("switch").kind == "switch"
    assert (plan.kind, plan.scale, plan.mtu, plan.link("h1").rate) == ("local", 100, 9000, 25e9)
    assert topology(spec()) == topology(spec())


@pytest.mark.parametrize("hosts", [("h1",), tuple(f"h{i}" for i in range(251)), ("a", "a"), ("a", "switch")])
def test_impossible_hosts_are_refused(hosts):
    with pytest.raises(ConfigError):
        topology(spec(hosts=hosts))


def test_names_of_ports_fit_and_differ():
    names = [f"a-rather-long-host-name-{i}" for i in range(1, 65)] + ["h1", "exactly13char", "exactly14chars"]
    ports = [port_name(i, name) for i, name in enumerate(names, 1)]
    assert len(set(ports)) == len(ports)
    assert max(map(len, ports)) <= 15
    assert ports[64:66] == ["p-h1", "p-exactly13char"]


def test_both_ends_of_a_link_get_its_scaled_rate():
    told = document(spec(scale=100))
    assert told["nodes"][0]["tc"][0].startswith("qdisc replace dev eth0 root tbf rate 250000000bit burst ")
    assert [line.split()[3] for line in told["switch"]["tc"]] == ["p-h1", "p-h2", "p-h3"]
    assert told["nodes"][3]["tc"] == []
    free = document(spec(rate=math.inf))
    assert not free["switch"]["tc"]
    assert not free["nodes"][0]["tc"]


def test_every_host_can_be_known_by_its_mac():
    told = document(spec())
    assert list(told["neighbours"]["eth0"]) == ["198.18.0.1", "198.18.0.2", "198.18.0.3"]
    for node, (address, mac) in zip(told["nodes"], told["neighbours"]["eth0"].items(), strict=False):
        assert f"address {mac} " in node["links"][0]
        assert f"addr add {address}/24 dev eth0" in node["ip"]


def test_each_rail_has_devices_networks_and_a_switch_of_its_own():
    local = spec(rails=2, scale=100)
    plan, told = topology(local), document(local)
    assert plan.rails == 2
    assert plan.node("h2").addresses == ("198.18.0.2", "198.18.1.2")
    assert plan.node("h2").devices == ("eth0", "eth1")
    assert [link.switch_port for link in plan.links_of("h2")] == ["p-h2", "r1p-h2"]
    assert (plan.rail_of("h2", "eth1"), plan.rail_of("switch", "r1p-h3")) == (1, 1)
    assert told["nodes"][0]["links"][2].startswith("link add r1p-h1 mtu 1500 type veth peer name eth1 ")
    assert told["nodes"][0]["links"][1::2] == ["link set p-h1 master br0 up", "link set r1p-h1 master br1 up"]
    assert "addr add 198.18.1.1/24 dev eth1" in told["nodes"][0]["ip"]
    assert len(told["nodes"][0]["tc"]) == 2
    macs = [mac for hosts in told["neighbours"].values() for mac in hosts.values()]
    assert len(set(macs)) == 6
    ports = {port_name(i, f"a-rather-long-host-name-{i}", rail) for i in range(1, 65) for rail in range(8)}
    assert len(ports) == 64 * 8
    assert max(map(len, ports)) <= 15


def test_a_data_plane_of_ipv6_has_its_own_benchmark_addresses():
    local = spec(rails=2, ip=6, congestion="cubic")
    plan, told = topology(local), document(local)
    assert plan.node("h2").addresses == ("2001:2::2", "2001:2:0:1::2")
    assert [str(rail.network) for rail in plan.node("h2").rails] == ["2001:2::/64", "2001:2:0:1::/64"]
    assert (plan.ip, topology(spec()).ip, told["ip"]) == (6, 4, 6)
    assert "addr add 2001:2:0:1::2/64 dev eth1 nodad" in told["nodes"][1]["ip"]
    assert "route replace 2001:2::/64 dev eth0 proto kernel metric 256 congctl cubic" in told["nodes"][1]["ip"]


def test_offloads_stay_only_where_asked_for():
    assert document(spec())["switch"]["plain"] == ["p-h1", "p-h2", "p-h3"]
    kept = document(spec(offloads=True))
    assert kept["switch"]["plain"] == kept["nodes"][0]["plain"] == []


def test_no_secret_is_readable_by_others_and_keys_are_new():
    files = document(spec())["nodes"][0]["files"]
    assert {mode for mode, _ in files.values()} == {0o600}
    assert new_keys() != new_keys()


def test_what_is_missing_is_named_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(netns_needs, "SBIN", ())
    monkeypatch.setattr(packages, "local_family", lambda: "ID=fedora\n")
    found = netns_needs.requirements_problems()
    assert ("the program ip is not installed", "sudo dnf install iproute") in found
    assert ("the program sshd is not installed", "sudo dnf install openssh-server") in found
    assert any("newuidmap" in what for what, _ in found) == (os.geteuid() != 0)


def test_connections_between_hosts_use_cubic_where_the_kernel_has_it(tmp_path, monkeypatch):
    told = document(spec(congestion="cubic"))
    (one,) = (node for node in told["nodes"] if node["name"] == "h1")
    assert one["ip"][-2:] == [
        "route replace 198.18.0.0/24 dev eth0 proto kernel scope link src 198.18.0.1 congctl cubic",
        "route replace table local local 198.18.0.1 dev eth0 proto kernel scope host src 198.18.0.1 congctl cubic",
    ]
    assert not [line for node in document(spec(congestion=None))["nodes"] for line in node["ip"] if "route" in line]
    known = tmp_path / "available"
    monkeypatch.setattr(local_spec, "CONGESTIONS", known)
    assert spec().congestion is None
    known.write_text("reno bbr cubic\n")
    assert spec().congestion == "cubic"
    known.write_text("reno bbr\n")
    assert spec().congestion is None
