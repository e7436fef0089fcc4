"""Fabrics as plain data: what files may ask for, the topology, and the set-up of switches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.experiment import testbeds
from orchestrator.parts.collectors import paths
from orchestrator.parts.conditions import delay, ecn, link, loss, rate
from orchestrator.parts.shared import fabric_links
from orchestrator.testbed import inventory
from orchestrator.testbed.local.local_spec import LocalTestbed
from orchestrator.testbed.local.netns import topology
from orchestrator.testbed.local.netns_setup import new_keys, setup_document

FABRIC = {"leaves": 3, "spines": 2, "hosts": 2, "oversubscription": 2}


def local(**more):
    return LocalTestbed.model_validate({"fabric": FABRIC, "link": "25gbit", "scale": 100, **more})


def plan(**more):
    return topology(testbeds.local_spec(local(**more)))


def rack(**more):
    return inventory.topology(
        inventory.Inventory.model_validate(
            {
                "link": "25gbit",
                "hosts": {
                    f"n{i}": {"ssh": f"n{i}", "data": {"address": f"10.0.0.{i}/24", "device": "eth0"}} for i in (1, 2)
                },
                "fabric": {"leaves": {"a": ["n1"], "b": ["n2"]}, "spines": ["s", "t"], "uplink": "100gbit", **more},
            }
        )
    )


def test_uplinks_have_the_rate_that_oversubscription_leaves_them():
    fabric = plan().fabric
    assert {uplink.rate for uplink in fabric.uplinks} == {2 * 25e9 / 2 / 2}
    assert [uplink.name for uplink in fabric.uplinks_of("leaf3")] == ["leaf3-spine1", "leaf3-spine2"]
    assert {plan(fabric={"leaves": 2, "spines": 2, "hosts": 2, "uplink": "10gbit"}).fabric.uplinks[0].rate} == {10e9}


def test_hosts_hang_on_leaves_in_their_order_and_switches_are_nodes():
    found = plan()
    assert [link.switch for link in found.links] == ["leaf1", "leaf1", "leaf2", "leaf2", "leaf3", "leaf3"]
    assert [node.name for node in found.nodes if node.kind == "switch"] == [
        *("leaf1", "leaf2", "leaf3"),
        *("spine1", "spine2"),
    ]
    assert [host.name for host in plan(hosts=["a", "b", "c", "d", "e", "f"]).hosts] == list("abcdef")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"fabric": None}, "is missing"),
        ({"hosts": 5}, "5 hosts, and the fabric has 3 leaves of 2"),
        ({"rails": 2}, "2 has no fabric"),
        ({"ip": 6}, "6 has no fabric"),
        ({"runtime": "podman"}, "podman has no fabric"),
        ({"hosts": ["leaf1", "b", "c", "d", "e", "f"]}, "'leaf1' is a switch of the fabric"),
        ({"fabric": {**FABRIC, "multipath": {"hash": "per-packet"}}}, "none per-packet"),
        ({"fabric": {**FABRIC, "uplink": "1gbit"}}, "stands beside oversubscription"),
        ({"fabric": {**FABRIC, "hosts": 32}}, "3 leaves of 32 hosts are 96 hosts"),
        ({"fabric": {**FABRIC, "oversubscription": 100}, "scale": 1000}, "less than 1mbit"),
    ],
)
def test_what_no_fabric_can_be_is_refused_with_the_reason(more, says):
    with pytest.raises(ValidationError, match=says):
        local(**more)


def test_a_switch_alone_is_set_up_as_if_there_were_no_fabrics():
    """Neighbours by device, bridges, and a node that has the sandbox's own network."""
    spec = testbeds.local_spec(LocalTestbed.model_validate({"hosts": 2, "link": "1gbit"}))
    folders = {node.name: Path("/x") / node.name for node in topology(spec).nodes}
    document = setup_document(spec, keys=new_keys(), folders=folders, sshd="/usr/sbin/sshd", limit_s=1.0)
    assert [(node["name"], node["network"], node["first"]) for node in document["nodes"]] == [
        *(("h1", True, False), ("h2", True, False), ("switch", False, False))
    ]
    assert document["neighbours"]["eth0"] == {"198.18.0.1": "02:00:c6:12:00:01", "198.18.0.2": "02:00:c6:12:00:02"}
    assert any("type bridge" in line for line in document["switch"]["ip"])


