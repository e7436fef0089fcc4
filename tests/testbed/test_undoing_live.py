"""Every kind of change, left by an agent that was killed: taken back where it stands, left alone where it does not."""

from __future__ import annotations

import shlex

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.execution.actions.changes import state
from orchestrator.parts.conditions import congestion_control, delay, ecn, firewall, link, loss, rate
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.local.local_spec import FabricSpec
from tests.helpers.machine import PATIENCE_S

pytestmark = [pytest.mark.testbed, pytest.mark.rights]


def changes(topology):
    """One of each kind on h1, two of some; on a fabric one of each kind of a link, on leaf1."""
    found = (
        [
            *rate.changes(rate.Config(link="leaf1-spine1", rate="50mbit"), topology),
            *delay.changes(delay.Config(link="leaf1-spine1", time="5ms"), topology),
            *loss.changes(loss.Config(link="leaf1-spine1", share="1%"), topology),
            *loss.changes(loss.Config(link="leaf1-h1", share="1%"), topology),
            *link.changes(link.Config(name="leaf1-spine2", down="1s", up="2s"), topology),
        ]
        if topology.fabric
        else [
            *congestion_control.changes(congestion_control.Config(algorithm="reno"), topology),
            *rate.changes(rate.Config(host="h1", rate="50mbit"), topology),
            *delay.changes(delay.Config(host="h1", time="5ms"), topology),
            *firewall.changes(firewall.Config(), topology),
            *loss.changes(loss.Config(host="h1", share="1%"), topology),
            *ecn.changes(ecn.Config(host="h1", share="1%"), topology),
        ]
    )
    return list({change.name: change for change in found if change.node == node_of(topology)}.values())


def node_of(topology):
    return "leaf1" if topology.fabric else "h1"


@pytest.fixture
def testbed(up):
    return up(3, rate=float("inf"), offloads=True)


@pytest.fixture
def fabric(up):
    return up(4, rate=float("inf"), fabric=FabricSpec(leaves=2, spines=2, hosts=2), uplink=float("inf"))


@pytest.fixture(params=["testbed", "fabric"])
def either(request):
    return request.getfixturevalue(request.param)


def soon():
    return Deadline.after(PATIENCE_S)


def agent(testbed, run):
    node = node_of(testbed.topology)
    channel = testbed.connect(node, soon())
    client = AgentClient(testbed.topology.node(node), channel, run=run, holder={}, on_event=lambda _: None)
    return client, client.hello(soon()).pid


def left_by_a_killed_agent(on, testbed, run):
    """The changes with the state before each, and the undo commands in the order in which they are to be run."""
    client, pid = agent(testbed, run)
    made, undo = [], []
    for change in changes(testbed.topology):
        old = state(client, change)
        steps = change.undo(old)
        client.change(change.name, soon(), undo=steps, apply=change.apply(old), presence=change.presence(old))
        assert state(client, change) == change.expect(old) != old, change.name
        made.append((change, old))
        undo = [*steps, *undo]
    on(testbed, node_of(testbed.topology), f"kill -9 {pid}")
    return made, undo


def test_what_stands_is_taken_back(on, either):
    made, _ = left_by_a_killed_agent(on, either, "r1")
    sweeping, _ = agent(either, "sweep")
    swept = sweeping.sweep(soon(), keep_data=False)
    assert (swept.failed, swept.already) == ((), ())
    assert swept.undone == tuple(change.name for change, _ in reversed(made))
    assert [state(sweeping, change) for change, _ in made] == [old for _, old in made]
    sweeping.close(soon())


def test_what_an_administrator_took_back_by_hand_is_undone_already(on, either):
    made, undo = left_by_a_killed_agent(on, either, "r1")
    on(either, node_of(either.topology), "; ".join(map(shlex.join, undo)))
    sweeping, _ = agent(either, "sweep")
    swept = sweeping.sweep(soon(), keep_data=False)
    assert (swept.failed, swept.undone) == ((), ())
    assert swept.already == tuple(change.name for change, _ in reversed(made))
    assert [state(sweeping, change) for change, _ in made] == [old for _, old in made]
    sweeping.close(soon())


def test_what_an_administrator_put_in_its_place_stays(up, on, testbed):
    left_by_a_killed_agent(on, testbed, "r1")
    on(testbed, "h1", "tc qdisc replace dev eth0 root tbf rate 7mbit burst 9000b limit 99999b")
    on(testbed, "h1", "sysctl -qw net.ipv4.tcp_ecn=0")
    sweeping, _ = agent(testbed, "sweep")
    swept = sweeping.sweep(soon(), keep_data=False)
    assert (swept.failed, set(swept.already)) == ((), {"rate of h1:eth0", "net.ipv4.tcp_ecn of h1"})
    assert "rate 7Mbit" in on(testbed, "h1", "tc qdisc show dev eth0")
    assert on(testbed, "h1", "sysctl -n net.ipv4.tcp_ecn") == "0\n"
    sweeping.close(soon())


def test_of_rules_that_were_removed_in_part_the_rest_is_removed(up, on, testbed):
    made, _ = left_by_a_killed_agent(on, testbed, "r1")
    ((held, old),) = ((change, old) for change, old in made if change.kind == "delay")
    on(testbed, "h1", shlex.join(held.undo(old)[0]))  # of two hosts' packets
    sweeping, _ = agent(testbed, "sweep")
    assert sweeping.sweep(soon(), keep_data=False).failed == ()
    assert state(sweeping, held) == old
    sweeping.close(soon())
