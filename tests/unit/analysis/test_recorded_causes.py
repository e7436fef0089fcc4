"""Runs of real trainings in which one cause was planted: it is named with its place, and nobody else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.analysis.causes import naming, words
from orchestrator.report.runs import Run

DATA = Path(__file__).parents[2] / "data" / "causes"
RUNS = sorted(path.parent.name for path in DATA.glob("*/planted.json"))


def explained(name: str, **options):
    (found,) = (one for one in naming.explanations(Run(DATA / name), **options) if one.job == "training")
    return found


@pytest.mark.parametrize("name", RUNS)
def test_the_planted_cause_is_first_and_no_other_host_is_accused(name):
    planted = json.loads((DATA / name / "planted.json").read_text())
    found = explained(name)
    # What else used the processors is true of every one of these runs.
    named = [one for one in found.findings if one.cause != "processor" or planted["cause"] == "processor"]
    if planted["cause"] == "nothing":
        assert named == []
        return
    assert named[0].cause == planted["cause"]
    if named[0].hosts:
        assert named[0].hosts[0] in planted["places"]
    assert sum(part.share for part in found.parts) == pytest.approx(1)
    assert len(words.text(found)) <= 10


@pytest.mark.parametrize("name", RUNS)
def test_parts_of_each_iteration_sum_to_it(name):
    whole = explained(name)
    for number in whole.iterations[:: len(whole.iterations) // 4]:
        found = explained(name, iteration=number)
        assert sum(part.seconds for part in found.parts) == pytest.approx(found.mean_s, rel=0.01)
        assert min(part.seconds for part in found.parts) >= -1e-6


class WithoutQueues(Run):
    """A run in which no queue was sampled, as of switches that nobody asks."""

    def counter_rows(self, _pattern):
        return super().counter_rows("nothing")


@pytest.mark.parametrize(
    ("name", "named"), [("link-rate", ["link-rate"]), ("nothing", []), ("slow-rank", ["slow-rank"])]
)
def test_a_slow_link_is_found_without_its_queue(name, named):
    run = WithoutQueues(DATA / name)
    (found,) = (one for one in naming.explanations(run) if one.job == "training")
    assert [one.cause for one in found.findings if one.cause != "processor"] == named
    if name == "link-rate":
        assert found.findings[0].place == "h3's link, receiving"
    assert "qdisc" in found.missing
