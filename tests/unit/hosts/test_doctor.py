"""What the doctor says of hosts, by agents of this machine that stand for them."""

from __future__ import annotations

import contextlib
import socket

import pytest

from orchestrator.execution.nodes import routes
from orchestrator.experiment import loading, plan
from orchestrator.hosts import doctor
from orchestrator.parts.topology import Link, Node, Rail, Topology
from orchestrator.remote.transport.local import LocalChannel
from orchestrator.testbed import inventory
from tests.helpers.experiments import GOOD


class Here:
    """A testbed whose hosts are this machine."""

    def __init__(self, topology):
        self.topology = topology

    def open(self, run_folder, deadline):
        pass

    def connect(self, node, deadline):
        return LocalChannel()

    def close(self):
        pass


@pytest.fixture
def examined(tmp_path, monkeypatch, capsys):
    """The doctor's status and words about hosts with these addresses and devices."""
    monkeypatch.setattr(doctor, "LOAD_LOOK_S", 0.01)

    def examine(*ends, needs=()):
        nodes = tuple(
            Node(name=f"h{i}", rails=(Rail(address=address, device=device),), work=str(tmp_path / "work"))
            for i, (address, device) in enumerate(ends, 1)
        )
        links = tuple(Link(host=node.name, device=node.first.device, rate=1e9) for node in nodes)
        topology = Topology(kind="inventory", nodes=nodes, links=links, mtu=65536)
        required = tuple(
            need for need in inventory.requirements(topology, [n.name for n in nodes]) if need.kind in needs
        )
        status = doctor._hosts(Here(topology), topology, required)
        assert not (tmp_path / "work").exists()
        return status, capsys.readouterr().out

    return examine


def test_hosts_whose_traffic_takes_the_data_plane_are_well(examined):
    status, out = examined(("127.0.0.1", "lo"), ("127.0.0.2", "lo"), needs=("program", "link"))
    assert status == 0, out
    assert out.count(": ok, 2 requirements met") == 2


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (("203.0.113.9", "lo"), "h2: no route from 203.0.113.9 to 127.0.0.1 (h1)\n    remedy: bring up lo with its"),
        (("127.0.0.2", "eth9"), "h2: traffic to 127.0.0.1 (h1) would not leave by eth9: "),
    ],
)
def test_an_address_elsewhere_and_devices_mistaken_are_found(examined, second, told):
    status, out = examined(("127.0.0.1", "lo"), second)
    assert status == 1
    assert told in out
    assert "h2: ok" not in out


def test_a_device_that_is_not_there_has_no_link(examined):
    status, out = examined(("127.0.0.1", "lo"), ("127.0.0.2", "eth9"), needs=("link",))
    assert status == 1
    assert "h2: missing link eth9, needed by the data plane (there is no such device)" in out


def test_everybody_talks_to_all_others_where_no_experiment_says_more():
    nodes = tuple(Node(name=name, rails=(Rail(address="10.0.0.1"),)) for name in "abc")
    found = routes.everybody(Topology(kind="inventory", nodes=nodes, links=()))
    assert found == {"a": ["b", "c"], "b": ["a", "c"], "c": ["a", "b"]}


@pytest.mark.parametrize("port", [15201, 29500])
def test_ports_of_a_run_on_which_somebody_listens_are_found(tmp_path, monkeypatch, capsys, port):
    """What the plan would listen on: of cross traffic and of the ranks' rendezvous."""
    monkeypatch.setattr(doctor, "LOAD_LOOK_S", 0.01)
    (tmp_path / "e.yaml").write_text(GOOD)
    (run,) = plan.build(loading.checked(tmp_path / "e.yaml", [], local=False).experiment)
    asked = {(need.node, need.what, need.needed_by) for need in run.requirements if need.kind == "port"}
    assert asked == {("h2", "15201", "iperf"), ("h1", "29500", "ddp")}
    node = "h2" if port == 15201 else "h1"
    nodes = tuple(
        Node(name=name, rails=(Rail(address="127.0.0.1", device="lo"),), work=str(tmp_path / "work"))
        for name in ("h1", "h2")
    )
    topology = Topology(kind="inventory", nodes=nodes, links=(), mtu=65536)
    needs = tuple(need for need in run.requirements if need.kind == "port")
    with contextlib.ExitStack() as listening:
        with contextlib.suppress(OSError):  # somebody listens there already
            listening.enter_context(socket.create_server(("127.0.0.1", port)))
        assert doctor._hosts(Here(topology), topology, needs) == 1
    out = capsys.readouterr().out
    assert f"{node}: missing port {port}, needed by " in out
    assert "listens there)\n    remedy: end what listens there" in out
