"""The condition firewall: what it lets in, what it leaves alone, and that it knows its own table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.parts.conditions import firewall
from orchestrator.parts.shared import packet_rules
from orchestrator.parts.topology import KNOWN_PORTS, Link, Node, Rail, Topology

DATA = Path(__file__).parents[2] / "data/firewall"
ADDRESSES = ("198.18.0.1", "198.18.0.2", "198.18.0.3", "fd00::4")  # those of the sample
PORTS = (7000, "11001-11500")


def topology(addresses=ADDRESSES):
    nodes = tuple(
        Node(name=f"h{i}", rails=(Rail(address=address, device="eth0"),)) for i, address in enumerate(addresses, 1)
    )
    links = tuple(Link(host=node.name, device=node.first.device, rate=25e9) for node in nodes)
    return Topology(kind="inventory", nodes=nodes, links=links)


def changes(addresses=ADDRESSES, **options):
    return firewall.changes(firewall.Config(**options), topology(addresses))


def table(**options):
    change, *_ = changes(**options)
    ((program, text),) = change.apply("absent")
    assert program == "nft"
    return text


def test_what_nft_lists_after_the_change_is_what_was_expected():
    listed = (DATA / "ruleset-with-others.txt").read_text()
    change, *_ = changes(ports=PORTS)
    assert change.parse(listed) == change.expect("absent")
    for other in ({"ports": (7001, "11001-11500")}, {"addresses": ADDRESSES[:3], "ports": PORTS}):
        (different, *_) = changes(**other)
        assert different.parse(listed) != different.expect("absent")


@pytest.mark.parametrize(
    ("ours", "changed"),
    [
        ('counter name "hit" drop', 'counter name "hit" accept'),
        ('iifname "eth0" ip saddr @ipv4 accept', 'iifname "eth0" accept'),
        ('iifname != "lo" tcp dport @ports tcp flags syn / syn,ack', "tcp dport @ports"),
        ('\t\tcounter name "seen"\n', '\t\tcounter name "seen"\n\t\taccept\n'),
    ],
)
def test_a_rule_that_was_changed_is_told(ours, changed):
    listed = (DATA / "ruleset-with-others.txt").read_text()
    assert ours in listed
    with pytest.raises(ValueError, match="rules that are not ours"):
        firewall.parse(listed.replace(ours, changed))


def test_foreign_tables_are_left_alone_and_a_table_of_that_name_is_refused():
    change, *_ = changes()
    assert change.parse((DATA / "ruleset-foreign.txt").read_text()) == change.parse("") == "absent"
    with pytest.raises(ValueError, match="nft delete table inet orch_firewall"):
        change.apply(change.parse((DATA / "ruleset-with-others.txt").read_text()))
    assert change.undo("absent") == [("nft", "delete", "table", "inet", "orch_firewall")]


def test_only_what_opens_a_tcp_connection_to_a_port_of_the_run_is_looked_at():
    """So nothing that is connected, and no port below 1024, can be cut off."""
    rules = table()
    assert 'iifname != "lo" tcp dport @ports tcp flags & (syn | ack) == syn goto guard' in rules
    assert rules.count("drop") == 1
    assert "policy accept" in rules
    assert "elements = { 10000-11000, 15201-16224, 20000-20999, 29500-30599, 38080 }" in rules


def test_ranges_that_touch_become_one():
    assert "elements = { 7000, 10000-11500, 15201-16224," in table(ports=PORTS)
    assert "elements = { 10000-11000, 15201-30599, 38080 }" in table(ports=("16000-29600",))


def test_each_host_lets_all_hosts_of_the_testbed_in_whatever_hosts_are_guarded():
    assert [change.node for change in changes()] == ["h1", "h2", "h3", "h4"]
    (only,) = changes(hosts=("h2",))
    ((_, text),) = only.apply("absent")
    assert (only.node, only.name) == ("h2", "firewall of h2")
    assert "198.18.0.1, 198.18.0.2, 198.18.0.3" in text
    assert "fd00::4" in text
    assert "@ipv6" not in table(addresses=ADDRESSES[:3])


def test_what_was_refused_is_counted():
    change, *_ = changes()
    assert change.hits.share is None
    assert packet_rules.parse_counters((DATA / "counters.json").read_text()) == (5, 2)


@pytest.mark.parametrize(
    ("options", "at", "said"),
    [
        ({"hosts": ("h9",)}, ("hosts", 0), "no host 'h9'"),
        ({"ports": (22,)}, ("ports", 0), "22 are no ports of a run"),
        ({"ports": (7000, "1-65535")}, ("ports", 1), "1-65535 are no ports of a run"),
        ({"ports": ("9000-8000",)}, ("ports", 0), "9000-8000 are no ports of a run"),
        ({"ports": (65536,)}, ("ports", 0), "65536 are no ports of a run"),
    ],
)
def test_problems_name_what_would_do(options, at, said):
    (problem,) = firewall.problems(firewall.Config(**options), topology())
    assert problem.at == at
    assert said in problem.message
    assert problem.accepted


@pytest.mark.parametrize("ports", ["all", "7000-", "7000; drop", "-7000"])
def test_what_is_no_range_is_refused(ports):
    with pytest.raises(ValidationError):
        firewall.Config(ports=(ports,))


def test_known_ports_are_none_of_the_hosts_own():
    assert all(1024 <= first <= last <= 65535 for first, last in KNOWN_PORTS)
