"""What is installed from wheels in an empty folder outside of the checkout: the quickstart, and a package of parts."""

from __future__ import annotations

import json

import pytest

from orchestrator import Store
from orchestrator.core.exitcodes import Exit
from tests.helpers import wheel
from tests.helpers.orch_runs import TRIES, nothing_is_left

pytestmark = [pytest.mark.testbed, pytest.mark.variants]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    return wheel.environment(folder, wheel.build(folder / "orch"))


@pytest.fixture(scope="module")
def package(installed, tmp_path_factory):
    """What `orch init package` writes, built and installed beside orch."""
    written = installed.folder / "parts"
    done = installed.orch("init", "package", str(written))
    assert done.returncode == 0, done.stderr
    installed.install(
        wheel.build(tmp_path_factory.mktemp("package") / "built", written, ("pyproject.toml", "mylab_parts"))
    )
    return written


def test_the_quickstart_of_a_wheel_is_measured_and_reported(installed):
    assert installed.orch("init", "quickstart").returncode == 0
    smaller = ("--set", "repetitions=1", "--set", "measure.iterations=20", "--set", "measure.warmup=2")
    borne = ("--set", "validity={processor: ignore, drift: ignore}")
    for _ in range(TRIES):  # other work of the machine spoils one
        done = installed.orch("run", "quickstart.yaml", "--local", "--wait", "5min", *smaller, *borne, within_s=420)
        if done.returncode != Exit.INCONCLUSIVE:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    run = Store(installed.folder / "results").runs(experiment="quickstart")[-1]
    assert list(run.path.parent.glob("report-*.html"))
    nothing_is_left(run.id)


def test_a_package_of_ones_own_keeps_the_contract(installed, package):
    done = installed.run(str(installed.path / "bin/python"), "-m", "pytest", "-q", str(package / "tests"))
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 20


def test_its_parts_stand_in_the_plan_and_the_schema(installed, package):
    planned = installed.orch("plan", str(package / "experiment.yaml"), "--json")
    (run,) = json.loads(planned.stdout)["runs"]
    (job,) = run["jobs"]
    assert job["workload"] == "ping-pong"
    assert {launch["part"] for launch in run["collectors"]} >= {"collector.load-average", "collector.tcpdump"}
    assert "ping-pong" in installed.orch("schema").stdout
    mistaken = installed.orch("plan", str(package / "experiment.yaml"), "--set", "workload.ping-pong.hosts=[h1, h9]")
    assert mistaken.returncode == 2
    assert "workload.ping-pong.hosts.1: the testbed has no host 'h9'" in mistaken.stderr


def test_its_parts_are_measured(installed, package):
    """Its ranks' iterations and its counters are in the tables, its version in the manifest."""
    done = installed.orch("run", str(package / "experiment.yaml"), "--wait", "5min", "--no-report", within_s=420)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = Store(installed.folder / "results").runs(experiment="ping-pong")
    nothing_is_left(run.id)
    (window,) = run.windows
    assert window.valid
    assert {row["rank"] for row in run.table("iterations").to_pylist()} == {0, 1}
    assert "load.running" in set(run.table("counters")["counter"].to_pylist())
    assert run.manifest.versions["mylab-parts"] == "1.0"
