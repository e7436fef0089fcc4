from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.parts.conditions import ecn, loss, offloads
from orchestrator.parts.shared import packet_rules
from orchestrator.parts.topology import Link, Node, Rail, Topology
from orchestrator.validity import registry
from orchestrator.validity.gates import conditions
from tests.helpers import manifests
from tests.helpers.gate_windows import judged

DATA = Path(__file__).parents[2] / "data"


def sample(name):
    return (DATA / name).read_text()


def topology(*, port="p-{}", addresses=("198.18.0.1", "198.18.0.2")):
    nodes = tuple(
        Node(name=f"h{i}", rails=(Rail(address=address, device="eth0"),)) for i, address in enumerate(addresses, 1)
    )
    links = tuple(
        Link(host=node.name, device="eth0", switch="switch", switch_port=port.format(node.name), rate=25e9)
        for node in nodes
    )
    return Topology(kind="local", nodes=(*nodes, Node(name="switch", kind="switch")), links=links)


def rule_of(part, topology_, **options):
    return part.changes(part.Config(**{"host": "h2", "share": "1%", **options}), topology_)[-1]


def test_the_rule_is_where_the_file_says_and_the_hook_makes_a_silent_loss():
    """At the switch port as packets leave towards the host, on the host as they come in."""
    port = rule_of(loss, topology(), where="switch-port")
    nic = rule_of(loss, topology())
    assert [(change.node, change.name) for change in (port, nic)] == [
        ("switch", "loss at switch:p-h2"),
        ("h2", "loss at h2:eth0"),
    ]
    ((_, at_port),) = port.apply("absent")
    ((_, on_nic),) = nic.apply("absent")
    assert 'hook egress device "p-h2"' in at_port
    assert 'hook ingress device "eth0"' in on_nic
    assert "numgen random mod 1000000 < 10000 counter name hit drop" in on_nic
    assert on_nic.count("saddr") == 1
    assert port.undo("absent") == [("nft", "delete", "table", "netdev", "orch_loss_p_h2")]


def test_each_family_of_addresses_has_its_rule():
    change = rule_of(ecn, topology(addresses=("198.18.0.1", "fd00::2")))
    ((_, text),) = change.apply("absent")
    assert "ip saddr { 198.18.0.1 } ip daddr { 198.18.0.1 } ip ecn != not-ect" in text
    assert "ip6 saddr { fd00::2 } ip6 daddr { fd00::2 } ip6 ecn != not-ect" in text
    assert text.count("ip6 ecn set ce") == 1


@pytest.mark.parametrize(
    ("part", "share", "name"),
    [(loss, "20%", "loss/ruleset-with-ecn-too.txt"), (ecn, "2.5%", "ecn/ruleset-with-others.txt")],
)
def test_what_nft_lists_after_the_change_is_what_was_expected(part, share, name):
    change = rule_of(part, topology(), share=share)
    assert change.parse(sample(name)) == change.expect("absent")
    assert rule_of(part, topology(), share="3%").expect("absent") != change.expect("absent")


def test_foreign_tables_are_left_alone_and_a_table_of_that_name_is_refused():
    change = rule_of(loss, topology())
    assert change.parse(sample("loss/ruleset-foreign.txt")) == change.parse("") == "absent"
    with pytest.raises(ValueError, match="nft delete table netdev orch_loss_eth0"):
        change.apply(change.parse(sample("loss/ruleset-with-ecn-too.txt")))
    mixed = "table netdev orch_loss_eth0 {\n\tchain out {\n\t\tcounter drop\n\t}\n}\n"
    with pytest.raises(ValueError, match="rules that are not ours"):
        change.parse(mixed)


def test_counters_are_read_and_nonsense_is_refused():
    seen, hit = packet_rules.parse_counters(sample("loss/counters.json"))
    assert 0 < hit < seen
    for nonsense in ("", "{}", '{"nftables": [{"counter": {"name": "seen"}}]}'):
        with pytest.raises(ValueError, match="counters cannot be read"):
            packet_rules.parse_counters(nonsense)


def test_offloads_that_hide_packets_are_off_meanwhile_and_come_back_as_they_were():
    *offloads, _ = loss.changes(loss.Config(host="h2", share="1%"), topology())
    assert [change.node for change in offloads] == ["h1", "h2"]
    change = offloads[0]
    old = change.parse(sample("loss/offloads.txt"))
    assert old == "tso on gso on gro off"
    assert change.expect(old) == "tso off gso off gro off"
    assert change.undo(old) == [("ethtool", "-K", "eth0", "tso", "on", "gso", "on", "gro", "off")]
    with pytest.raises(ValueError, match="ethtool does not tell"):
        change.parse("Features for eth0:\n")


