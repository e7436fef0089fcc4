from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from orchestrator.parts.conditions import congestion_control, delay, rate
from orchestrator.parts.shared import token_bucket
from orchestrator.parts.topology import Link, Node, Rail, Topology

DATA = Path(__file__).parents[2] / "data"


def sample(name):
    return (DATA / ("rate" if name.startswith("qdisc") else "congestion-control") / name).read_text()


def topology(**more):
    nodes = tuple(Node(name=f"h{i}", rails=(Rail(address=f"198.18.0.{i}", device="eth0"),)) for i in (1, 2))
    links = tuple(
        Link(host=n.name, device="eth0", switch="switch", switch_port=f"p-{n.name}", rate=25e9) for n in nodes
    )
    values = {"kind": "local", "nodes": (*nodes, Node(name="switch", kind="switch")), "links": links, "scale": 100}
    return Topology(**{**values, **more})


# --- rate


def test_a_kernels_default_is_restored_by_deletion():
    for name in ("qdisc-noqueue.json", "qdisc-pfifo-fast.json", "qdisc-clsact.json"):
        assert token_bucket.parse(sample(name)) == "default"
    (change,) = rate.changes(rate.Config(host="h1", rate="10gbit"), topology())
    assert change.undo("default") == [("tc", "qdisc", "del", "dev", "eth0", "root")]


def test_a_bucket_is_restored_by_its_own_numbers():
    old = token_bucket.parse(sample("qdisc-tbf-100mbit.json"))
    assert old == "tbf rate 12500000 depth 40960 limit 100000"
    (change,) = rate.changes(rate.Config(host="h1", rate="10gbit"), topology())
    (undo,) = change.undo(old)
    words = dict(zip(undo[7::2], undo[8::2], strict=True))
    assert words == {"rate": "100000000bit", "burst": "32768b", "limit": "100000b"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qdisc-pfifo.json", "pfifo"),
        ("qdisc-tbf-with-child.json", "tbf with bfifo"),
        ("qdisc-tbf-peakrate.json", "mtu_raw"),
    ],
)
def test_what_could_not_be_put_back_is_refused(name, said):
    with pytest.raises(ValueError, match=said):
        token_bucket.parse(sample(name))


def test_a_rate_is_divided_by_the_scale_and_set_where_the_file_says():
    (nic,) = rate.changes(rate.Config(host="h1", rate="10gbit"), topology())
    (port,) = rate.changes(rate.Config(host="h1", rate="10gbit", where="switch-port"), topology())
    assert (nic.node, nic.read[-1]) == ("h1", "eth0")
    assert (port.node, port.read[-1]) == ("switch", "p-h1")
    (apply,) = nic.apply("default")
    assert "100000000bit" in apply
    assert nic.expect("default").startswith("tbf rate 12500000 ")
    needs = rate.requirements(rate.Config(host="h1", rate="1gbit", where="switch-port"), topology())
    assert {need.node for need in needs} == {"switch"}


def test_depth_and_queue_grow_with_the_rate_and_never_starve():
    sizes = [token_bucket.bucket(bps, queue_s=0.005, mtu=1500) for bps in (1e6, 1e8, 5e8, 1e9, 5e9, 1e11)]
    depths = [size.depth_bytes for size in sizes]
    assert depths[:3] == [pytest.approx(wanted, rel=2e-3) for wanted in (16 * 1514 / 2, 31250, 32768)]
    assert depths[3:] == [pytest.approx(bps / 8 * 0.5e-3, rel=2e-3) for bps in (1e9, 5e9, 1e11)]
    assert sizes[0].limit_bytes == 16 * 1514
    assert sizes[3].limit_bytes == 625_000
    assert token_bucket.bucket(1e8, queue_s=0.005, mtu=1500, offloads=True).depth_bytes == pytest.approx(
        131072, rel=1e-3
    )


@pytest.mark.parametrize("bps", [1e6, 33e6, 123456789, 1e8, 1.25e8, 1e9, 2.5e9, 1e10, 99999999999])
def test_a_depth_read_from_the_kernel_is_asked_for_again(bps):
    size = token_bucket.bucket(bps, queue_s=0.005, mtu=1500)
    kernel_ticks = math.floor(size.depth_bytes / size.rate * 1e9 / 64)
    assert kernel_ticks == size.depth_ticks


def test_problems_of_a_rate_name_what_would_do():
    (unknown,) = rate.problems(rate.Config(host="h9", rate="1gbit"), topology())
    assert (unknown.at, unknown.accepted) == (("host",), "one of h1, h2")
    (fast,) = rate.problems(rate.Config(host="h1", rate="40gbit"), topology())
    assert "40gbit" in fast.message
    assert "25gbit" in fast.accepted
    declared = topology(links=(Link(host="h1", device="eth0", rate=25e9),))
    (nothing,) = rate.problems(rate.Config(host="h1", rate="1gbit", where="switch-port"), declared)
    assert nothing.at == ("where",)
    assert rate.problems(rate.Config(host="h1", rate="10gbit"), topology()) == []


# --- congestion control


def change_of(algorithm="cubic"):
    first, *_ = congestion_control.changes(congestion_control.Config.model_validate(algorithm), topology())
    return first


