"""A link that is slower than the testbed's file says is named by `orch why`, with its host and what it costs."""

from __future__ import annotations

import json

import pytest

from tests.helpers.orch_runs import last_json, orch, write

pytestmark = pytest.mark.testbed

SLOW = {
    "name": "slow-link",
    "testbed": {"local": {"hosts": 4, "link": "25gbit", "scale": 100}},
    "conditions": [{"congestion-control": "cubic"}, {"rate": {"where": "nic", "host": "h3", "rate": "4gbit"}}],
    "workload": {"ddp": {"model": "resnet50", "batch": 64, "compute_time": "50ms"}},
    "collect": ["tcpdump", "nic", "qdisc", "tcp"],
    "measure": {"warmup": 3, "iterations": 15, "at_most": "60s"},
}


def test_the_slow_link_is_named_with_its_host_and_its_share(tmp_path):
    # Whatever else the machine does meanwhile: an invalid run is explained, too.
    status, out, err = orch("run", write(tmp_path, SLOW), "--results", tmp_path / "results", "--json", "--no-report")
    assert status in (0, 3), out + err
    run = last_json(out)["runs"][0]["path"]
    status, out, err = orch("why", run, "--json")
    assert status == 0, err
    (found,) = json.loads(out)["explanations"]
    first = found["findings"][0]
    assert (first["cause"], first["hosts"]) == ("link-rate", ["h3"])
    assert 0.3 < first["low"] <= first["share"] <= first["high"] < 0.9
    assert sum(part["share"] for part in found["parts"]) == pytest.approx(1, abs=0.01)
    status, out, err = orch("show", run)
    assert (status, "h3's link, sending is below its rate" in out) == (0, True), out + err
    status, out, _ = orch(
        "query", "--results", tmp_path / "results", "select to_host from carried where last group by 1"
    )
    assert (status, "h2" in out) == (0, True)  # gloo's ring leads from h3 to h2
