"""Hosts of an image of the user's: what is in it is used, what is not is told before anything starts."""

from __future__ import annotations

import json
import re

import pytest

from tests.helpers.container_fixtures import nothing_left, runtime, stores
from tests.helpers.container_help import PYTHON, import_image, python_image
from tests.helpers.orch_runs import light, measured, nothing_is_left, orch, write

__all__ = ["nothing_left", "runtime", "stores"]

pytestmark = pytest.mark.testbed


@pytest.fixture
def image(runtime):
    """A user's image: a Python and what a run needs, but no iperf3 and nothing else of this machine's."""
    return import_image(runtime, python_image(["tcpdump", "ip", "tc", "ethtool"]), "localhost/orch-test-user:1")


def on_image(runtime, image, **changes):
    local = {"hosts": 2, "link": "25gbit", "scale": 100, "runtime": runtime, "image": image, "python": PYTHON}
    collect = ["tcpdump", "nic", "qdisc", "cpu"]
    return light(**{"testbed": {"local": local}, "traffic": None, "collect": collect, **changes})


@pytest.mark.variants
def test_a_run_on_hosts_of_a_users_image_uses_what_is_in_it(runtime, image, tmp_path):
    summary, results = measured(write(tmp_path, on_image(runtime, image)), tmp_path / "results", "--no-report")
    (run,) = summary["runs"]
    nothing_is_left(run["run"])
    about = json.loads((results / "small" / run["run"] / "manifest.json").read_text())["testbed"]
    assert (about["runtime"], about["image"]) == (runtime, image)
    assert re.fullmatch(r"(sha256:)?[0-9a-f]{64}", about["image_id"])
    (log,) = (results / "small" / run["run"]).glob("hosts/h1/**/training-rank0/stdout*")
    assert "took" in log.read_text()


def test_what_an_image_lacks_is_told_by_plan_before_anything_starts(runtime, image, tmp_path):
    traffic = [{"iperf": {"from": "h1", "to": "h2", "load": "5gbit"}}]
    needs = on_image(runtime, image, traffic=traffic, workload={"ddp": {"model": "vgg16", "hosts": ["h1", "h2"]}})
    _, out, err = orch("plan", write(tmp_path, needs))
    assert f"local ({runtime} containers of {image})" in out
    assert f"no program iperf3 on the image {image}; remedy: build it into the image {image}: " in err
    assert f"ddp needs module torch: {PYTHON}: no such module; remedy: build it into the image {image}: " in err
    status, out, _ = orch("doctor", write(tmp_path, needs))
    assert status == 1
    assert f"no program iperf3 on the image {image}" in out