@pytest.mark.parametrize(
    "name", ["route-plain.txt", "route-cubic-and-gateway.txt", "route-locked.txt", "route-two-addresses.txt"]
)
def test_the_old_route_is_put_back_word_for_word(name):
    change, output = change_of("bbr"), sample(name)
    old = change.parse(output)
    (undo,) = change.undo(old)
    line = output.splitlines()[0].split()
    assert undo == ("ip", "route", "replace", line[0], "dev", "eth0", *line[1:])
    (apply,) = change.apply(old)
    assert apply[-2:] == ("congctl", "bbr")
    assert apply.count("congctl") == 1
    assert {"proto", "scope", "src"} < set(apply)
    assert change.expect(old) == " ".join((apply[3], *apply[6:]))


def test_the_route_of_a_host_to_itself_is_changed_and_put_back_in_the_table_local():
    _, own, *others = congestion_control.changes(congestion_control.Config(algorithm="bbr"), topology())
    assert own.name == "congestion control of h1:eth0 to itself"
    assert len(others) == 2, "both of h2"
    assert own.read == ("ip", "route", "show", "table", "local", "dev", "eth0")
    for name in ("own-plain.txt", "own-cubic.txt"):
        old = own.parse(sample(name))
        (undo,) = own.undo(old)
        assert undo[:6] == ("ip", "route", "replace", "table", "local", "local")
        assert ("local", *undo[6:7], *undo[9:]) == tuple(sample(name).splitlines()[0].split())
        (apply,) = own.apply(old)
        assert apply[-2:] == ("congctl", "bbr")
        assert own.expect(old) == " ".join((apply[6], *apply[9:]))
        assert not re.search(own.presence(old).pattern, sample(name), flags=re.MULTILINE)
    assert own.expect(own.parse(sample("own-plain.txt"))).replace("bbr", "cubic") == own.parse(sample("own-cubic.txt"))
    with pytest.raises(ValueError, match="0 routes of the table local lead to"):
        own.parse("broadcast 198.18.0.255 proto kernel scope link src 198.18.0.1 \n")


def test_a_state_read_after_the_change_is_what_was_expected():
    change = change_of("cubic")
    assert change.expect(change.parse(sample("route-plain.txt"))) == change.parse(sample("route-cubic-and-gateway.txt"))


def test_passing_status_of_a_route_is_no_part_of_its_state():
    change = change_of()
    assert change.parse(sample("route-linkdown.txt")) == change.parse(sample("route-locked.txt"))


def test_a_route_that_could_not_be_put_back_is_refused():
    with pytest.raises(ValueError, match="nexthop"):
        change_of().parse("198.18.0.0/24 proto kernel scope link src 198.18.0.1 nexthop dev eth0\n")
    with pytest.raises(ValueError, match="0 connected routes"):
        change_of().parse("")


def test_shorthand_hosts_and_bad_names():
    either = TypeAdapter(congestion_control.Config)
    assert either.validate_python("bbr") == congestion_control.Config(algorithm="bbr")
    config = either.validate_python({"algorithm": "reno", "hosts": ["h2"]})
    assert [change.node for change in congestion_control.changes(config, topology())] == ["h2", "h2"]
    assert {need.node for need in congestion_control.requirements(config, topology())} == {"h2"}
    (problem,) = congestion_control.problems(congestion_control.Config(algorithm="bbr", hosts=("h1", "h7")), topology())
    assert problem.at == ("hosts", 1)
    with pytest.raises(ValidationError):
        either.validate_python("cubic; reboot")


# --- delay


def rules(name="rules.txt"):
    return (DATA / "delay" / name).read_text()


def test_whose_packets_are_held_is_read_back():
    assert delay.parse("-P PREROUTING ACCEPT\n") == "absent"
    assert delay.parse("-P PREROUTING ACCEPT\n-A PREROUTING -j NFQUEUE --queue-num 207181\n") == "absent"
    assert delay.parse(rules()) == "held from 127.0.0.3 127.0.0.4"
    assert delay.parse(rules("rules-ipv6.txt")) == "held from fd00::3"
    with pytest.raises(ValueError, match="not ours"):
        delay.parse("-P PREROUTING ACCEPT\n-A PREROUTING -j NFQUEUE --queue-num 20718\n")


def test_a_queue_that_is_in_use_is_refused():
    (change,) = delay.changes(delay.Config(host="h2", time="5ms"), topology())
    with pytest.raises(ValueError, match="in use already"):
        change.apply("held from 198.18.0.1")
    assert change.expect("absent") == "held from 198.18.0.1"


def test_rules_are_taken_back_one_by_one():
    (change,) = delay.changes(delay.Config(host="h2", time="5ms"), topology())
    (added,), (gone,) = change.apply("absent"), change.undo("absent")
    assert [(a, b) for a, b in zip(added, gone, strict=True) if a != b] == [("-A", "-D")]


@pytest.mark.parametrize("time", ["0s", "-1ms", "11s", "5"])
def test_a_delay_is_a_time_that_packets_can_be_held(time):
    with pytest.raises(ValidationError):
        delay.Config(host="h2", time=time)
