"""A training is captured, its traffic is fitted, drawn and replayed, and captured again: it sends as much, as often.

Alone, since only valid windows are asked, and other work moves the flows of a replay. How long its bursts take is what
`orch study open` judges.
"""

from __future__ import annotations

import pytest
import yaml

from orchestrator.cli.main import main
from orchestrator.questions.rows import Measured
from orchestrator.questions.sending import sending
from orchestrator.store import stores
from tests.helpers.orch_runs import measured, nothing_is_left, small, write

pytestmark = [pytest.mark.testbed, pytest.mark.alone]

TESTBED = {"local": {"hosts": 3, "link": "25gbit", "scale": 100}}
COLLECT = ["tcpdump", "nic"]
VALIDITY = {
    "processor": "ignore",
    "drift": "ignore",
    "load": "as-achieved",
    "load_course": "ignore",
    "launch_late": "1s",
}


def test_a_replay_sends_as_the_training_did(tmp_path):
    results = tmp_path / "results"
    training = small(
        name="original",
        testbed=TESTBED,
        workload={"ddp": {"model": "resnet50", "compute_time": "112ms"}},
        traffic=None,
        collect=COLLECT,
        measure={"warmup": 3, "iterations": 40, "at_most": "60s"},
        validity=VALIDITY,
    )
    original, first_store = measured(write(tmp_path, training), results, "--no-report")
    fitted = tmp_path / "fitted"
    run = original["runs"][0]["run"]
    assert main(["traffic", "fit", run, "--results", str(first_store), "--iterations", "80", "-o", str(fitted)]) == 0
    sources = yaml.safe_load((fitted / "traffic.yaml").read_text())
    for source in sources:
        schedules = source["replay"]["schedules"]
        source["replay"]["schedules"] = {host: str(fitted / name) for host, name in schedules.items()}
    idle = {"command": {"hosts": ["h1"], "argv": ["sh", "-c", "while sleep 0.1; do echo tick; done"]}}
    idle["command"]["iterations"] = {"pattern": "tick"}
    replayed = small(
        name="replayed",
        testbed=TESTBED,
        workload=idle,
        traffic=sources,
        collect=COLLECT,
        measure={"warmup": 3, "iterations": 60, "at_most": "60s"},
        validity=VALIDITY,
    )
    again, second_store = measured(write(tmp_path, replayed), tmp_path / "again", "--no-report")
    entries = [stores.one(stores.opened(str(store)), "last") for store in (first_store, second_store)]
    rows = {row["line"]: row for row in sending(Measured(entries=tuple(entries)))}
    first, second = rows["training"], rows["replay0"]
    assert second["mean_gbps"] == pytest.approx(first["mean_gbps"], rel=0.1)
    assert second["period_s"] == pytest.approx(first["period_s"], rel=0.05)
    assert (first["pairs"], second["pairs"]) == (3, 3)
    nothing_is_left(again["runs"][0]["run"])
