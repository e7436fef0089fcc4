"""Counters of a switch over SNMP: hosts of a run ask net-snmp's own daemon, which counts what reaches one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.report.runs import Run
from tests.helpers.orch_runs import last_json, orch, write
from tests.helpers.rack import rack

pytestmark = [pytest.mark.testbed, pytest.mark.variants]

SECRETS = {"community": "the-watched-leaf", "auth": "an-authentication-phrase", "privacy": "a-privacy-phrase"}
AGENT = """\
agentaddress udp:198.18.0.3:161
rocommunity {community} 198.18.0.0/15
createUser watcher SHA-256 "{auth}" AES "{privacy}"
rouser watcher authpriv
"""


def started(up, folder: Path) -> None:
    """The daemon on h3, which ends with the host."""
    (folder / "snmpd.conf").write_text(AGENT.format(**SECRETS))
    kept = f"SNMP_PERSISTENT_DIR={folder}"
    up.inside("h3", "env", kept, "snmpd", "-C", "-c", folder / "snmpd.conf", "-Lf", folder / "snmpd.log")


def switches() -> dict[str, object]:
    reached = {"address": "198.18.0.3"}
    user = {"name": "watcher", "auth_from": "SNMP_TEST_AUTH", "privacy_from": "./privacy"}
    return {
        "leaf1": {**reached, "community_from": "SNMP_TEST_COMMUNITY", "ports": ["eth0"]},
        "leaf2": {**reached, "user": user},
        "leaf3": {**reached, "community_from": "SNMP_TEST_AUTH"},  # a wrong one
        "leaf4": {**reached, "community_from": "SNMP_TEST_COMMUNITY", "ports": ["swp9"]},
    }


def last(sealed: Run, port: str, counter: str) -> float:
    rows = [row for row in sealed.table("counters").to_pylist() if (row["port"], row["counter"]) == (port, counter)]
    return max(rows, key=lambda row: row["time_ns"])["value"]


def test_a_host_asks_switches_and_what_it_asks_with_is_recorded_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("SNMP_TEST_COMMUNITY", SECRETS["community"])
    monkeypatch.setenv("SNMP_TEST_AUTH", SECRETS["auth"])
    (tmp_path / "privacy").write_text(SECRETS["privacy"] + "\n")
    agent, results = tmp_path / "agent", tmp_path / "results"
    agent.mkdir()
    with rack(tmp_path) as up:
        started(up, agent)
        collect = ["nic", {"snmp": {"host": "h1", "every": "200ms", "switches": switches()}}]
        experiment = up.experiment(conditions=[], collect=collect)
        status, out, err = orch("run", write(tmp_path, experiment), "--results", results, "--json")
    assert status in (0, 3), out + err
    (run,) = last_json(out)["runs"]
    sealed = Run(results / experiment["name"] / run["run"])
    rows = {(row["switch"], row["port"]): row for row in sealed.table("switch_ports").to_pylist()}
    assert {("leaf1", "eth0"), ("leaf2", "eth0"), ("leaf2", "lo")} <= rows.keys()
    assert not {switch for switch, _ in rows} - {"leaf1", "leaf2"}
    assert rows["leaf1", "eth0"]["out_discards"] == 0
    for switch in ("leaf1", "leaf2"):
        assert last(sealed, f"{switch}:eth0", "snmp.ifHCInOctets") > 0
    failed = {launch.name: launch.failed for launch in sealed.manifest.launches if launch.failed}
    assert failed.keys() == {"snmp.leaf3", "snmp.leaf4"}
    said = {name: (sealed.path / "hosts/h1" / name / "stderr").read_text() for name in failed}
    assert "does not answer" in said["snmp.leaf3"]
    assert "leaf4 has no port swp9; it has lo, eth0" in said["snmp.leaf4"]
    for path in filter(Path.is_file, results.rglob("*")):
        assert not [name for name, secret in SECRETS.items() if secret.encode() in path.read_bytes()], path
