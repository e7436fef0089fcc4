"""Checkpoints, weights, incast, KV transfers, UDP and uneven experts on one switch: each sends what its theory says.

When flows begin depends on what else the machine does; what is sent does not.
"""

from __future__ import annotations

import pytest
import yaml

from orchestrator.report.runs import Run
from tests.helpers.orch_runs import ROOT, measured, nothing_is_left, orch, ring, small, write

pytestmark = pytest.mark.testbed

TENANTS = {
    "periodic": [
        {"checkpoint": {"from": ["h1", "h2"], "to": "h5", "size": "500mb", "period": "1s"}},
        {"incast": {"from": ["h1", "h2", "h3"], "to": "h4", "answer": "1mib", "period": "250ms"}},
        {"weight-sync": {"from": "h3", "to": ["h4", "h5"], "size": "200mb", "period": "1s", "way": "chain"}},
    ],
    "requests": [
        {"kv-transfer": {"from": "h1", "to": ["h4", "h5"], "requests": 6, "model": "deepseek-v3"}},
        {"udp": {"from": "h2", "to": "h4", "load": "2gbit"}},
    ],
}
EXPERTS = {
    "operations": ["all-to-all"],
    "sizes": ["10mb"],
    "repeats": 1,
    "skew": {"zipf": 1},
    "hosts": ["h3", "h4", "h5"],
}
ON_TIME = {"launch", "flow-gaps", "load-course", "congestion"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tenants")
    experiment = small(
        name="tenants",
        testbed={"local": {"hosts": 5, "link": "25gbit", "scale": 100}},
        workload=None,
        traffic=None,
        jobs=[
            {"name": "training", "workload": ring(0.04, hosts=["h1", "h2"])},
            {"name": "experts", "workload": {"collective": EXPERTS}},
        ],
        windows=[{"name": name, "traffic": traffic} for name, traffic in TENANTS.items()],
        collect=["tcpdump", "nic"],
        measure={"warmup": 2, "at_most": "6s"},
        validity={"load": "as-achieved", "load_course": "ignore", "launch_late": "1s"},
    )
    summary, results = measured(write(folder, experiment), folder / "results", "--no-report", borne=ON_TIME)
    (one,) = summary["runs"]
    nothing_is_left(one["run"])
    return Run(results / "tenants" / one["run"])


def test_each_periodic_source_has_its_mean_load_over_whole_periods(run):
    loads = {(load.source, load.src, load.dst): load for load in run.manifest.windows[0].loads}
    assert len(loads) == 2 + 3 + 2
    for load in loads.values():
        assert load.achieved_bps == pytest.approx(load.requested_bps, rel=0.06), load


def test_every_flow_is_as_large_as_was_asked(run):
    flows = [row for row in run.rows("flows") if row["window_name"] == "periodic" and not row["error"]]
    sizes = {(row["source"], row["bytes"]) for row in flows}
    assert sizes == {("checkpoint0", 2_500_000), ("incast1", 10_486), ("weight-sync2", 2_000_000)}


def test_datagrams_are_offered_at_their_rate_and_experts_send_by_their_skew(run):
    gates = {gate.name: gate for gate in run.manifest.windows[1].gates}
    assert gates["datagrams"].passed, gates["datagrams"].message
    sent = [job for window in run.manifest.windows for job in window.training if job.job == "experts"]
    assert all(job.sent_bytes == pytest.approx(job.theory_bytes, rel=0.1) for job in sent)


def test_the_playbook_of_tenants_is_planned():
    path = ROOT / "playbooks/experiments/tenants.yaml"
    status, out, err = orch("plan", path)
    assert status == 0, err
    assert all(name in out for name in yaml.safe_load(path.read_text())["windows"][1]["traffic"][0])
