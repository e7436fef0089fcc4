"""Runs on hosts that are reached by SSH from a machine of its own, through a jump host, over its one link."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.helpers.fleet import fleet, light

pytestmark = pytest.mark.testbed

RUN_S = 420.0


def orch(up, *words):
    """`orch` on the controller of a fleet, to its end."""
    argv = up.on_controller([sys.executable, "-m", "orchestrator.cli.main", *words])
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=RUN_S)


def test_ten_hosts_behind_a_jump_host_that_lets_two_log_in_at_a_time(tmp_path):
    """Over 10 Mbit/s: all are reached, measured, and as they were before."""
    with fleet(10, tmp_path / "fleet", rate_bps=10e6, startups="2:100:3") as up:
        file, results = up.files(light(up.hosts), up.inventory(jump=True)), tmp_path / "results"
        done = orch(up, "run", file, "--force", "--no-report", "--results", results)
        (path,) = results.glob("*/*/manifest.json")
        manifest = json.loads(path.read_bytes())
        events = [json.loads(line) for line in (path.parent / "events.jsonl").read_text().splitlines()]
        assert "MaxStartups" in (up.folder / "gate.log").read_text(), "nobody was turned away: this showed nothing"
    assert manifest["outcome"] == "completed", done.stderr
    for what in ("changed", "restored"):
        assert {event["node"] for event in events if event["event"] == what} == set(up.hosts)
