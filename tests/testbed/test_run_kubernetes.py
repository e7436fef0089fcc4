"""A run in pods, which are namespaces behind a stand-in of kubectl: agents, ranks, captures and networks are real."""

from __future__ import annotations

import os

import pytest

from tests.helpers import pods
from tests.helpers.orch_runs import light, manifest_of, measured, nothing_is_left, write

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(os.geteuid() != 0, reason="networks between namespaces are root's to make"),
]


def test_a_run_in_pods_is_valid_with_captures_and_its_record_says_which_pods(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    with pods.up(folder, 3):
        monkeypatch.setenv("PATH", pods.path_with(folder))
        path = write(
            tmp_path,
            light(
                testbed={"kubernetes": {"label": "app=train", "network": pods.NETWORK, "link": "250mbit"}},
                traffic=[{"iperf": {"from": "h1", "to": "h3", "load": "20mbit", "streams": 2}}],
                collect=["tcpdump", "nic"],
            ),
        )
        summary, results = measured(path, tmp_path / "results", "--no-report")
        (run,) = summary["runs"]
        nothing_is_left(run["run"])
        manifest, _ = manifest_of(results)
        assert manifest["testbed"]["pods"] == "h1=train-0 h2=train-1 h3=train-2"
