"""What was not valid and was measured again is told as such, and what nobody measured again is not."""

from __future__ import annotations

import json

import pytest

from orchestrator.cli.main import main
from orchestrator.report.run import report_page
from orchestrator.report.run.report_page import render
from orchestrator.report.runs import load
from orchestrator.store import index
from orchestrator.store.attempts import attempts
from orchestrator.store.stamps import MANIFEST
from tests.helpers import manifests
from tests.helpers.night_runs import write_run
from tests.helpers.sealed_run import loose, make_run


@pytest.fixture
def night(tmp_path):
    """Five runs of a sweep of two points: two windows were not valid, and were measured again."""
    return [
        write_run(tmp_path, repetition=1),
        write_run(tmp_path, repetition=2, invalid=("load8",)),
        write_run(tmp_path, repetition=3, invalid=("load0",)),
        write_run(tmp_path, repetition=2, began_s=60, seconds={"load8": 0.2}),
        write_run(tmp_path, repetition=3, began_s=60, seconds={"load0": 0.16}),
    ]


def valid_run(folder, **about):
    """A run whose only window is valid, and what else its manifest says."""
    run = make_run(folder, tolerances=loose(), iterations=30, skip=("packets", "counters", "sockets"))
    found = json.loads((run / MANIFEST).read_text())
    found["windows"][0].update(valid=True, reasons=[])
    (run / MANIFEST).write_text(json.dumps({**found, "valid": True, "reasons": [], **about}))
    return run


def test_windows_that_were_measured_again_do_not_make_a_report_invalid(night):
    found = report_page.verdict_of_runs(load(night))
    assert (found.state, found.title) == ("valid", "Valid")
    assert found.lines == ("6 of 6 measurements valid: 2 points with 3 each",)
    ((title, told),) = found.more
    assert title == "2 measurements repeated, since the first try was not valid"
    assert "load8: cross traffic missed the request (measured again in nightly #2" in told[0]


def test_a_window_that_nobody_measured_again_is_said_to_be_missing(night):
    found = report_page.verdict_of_runs(load(night[:3]))
    assert (found.state, found.title) == ("doubt", "Valid at every point, but not in every run")
    assert found.lines == ("4 of 6 measurements valid: 2 points with 2 each",)
    nothing = report_page.verdict_of_runs(
        load([night[1], write_run(night[0].parents[1], repetition=4, invalid=("load0", "load8"))])
    )
    assert nothing.title == "INVALID in part: no valid window at 1 of 2 points"
    alone = report_page.verdict_of_runs(load([night[1]]))
    assert (alone.state, alone.title) == ("invalid", report_page.INVALID)


def test_runs_of_one_experiment_that_nobody_planned_count_each_and_one_that_ended_early_counts_once(tmp_path):
    """`orch run` several times: every run is the first repetition of the same experiment."""
    about = {"point": "digest", "repetition": 1}
    runs = []
    for number in (1, 2, 3):
        run = make_run(tmp_path, repetition=number, iterations=30, skip=("packets", "counters", "sockets"))
        found = json.loads((run / MANIFEST).read_text())
        found["windows"][0].update(valid=True, reasons=[])
        (run / MANIFEST).write_text(json.dumps({**found, "valid": True, "reasons": [], **about}))
        runs.append(run)
    assert report_page.verdict_of_runs(load(runs)).lines == ("3 of 3 measurements valid",)
    found = json.loads((runs[0] / MANIFEST).read_text())
    (runs[0] / MANIFEST).write_text(json.dumps({**found, "windows": [], "valid": False, "reasons": ["it ended early"]}))
    early = report_page.verdict_of_runs(load(runs))
    assert early.lines == ("2 of 2 measurements valid",)
    assert early.more[0][0] == "1 measurement repeated, since the first try was not valid"


def test_the_report_of_a_run_that_was_repeated_names_the_run_that_counts(night, tmp_path, capsys):
    output = tmp_path / "r.html"
    assert main(["report", night[1].name, "-o", str(output), "--results", str(tmp_path)]) == 0
    text = output.read_text()
    assert "INVALID" not in text
    assert f"load8 was measured again in {night[3].name}" in text
    assert capsys.readouterr().out.strip() == str(output)


def test_a_report_of_several_links_the_report_of_each_and_draws_nothing_twice(night, tmp_path):
    output = tmp_path / "nightly" / "all.html"
    assert main(["report", "--each", *(run.name for run in night), "-o", str(output), "--results", str(tmp_path)]) == 0
    text = output.read_text()
    assert "INVALID" not in text
    assert text.count(">repeated<") == 2
    for run in night:
        assert f'<a href="report-{run.name}.html">its report</a>' in text
        assert (output.parent / f"report-{run.name}.html").is_file()
    opened = text[: text.index('<details class="section">')]
    assert opened.count("<figure>") == 1


def test_how_a_report_without_its_own_page_is_made_is_said(night, tmp_path):
    text = render(night, tmp_path / "all.html").read_text()
    assert f"orch report {night[1].name}" in text


def test_a_run_that_failed_is_repeated_by_one_of_the_same_point(tmp_path):
    about = {"experiment": "e", "point": "p", "repetition": 1, "windows": []}
    manifests.left(tmp_path / "e" / "a", run="a", outcome="failed", error="h1: gone", **about)
    manifests.left(tmp_path / "e" / "b", run="b", **{**about, "point": "q"}, valid=True)
    (lost,) = attempts([entry.manifest for entry in index.entries(tmp_path)])
    assert (lost.window, lost.why, lost.again) == ("", ("h1: gone",), "")
    good = valid_run(tmp_path / "e", experiment="e", point="p")
    found = {one.run: one for one in attempts([entry.manifest for entry in index.entries(tmp_path)])}
    assert found["a"].again == good.name
    assert found[good.name].again == ""


def test_a_run_that_lacks_a_window_is_not_called_valid(tmp_path):
    run = valid_run(tmp_path, valid=False, reasons=["1 of 2 windows were measured"], unreached={"w2": "no way there"})
    one, other = attempts([found.manifest for found in load([run])])
    assert (one.window, one.valid, other.window, other.valid) == ("w1", True, "w2", False)
    assert report_page.verdict_of_runs(load([run])).state == "invalid"