def test_ecn_is_asked_for_on_every_host():
    asking = [
        change for change in ecn.changes(ecn.Config(host="h2", share="1%"), topology()) if "ecn of" in change.name
    ]
    assert [change.node for change in asking] == ["h1", "h2"]
    assert asking[0].undo(asking[0].parse("2\n")) == [("sysctl", "-q", "-w", "net.ipv4.tcp_ecn=2")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"host": "h9"}, "no host 'h9'"),
        ({"share": "100%"}, "no share to take"),
        ({"share": "0.00001%"}, "no share to take"),
    ],
)
def test_problems_name_what_would_do(options, said):
    (problem,) = loss.problems(loss.Config(**{"host": "h2", "share": "1%", **options}), topology())
    assert said in problem.message
    assert problem.accepted


def test_a_switch_without_an_agent_cannot_lose_packets():
    (problem,) = loss.problems(loss.Config(host="h2", share="1%", where="switch-port"), topology(port=""))
    assert "no agent runs on the switch" in problem.message


def hits(**values):
    usual = {"node": "h2", "name": "loss at h2:eth0", "share": 0.01, "seen": 100_000, "hit": 1000}
    (gate,) = judged(conditions, manifest=manifests.made(hits=[{**usual, **values}]))
    return gate


@pytest.mark.parametrize("part", [loss, ecn])
def test_a_share_of_nothing_changes_offloads_alone(part):
    config = part.Config(host="h2", share="0%")
    assert part.problems(config, topology()) == []
    some = part.changes(part.Config(host="h2", share="1%"), topology())
    assert [change.name for change in part.changes(config, topology())] == [change.name for change in some[:-1]]
    assert "nft" not in {need.what for need in part.requirements(config, topology())}


@pytest.mark.parametrize(("hit", "passed"), [(1000, True), (1120, True), (1130, False), (870, False), (0, False)])
def test_a_share_must_be_hit_within_what_chance_allows(hit, passed):
    assert hits(hit=hit).passed is passed


def test_too_few_packets_are_told_and_not_held_against_the_window():
    gate = hits(seen=100, hit=0)
    assert (gate.passed, gate.required) == (None, False)
    assert "too few to judge" in gate.message
    assert registry.valid([gate])
    assert hits(seen=0, hit=0).passed is None


def test_two_places_share_what_both_need(tmp_path):
    from tests.helpers.experiments import GOOD, orch

    two = "conditions:\n  - loss: {host: h1, share: 1%}\n  - loss: {host: h2, share: 1%}\n"
    path = tmp_path / "e.yaml"
    path.write_text(GOOD + two)
    status, out, err = orch("plan", str(path), "--verbose")
    assert status == 0, err
    assert out.count("change: offloads of h1:eth0 on h1") == 1
    assert out.count("change: loss at") == 2
    path.write_text(GOOD + two.replace("h2", "h1"))
    status, _, err = orch("plan", str(path))
    assert status == 2
    assert "conditions.1: an earlier condition sets the loss at h1:eth0 already" in err


def test_the_share_of_a_rule_is_whole_millionths():
    change = rule_of(loss, topology(), share="0.0125%")
    assert change.expect("absent") == "drop 125 of 1000000"


def test_only_receive_offloads_that_the_driver_lets_change_are_switched():
    nic = "tcp-segmentation-offload: on\ngeneric-segmentation-offload: on\ngeneric-receive-offload: on\n"
    (change, *_) = offloads.changes(offloads.Config(state="off"), topology())
    assert change.parse(nic + "large-receive-offload: off [fixed]\n") == "tso on gso on gro on"
    old = change.parse(nic + "large-receive-offload: on\nrx-gro-hw: on [fixed]\n")
    assert old == "tso on gso on gro on lro on"
    assert change.apply(old) == [("ethtool", "-K", "eth0", "tso", "off", "gso", "off", "gro", "off", "lro", "off")]
    assert change.undo(old) == [("ethtool", "-K", "eth0", *old.split())]


def test_offloads_are_switched_off_once_for_all_conditions(tmp_path):
    from tests.helpers.experiments import GOOD, orch

    path = tmp_path / "e.yaml"
    path.write_text(GOOD + "conditions:\n  - offloads: off\n  - loss: {host: h1, share: 1%}\n")
    status, out, err = orch("plan", str(path), "--verbose")
    assert status == 0, err
    assert out.count("change: offloads of h1:eth0 on h1") == 1
    path.write_text(GOOD + "conditions:\n  - offloads: {state: off, hosts: [h9]}\n")
    status, _, err = orch("plan", str(path))
    assert status == 2
    assert "conditions.0.offloads.hosts.0: the testbed has no host 'h9'" in err
