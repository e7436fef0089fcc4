"""Inventories of many hosts in few lines: node sets and hosts files, and mistakes in them."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import nodesets, opening
from tests.helpers.experiments import orch

BELOW = {"ssh": "{name}.lab", "data": {"address": "10.0.0.[1-3]/24", "device": "ens1f0"}}


def hosts(key, below=BELOW, folder=None):
    data = {"link": "25gbit", "hosts": {key: below}}
    return nodesets.expanded(data, [folder] if folder else [], where="rack.yaml")["hosts"]


def test_a_node_set_is_as_many_hosts_each_with_its_element_of_the_sets_below():
    found = hosts("n[08-10]")
    assert list(found) == ["n08", "n09", "n10"]
    assert found["n10"] == {"ssh": "n10.lab", "data": {"address": "10.0.0.3/24", "device": "ens1f0"}}
    two = hosts("r[1-2]-n[1-2]", {"ssh": "r[1-2]-n[1-2].lab"})
    assert [one["ssh"] for one in two.values()] == ["r1-n1.lab", "r1-n2.lab", "r2-n1.lab", "r2-n2.lab"]
    assert list(hosts("n[1-5/2]")) == ["n1", "n3", "n5"]


def test_what_is_no_set_stays_as_it_stands():
    one = {"ssh": "[fe80::1]", "data": {"address": "10.0.0.1/24", "device": "eth0"}}
    assert hosts("h1", one) == {"h1": one}


def test_a_hosts_file_has_a_host_a_line_and_its_slots(tmp_path):
    (tmp_path / "hosts.txt").write_text("# the lab's\nn1 slots=8\n\nn2 slots=4 max_slots=8  # half of it\nn3\n")
    found = hosts("@hosts.txt", folder=tmp_path)
    assert list(found) == ["n1", "n2", "n3"]
    assert [one.get("slots") for one in found.values()] == [8, 4, None]


@pytest.mark.parametrize(
    ("key", "below", "told"),
    [
        ("n[1-", BELOW, None),
        ("n[1-4]", BELOW, "10.0.0.[1-3]/24 stands for 3 values, and there are 4 hosts; accepted: as many"),
        ("n[1-99999]", BELOW, "99999 hosts; accepted: at most 4096"),
        ("n[3-1]", BELOW, "not a node set"),
        ("n[1-3]", {"ssh": "n[1-5000000]"}, "stands for 5000000 values; accepted: at most 4096"),
        ("@none.txt", BELOW, "no file none.txt"),
    ],
)
def test_mistakes_are_told_where_they_are(key, below, told):
    if told is None:
        assert list(hosts(key, below)) == [key]  # which the inventory then refuses as a name
        return
    with pytest.raises(ConfigError) as caught:
        hosts(key, below)
    assert str(caught.value).startswith(f"rack.yaml: hosts.{key}: ")
    assert told in str(caught.value)


def test_a_line_of_a_hosts_file_that_is_something_else_is_told(tmp_path):
    (tmp_path / "hosts.txt").write_text("n1 slots=8\nn2 ansible_host=10.0.0.2\n")
    with pytest.raises(ConfigError, match=r"hosts.txt:2: what is not NAME \[slots=N\]: n2 ansible_host"):
        hosts("@hosts.txt", folder=tmp_path)


def test_an_experiment_plans_the_ranks_that_slots_ask_for(tmp_path):
    (tmp_path / "hosts.txt").write_text("n[1-2] slots=2\n")
    (tmp_path / "rack.yaml").write_text(
        "link: 25gbit\nhosts:\n  '@hosts.txt':\n    ssh: '{name}.lab'\n"
        "    data: {address: '10.0.0.[1-2]/24', device: ens1f0}\n"
    )
    (tmp_path / "e.yaml").write_text(
        "name: t\ntestbed: {inventory: rack.yaml}\nworkload: {ddp: {model: resnet50}}\nmeasure: {iterations: 10}\n"
    )
    status, out, err = orch("plan", str(tmp_path / "e.yaml"))
    assert status == 0, err
    assert "ranks 0..1=n1, 2..3=n2" in out
    inventory = opening.inventory_or_experiment(tmp_path / "rack.yaml")
    assert [host.ssh for host in inventory.hosts.values()] == ["n1.lab", "n2.lab"]
