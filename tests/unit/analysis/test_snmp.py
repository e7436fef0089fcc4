"""Counters of switches over SNMP: what is asked and by whom, what an answer becomes, and the gate on losses."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.windows import device_counters
from orchestrator.parts.collectors import snmp
from orchestrator.parts.rows import TABLES
from orchestrator.parts.samplers import AGENTS
from orchestrator.testing import TOPOLOGIES
from orchestrator.validity.gates import congestion
from tests.helpers.gate_windows import judged
from tests.helpers.made_tables import table

TOPOLOGY = TOPOLOGIES["inventory"]
V2C = {"address": "10.0.9.1", "community_from": "LEAF", "ports": ["Ethernet1"]}
V3 = {"address": "leaf2.mgmt", "user": {"name": "watcher", "auth_from": "AUTH", "privacy_from": "./privacy"}}
SECOND = 10**9
SPAN = (1_795_000_000 * SECOND, 1_795_000_010 * SECOND)


@pytest.fixture(scope="module")
def source():
    """The sampler's program, which asks."""
    spec = importlib.util.spec_from_file_location("snmp_source", AGENTS / "snmp_source.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def config(**switches: object) -> snmp.Config:
    return snmp.Config.model_validate({"switches": switches})


def test_each_switch_is_asked_by_a_process_that_is_told_where_secrets_are_and_not_what() -> None:
    first, second = snmp.launches(config(leaf1=V2C, leaf2=V3), TOPOLOGY)
    assert (first.name, first.node, second.name) == ("snmp.leaf1", "h1", "snmp.leaf2")
    assert first.env_from == {"SNMP_COMMUNITY": "LEAF"}
    assert second.env_from == {"SNMP_AUTH": "AUTH", "SNMP_PRIVACY": "./privacy"}
    told = json.loads(second.files["switch.json"])
    assert told == {
        "switch": "leaf2",
        "address": "leaf2.mgmt",
        "port": 161,
        "user": "watcher",
        "auth": "Sha256Key",
        "privacy": "Aes128Key",
        "ports": None,
    }
    assert "-S" not in first.argv, "it imports a package that is installed"
    chosen = snmp.Config.model_validate({"switches": {"leaf1": V2C}, "host": "h3", "python": "/opt/py"})
    assert [(one.node, one.argv[0]) for one in snmp.launches(chosen, TOPOLOGY)] == [("h3", "/opt/py")]
    (needed,) = snmp.requirements(chosen, TOPOLOGY)
    assert (needed.node, needed.what, needed.python) == ("h3", "gufo.snmp", "/opt/py")
    assert "pip install 'orch-testbed[snmp]'" in needed.remedy


@pytest.mark.parametrize(
    ("switch", "told"),
    [
        ({"address": "10.0.9.1"}, "says not in one way who asks"),
        ({**V3, "community_from": "LEAF"}, "says not in one way who asks"),
        ({"address": "10.0.9.1", "community_from": "s3cret!"}, "says where a value comes from, not what it is"),
        ({**V2C, "community": "public"}, "community"),
        ({**V2C, "ports": []}, "ports"),
        ({**V2C, "address": "10.0.9.1; reboot"}, "address"),
    ],
)
def test_what_is_no_switch_is_refused(switch: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        config(leaf1=switch)


def test_a_host_that_is_not_there_is_a_problem() -> None:
    (found,) = snmp.problems(snmp.Config.model_validate({"switches": {"leaf1": V2C}, "host": "h9"}), TOPOLOGY)
    assert found.at == ("host",)


class Broken(Exception):
    """What gufo-snmp raises for an answer that it cannot read is no OSError."""


class Switch:
    """Two ports, of which the names are bytes as gufo-snmp gives them, and an answer to each request unless lost."""

    def __init__(self) -> None:
        self.lost = False
        self.answer: dict[str, int] | Exception | None = None  # in the place of values
        self.met = 0
        self.asked: list[int] = []

    def fetch(self, oid: str):
        names = {
            "1.3.6.1.2.1.31.1.1.1.1": (b"Ethernet1", b"Ethernet2"),
            "1.3.6.1.2.1.2.2.1.2": (b"port one", b"Ethernet2"),
        }
        yield from ((f"{oid}.{number}", name) for number, name in enumerate(names[oid], 7))

    def get_many(self, oids: list[str]):
        if self.lost:
            raise TimeoutError
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer
        self.asked.append(len(oids))
        return {oid: int(oid.rpartition(".")[2]) for oid in oids if not oid.startswith("1.3.6.1.2.1.2.2.1.14.")}

    def refresh(self):
        self.met += 1


def asked(**more: object):
    return {
        "switch": "leaf1",
        "address": "10.0.9.1",
        "port": 161,
        "user": "",
        "auth": "",
        "privacy": "",
        "ports": None,
        **more,
    }


def test_ports_are_found_by_either_name_and_asked_in_requests_that_fit_a_frame(source) -> None:
    ports = source.Ports(Switch(), asked(ports=["port one"]), 1.0)
    assert ports.columns[:2] == ["leaf1|snmp.sysUpTime", "leaf1:port one|snmp.ifHCInOctets"]
    assert ports.rows() == [[0, 7, 7, 7, 7, "", 7]], "a counter that the switch lacks is left empty"
    whole = source.Ports(Switch(), asked(), 1.0)
    assert {name.partition("|")[0] for name in whole.columns} == {"leaf1", "leaf1:Ethernet1", "leaf1:Ethernet2"}
    whole.oids *= 5
    whole.rows()
    assert sum(whole.session.asked) == 65
    assert max(whole.session.asked) <= source.AT_ONCE
    with pytest.raises(OSError, match="leaf1 has no port Ethernet9; it has Ethernet1, Ethernet2, port one"):
        source.Ports(Switch(), asked(ports=["Ethernet9"]), 1.0)


def test_a_lost_answer_leaves_a_sample_empty_and_a_silent_switch_is_given_up(source) -> None:
    ports = source.Ports(Switch(), asked(ports=["Ethernet1"]), 1.0)
    ports.session.lost = True
    for _ in range(source.LOST_AT_MOST - 1):
        assert ports.rows() == [[""] * 7]
    ports.session.lost = False
    assert ports.rows()[0][1] == 7
    ports.session.lost = True
    for _ in range(source.LOST_AT_MOST - 1):
        ports.rows()
    with pytest.raises(OSError, match="leaf1 has not answered 5 times in a row"):
        ports.rows()


@pytest.mark.parametrize("answer", [{}, Broken("wrong digest")])
def test_answers_that_are_errors_are_lost_ones_and_the_switch_is_met_again(source, answer) -> None:
    ports = source.Ports(Switch(), asked(ports=["Ethernet1"]), 1.0, (TimeoutError, Broken))
    ports.session.answer = answer
    for _ in range(source.LOST_AT_MOST - 1):
        assert ports.rows() == [[""] * 7]
    assert ports.session.met == source.LOST_AT_MOST - 1
    said = "leaf1 has not answered 5 times in a row" + (f": {answer}" if str(answer) == "wrong digest" else "")
    with pytest.raises(OSError, match=f"^{said}$"):
        ports.rows()


def test_a_port_s_name_is_one_cell_of_a_table(source) -> None:
    class Named(Switch):
        def fetch(self, oid: str):
            yield f"{oid}.7", b"uplink|core\r\nA\xff"

    assert source.Ports(Named(), asked(), 1.0).columns[1] == "leaf1:uplink_core__A\ufffd|snmp.ifHCInOctets"


def test_a_switch_may_have_a_name(source, monkeypatch) -> None:
    pytest.importorskip("gufo.snmp")
    monkeypatch.setenv("SNMP_COMMUNITY", "public")
    assert source.session_of(asked(address="localhost")) is not None
    with pytest.raises(OSError, match="known"):
        source.session_of(asked(address="leaf1.invalid"))


def test_a_missing_package_is_said_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "switch.json").write_text(json.dumps(asked()))
    argv = [sys.executable, "-I", "-S", "-B", str(AGENTS / "sampler.py"), "snmp_source", "1", "switch.json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "lacks gufo-snmp (pip install 'orch-testbed[snmp]')" in done.stderr
    assert "Traceback" not in done.stderr


def counters(up_time=(100, 1100), **values: tuple[int, int]) -> throughput.CachedTable:
    """The table of a run in which a port was sampled at the ends of its window."""
    every = {"ifHCInOctets": (0, 0), **values}
    rows = [
        {"node": "h1", "port": "leaf1:Ethernet1", "time_ns": at, "counter": f"snmp.{name}", "value": float(value)}
        for name, pair in every.items()
        for at, value in zip(SPAN, pair, strict=True)
    ]
    rows += [
        {"node": "h1", "port": "leaf1", "time_ns": at, "counter": "snmp.sysUpTime", "value": float(value)}
        for at, value in zip(SPAN, up_time, strict=True)
    ]
    rows.append({"node": "h1", "port": "eth0", "time_ns": SPAN[0], "counter": "rx_bytes", "value": 5.0})
    return throughput.CachedTable(table("counters", rows))


def test_what_a_port_counted_in_a_window_rolls_over_and_is_unknown_after_a_restart() -> None:
    told = counters(ifHCInOctets=(2**40, 2**40 + 10**9), ifOutDiscards=(2**32 - 5, 7))
    (port,) = device_counters.switch_ports(told, SPAN)
    assert {*port.figures, "switch", "port", "window_name"} == set(TABLES["switch_ports"])
    assert (port.switch, port.port) == ("leaf1", "Ethernet1")
    assert port.figures["in_bytes"] == pytest.approx(1e9)
    assert port.figures["out_discards"] == pytest.approx(12)
    assert math.isnan(port.figures["in_errors"]), "not counted"
    (port,) = device_counters.switch_ports(counters(up_time=(1100, 3), ifHCInOctets=(10**9, 5)), SPAN)
    assert all(map(math.isnan, port.figures.values()))
    assert device_counters.switch_ports(throughput.CachedTable(table("counters", [])), SPAN) == ()


def test_ports_that_lose_are_named_and_fail_a_window_where_that_is_asked_for() -> None:
    lossy = device_counters.switch_ports(counters(ifInDiscards=(0, 0), ifOutDiscards=(0, 12), ifInErrors=(3, 4)), SPAN)
    (told,) = judged(congestion, switch_ports=lossy, validity={"congestion": "invalid"})
    assert (told.name, told.passed, told.required, told.measured) == ("switch", False, True, 13)
    assert told.message == "leaf1: Ethernet1: out discards 12, in errors 1"
    fine = device_counters.switch_ports(counters(ifInDiscards=(4, 4)), SPAN)
    (told,) = judged(congestion, switch_ports=fine)
    assert (told.passed, told.message) == (True, "leaf1: 1 port lost nothing")
    unknown = device_counters.switch_ports(counters(up_time=(9, 1), ifInDiscards=(0, 4)), SPAN)
    (told,) = judged(congestion, switch_ports=unknown)
    assert told.passed is None
