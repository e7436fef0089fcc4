"""The quickstart from a wheel, in an empty folder outside of the checkout."""

from __future__ import annotations

import pytest
from orch_runs import nothing_is_left

from tests import wheel

pytestmark = [pytest.mark.testbed, pytest.mark.variants]


def test_the_quickstart_of_a_wheel_is_measured_and_reported(tmp_path):
    installed = wheel.environment(tmp_path, wheel.build(tmp_path / "build"))
    assert installed.orch("init", "quickstart").returncode == 0
    smaller = ("--set", "repetitions=1", "--set", "measure.iterations=20", "--set", "measure.warmup=2")
    borne = ("--set", "validity={processor: ignore, drift: ignore}")
    done = installed.orch("run", "quickstart.yaml", "--local", "--wait", "5min", *smaller, *borne, within_s=420)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (
        path for path in (installed.folder / "results/quickstart").iterdir() if (path / "manifest.json").is_file()
    )
    assert list(installed.folder.glob("results/quickstart/report-*.html"))
    nothing_is_left(run.name)