def test_every_mac_of_a_fabric_is_its_own_and_every_neighbour_has_one():
    spec = testbeds.local_spec(local())
    folders = {node.name: Path("/x") / node.name for node in topology(spec).nodes}
    document = setup_document(spec, keys=new_keys(), folders=folders, sshd="/usr/sbin/sshd", limit_s=1.0)
    made = [line.split() for node in document["nodes"] for line in node["links"]]
    macs = [words[at + 1] for words in made for at, word in enumerate(words) if word == "address"]
    assert len(set(macs)) == len(macs) == 2 * (6 + 6)
    known = {line.split()[4] for node in document["nodes"] for line in node["ip"] if line.startswith("neigh")}
    assert known <= set(macs)
    assert {node["name"] for node in document["nodes"] if node["first"]} == {"spine1", "spine2"}
    assert document["switch"] == {"ip": [], "tc": [], "plain": []}


def test_conditions_know_links_by_name_and_say_what_is_wrong():
    found = plan()
    assert next(iter(fabric_links.links(found))) == "leaf1-spine1"
    assert rate.problems(rate.Config(link="leaf1-spine2", rate="10gbit"), found) == []
    (fast,) = rate.problems(rate.Config(link="leaf1-spine2", rate="20gbit"), found)
    assert "12.5gbit" in fast.accepted
    (absent,) = loss.problems(loss.Config(link="leaf1-spine9", share="1%"), found)
    assert "leaf1-spine9" in absent.message
    (host,) = link.problems(link.Config(name="leaf1-h1", down="1s", up="2s"), found)
    assert "between a leaf and a spine" in host.message
    (only,) = link.problems(
        link.Config(name="leaf1-spine1", down="1s", up="2s"), plan(fabric={"leaves": 2, "spines": 1, "hosts": 1})
    )
    assert "only spine" in only.message
    with pytest.raises(ValidationError, match="a host and a link"):
        rate.Config(host="h1", link="leaf1-h1", rate="1gbit")
    with pytest.raises(ValidationError, match="neither"):
        delay.Config(time="1ms")
    with pytest.raises(ValidationError, match="not after down"):
        link.Config(name="leaf1-spine1", down="2s", up="1s")


@pytest.mark.parametrize(
    "config",
    [
        rate.Config(link="leaf1-spine1", rate="10gbit"),
        loss.Config(link="leaf1-spine1", share="1%"),
        delay.Config(link="leaf1-spine1", time="1ms"),
        ecn.Config(link="leaf1-spine1", threshold="1mb"),
        link.Config(name="leaf1-spine1", down="1s", up="2s"),
    ],
    ids=lambda config: config.__class__.__module__.rpartition(".")[2],
)
def test_a_condition_of_a_link_is_read_again_as_a_run_records_it(config):
    """With its defaults: else `orch recover` could not read what a killed run has left."""
    recorded = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert type(config).model_validate(recorded) == config


def test_an_end_of_a_hosts_link_stands_beside_no_link():
    for part, more in ((rate, {"rate": "1gbit"}), (loss, {"share": "1%"}), (ecn, {"share": "1%"})):
        for end in ("nic", "switch-port"):
            with pytest.raises(ValidationError, match="beside link"):
                part.Config(link="leaf1-spine1", where=end, **more)
    with pytest.raises(ValidationError, match="beside link"):
        rate.Config(link="leaf1-spine1", rail=0, rate="1gbit")


def test_an_inventory_names_a_fabric_on_which_nothing_is_changed():
    found = rack()
    assert [one.switch for one in found.links] == ["a", "b"]
    assert [uplink.name for uplink in found.fabric.uplinks] == ["a-s", "a-t", "b-s", "b-t"]
    (mute,) = rate.problems(rate.Config(link="a-s", rate="10gbit"), found)
    assert mute.message == "no agent runs on a and s, so nothing can be set there"
    assert "no agent runs" in paths.problems(paths.Config(), found)[0].message
    assert "no agent runs" in link.problems(link.Config(name="a-s", down="1s", up="2s"), found)[0].message


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"leaves": {"a": ["n1"], "b": ["n1", "n2"]}}, "hangs on two leaves"),
        ({"leaves": {"a": ["n1"], "b": []}}, "'n2' hangs on no leaf"),
        ({"leaves": {"a": ["n1"], "b": ["n2", "n3"]}}, "n3"),
        ({"spines": ["a"]}, "stands here twice"),
    ],
)
def test_a_host_of_an_inventory_hangs_on_one_leaf(more, says):
    with pytest.raises(ValidationError, match=says):
        rack(**more)
