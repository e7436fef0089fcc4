"""The front page of a store while real runs are sealed into it."""

from __future__ import annotations

import pytest

from tests.helpers.front_page import runs_of, shown
from tests.helpers.orch_runs import light, orch, write

pytestmark = [pytest.mark.testbed, pytest.mark.variants]


def test_a_run_and_its_report_are_on_the_page_when_the_command_ends(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    assert orch("site", "--results", results)[0] == 0
    path = write(tmp_path, light(repetitions=2, collect=["nic"], measure={"iterations": 20, "at_most": "30s"}))
    _, _, err = orch("run", path, "--results", results)
    assert "no front page" not in err
    found = runs_of(shown(results))
    assert len(found) == 2, err
    for run in found.values():
        assert run["verdict"] in ("valid", "invalid"), run["why"]
        assert (results / run["report"]).is_file()
        assert (results / run["folder"] / "manifest.json").is_file()
    assert len({run["report"] for run in found.values()}) == 1, "runs that repeat each other share their report"
