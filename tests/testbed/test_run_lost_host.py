"""A host dies in a window, with its agent, and cannot be reached; later it is back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.orch_runs import in_stage, light, manifest_of, orch, start, wait_for, write

pytestmark = pytest.mark.testbed


class Rack:
    """An inventory of which h2 can be cut off: its name then leads nowhere."""

    def __init__(self, inventory, on, folder):
        config = Path(inventory["defaults"]["config"])
        self.whole = config.read_text()
        self.config = folder / "ssh_config"
        self.inventory = {**inventory, "defaults": {**inventory["defaults"], "config": str(self.config)}}
        self.work, self.on = inventory["defaults"]["work"], on
        self.file = write(folder, self.inventory, "rack.yaml")
        self.reconnect()

    def reconnect(self):
        self.config.write_text(self.whole)

    def cut(self):
        self.config.write_text("Host h2\n  ProxyCommand false\n" + self.whole)

    def kill_agent(self, run):
        about = json.loads(self.on("h2", "cat", f"{self.work}/{run}.h2/.orch-run.json"))
        self.on("h2", "kill", "-9", str(about["pid"]))

    def rate(self):
        return self.on("h2", "tc", "qdisc", "show", "dev", "eth0")

    def left(self):
        return self.on("h2", "ls", "-A", "/run/orch").strip()


@pytest.fixture
def lost(hosts, tmp_path):
    """A rack, the results of a run on it that lost h2, what that said, and what stood on h2 before."""
    rack = Rack(*hosts, tmp_path)
    before = rack.rate()
    experiment = light(
        testbed={"inventory": rack.inventory},
        conditions=[{"rate": {"where": "nic", "host": "h2", "rate": "120mbit"}}],
        traffic=None,
        measure={"warmup": 1, "at_most": "60s"},
        repetitions=1,
    )
    results = tmp_path / "results"
    process = start("run", write(tmp_path, experiment), "--results", results)
    wait_for(in_stage(results, "window"), 360, "the window")
    rack.cut()
    rack.kill_agent(next(results.glob("*/*.partial")).name.removesuffix(".partial"))
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, out + err
    assert rack.rate() != before
    return rack, results, out + err, before


def test_a_run_that_loses_a_host_ends_with_its_summary_and_the_host_is_brought_home_when_it_is_back(lost):
    rack, results, said, before = lost
    named = ("--testbed", rack.file)
    manifest, folder = manifest_of(results)
    assert "Traceback" not in said
    assert f"#1 {manifest['run']}: failed (window)" in said
    assert f"h2 still has files of the run: `orch recover {manifest['run']} --testbed FILE` fetches them" in said
    assert (manifest["outcome"], manifest["valid"], folder.suffix) == ("failed", False, ".partial")
    assert manifest["failed_node"] == "h2"

    status, out, _ = orch("recover", "--results", results)
    assert (status, "--testbed FILE, the inventory, experiment or sweep file" in out) == (1, True), out
    status, out, err = orch("recover", *named, "--results", results, "--without", "h7")
    assert (status, out) == (2, "")
    assert f"--without h7: no host of {manifest['run']}; accepted: h1, h2, h3" in err
    status, out, _ = orch("recover", *named, "--results", results)
    assert status == 1
    assert "once it will not come back: --without h2" in out

    rack.reconnect()
    status, out, err = orch("recover", *named, "--results", results)
    assert status == 0, out + err
    manifest, folder = manifest_of(results)
    assert (manifest["outcome"], folder.name) == ("lost", manifest["run"])
    assert "its agent is gone" in manifest["error"], "as the run told it"
    assert (folder / "hosts/h2/training-rank1/stdout").exists()
    assert (rack.rate(), rack.left()) == (before, "")


def test_a_host_that_was_given_up_brings_its_files_when_it_is_back_after_all(lost):
    rack, results, _, before = lost
    named = ("--testbed", rack.file)
    assert orch("recover", *named, "--results", results, "--without", "h2")[0] == 0
    manifest, folder = manifest_of(results)
    run = manifest["run"]
    assert (manifest["given_up"], folder.name) == (["h2"], run)
    assert not (folder / "hosts/h2/training-rank1").exists()

    status, out, _ = orch("recover", *named, "--results", results)
    assert (status, f"`orch recover {run} --testbed FILE` fetches it" in out) == (0, True)
    status, out, _ = orch("recover", *named, "--results", results, run)
    assert (status, manifest_of(results)) == (1, (manifest, folder)), out
    assert run + ".h2" in rack.on("h2", "ls", rack.work)

    rack.reconnect()
    status, out, err = orch("recover", *named, "--results", results, run)
    assert status == 0, out + err
    manifest, folder = manifest_of(results)
    assert manifest["given_up"] == []
    assert "hosts/h2/training-rank1/stdout" in {artifact["path"] for artifact in manifest["artifacts"]}
    assert (rack.rate(), rack.left()) == (before, "")
    assert "needs no recovery" in orch("recover", *named, "--results", results, run)[2]
