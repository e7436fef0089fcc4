"""A study as its controller sees it: its own sweeps, cut off and taken up, and the status at the end."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from orchestrator.cli.main import main
from orchestrator.core.errors import ConfigError, Interrupted
from orchestrator.core.exitcodes import Exit
from orchestrator.execution import execute
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import RunOptions
from orchestrator.execution.runner import Outcome
from orchestrator.experiment import paperfile
from orchestrator.store import rundir, sweeps
from orchestrator.study import run_study
from tests.helpers.sweep_files import SWEEP, leave, window

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
SALAMY = PLAYBOOKS / "papers/salamy/paper.yaml"
FIGURES = "figures: [{title: f, ask: [{iterations: {}}], draw: [{kind: lines, x: model, y: seconds}]}]"


def studied(folder, *, sweep_names=("a", "b")):
    for name in sweep_names:
        (folder / f"{name}.yaml").write_text(SWEEP.replace("name: s", f"name: {name}"))
    files = ", ".join(f"{name}.yaml" for name in sweep_names)
    file = folder / "paper.yaml"
    file.write_text(f"{{name: s, title: t, shows: what, sweeps: {{quick: [{files}], full: [{files}]}}, {FIGURES}}}\n")
    return file


def carry_out(file, results, *, new=False, said=None):
    found = paperfile.load(file, version="quick")
    return run_study.carry_out(found, RunOptions(results=results, progress=Progress(said or io.StringIO())), new=new)


class Testbed:
    """Stands where runs are carried out; every window is valid but those whose load is `bad`, and a run may be cut."""

    __test__ = False

    def __init__(self, monkeypatch, *, bad="", cut_at=()):
        self.runs, self.bad, self.cut_at, self.labels = 0, bad, cut_at, []
        monkeypatch.setattr(execute, "run_planned", self.run_planned)

    def run_planned(self, experiment, run, options, attempt):
        sweep = attempt.sweep
        self.runs += 1
        self.labels.append(attempt.label)
        names = [planned.name for planned in run.windows]
        loads = {name: sweep.points[name].values["traffic.0.iperf.load"] for name in names}
        cut = self.runs in self.cut_at
        windows = [] if cut else [window(name, valid=loads[name] != self.bad) for name in names]
        path = leave(options.results, asdict(sweep), outcome="interrupted" if cut else "completed", windows=windows)
        error = Interrupted("stopped by Ctrl-C") if cut else None
        return Outcome(path=path, manifest=rundir.entry_at(path).manifest, error=error)


def measurements(outcome):
    return {(one.sweep.name, key) for one in outcome.sweeps for key in one.ledger.done}


@pytest.mark.parametrize("cut_at", [(1,), (4,), (7, 9)])
def test_a_study_that_is_cut_off_ends_with_the_same_measurements(tmp_path, monkeypatch, cut_at):
    file = studied(tmp_path)
    Testbed(monkeypatch)
    whole = carry_out(file, tmp_path / "whole")
    Testbed(monkeypatch, cut_at=cut_at)
    statuses = [carry_out(file, tmp_path / "cut").status for _ in cut_at]
    assert set(statuses) == {Interrupted.exit_code}
    resumed = carry_out(file, tmp_path / "cut")
    assert (whole.status, resumed.status) == (0, 0)
    assert measurements(resumed) == measurements(whole)
    assert len(measurements(whole)) == 12


def test_a_study_that_was_begun_anew_and_cut_off_goes_on_with_the_new_one(tmp_path, monkeypatch):
    file = studied(tmp_path)
    testbed = Testbed(monkeypatch)
    carry_out(file, tmp_path / "r")
    assert testbed.runs == 12
    Testbed(monkeypatch, cut_at=(2,))
    assert carry_out(file, tmp_path / "r", new=True).status == Interrupted.exit_code
    testbed = Testbed(monkeypatch)
    assert carry_out(file, tmp_path / "r").status == 0
    assert testbed.runs == 11
    assert {len(sweeps.sweeps(tmp_path / "r", name)) for name in "ab"} == {2}
    assert carry_out(file, tmp_path / "r").runs_s == 0


def test_what_is_not_valid_is_the_study_s_status_and_the_rest_is_measured(tmp_path, monkeypatch):
    Testbed(monkeypatch, bad="200mbit")
    outcome = carry_out(studied(tmp_path), tmp_path / "r")
    assert outcome.status == Exit.INCONCLUSIVE
    assert [one.status for one in outcome.sweeps] == [Exit.INCONCLUSIVE] * 2
    assert len(measurements(outcome)) == 8


def test_progress_is_that_of_the_whole_study(tmp_path, monkeypatch):
    testbed = Testbed(monkeypatch)
    said = io.StringIO()
    carry_out(studied(tmp_path), tmp_path / "r", said=said)
    assert re.search(r"study s-quick: 2 sweeps, 0 of 12 done, about \d+ min left", said.getvalue())
    assert re.search(r"about \d+ (s|min) left, until about .*\d\d:\d\d\]", testbed.labels[7])
    assert "[s-quick: 0 of 12 done" in testbed.labels[0]
    assert "[s-quick: 7 of 12 done" in testbed.labels[7]


def test_the_study_at_full_size_fits_an_inventory(tmp_path):
    example = (PLAYBOOKS / "testbeds/example-rack.yaml").read_text()
    (tmp_path / "rack.yaml").write_text(example.replace("10gbit", "25gbit"))
    told = [f"testbed={{inventory: {tmp_path / 'rack.yaml'}}}"]
    for definition in paperfile.load(SALAMY, told, version="cluster").sweeps:
        assert all(point.experiment.testbed.inventory is not None for point in definition.points)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("quick: [a.yaml, b.yaml]", "quick: [no.yaml]", r"sweeps\.quick\.0: no file .*no.yaml"),
        ("quick: [a.yaml, b.yaml]", "quick: [a.yaml, a.yaml]", "two sweeps of one name"),
        ("name: s, ", "", "name"),
        ("{title: f, ", "{titel: f, ", "titel"),
        ("shows: what", "takes: {quick: 5min}, shows: what", "takes"),
    ],
)
def test_mistakes_of_a_paper_are_told(tmp_path, old, new, message):
    file = studied(tmp_path)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=message):
        paperfile.load(file, version="quick")


def test_a_version_that_is_not_there_is_refused_with_those_that_are(tmp_path, capsys):
    studied(tmp_path)
    assert main(["study", str(tmp_path), "--sweeps", "rack", "--results", str(tmp_path / "r")]) == 2
    assert "no sweeps rack; accepted: quick, full" in capsys.readouterr().err


def test_a_mistake_in_a_figure_is_told_before_anything_is_measured(tmp_path, capsys):
    file = studied(tmp_path)
    file.write_text(file.read_text().replace("{iterations: {}}", "{iteration: {}}"))
    assert main(["study", str(tmp_path), "--quick", "--results", str(tmp_path / "r")]) == 2
    assert "iteration: no such step" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_what_would_be_measured_is_said_and_nothing_is(tmp_path, capsys):
    studied(tmp_path)
    assert main(["study", str(tmp_path), "--quick", "--what", "--results", str(tmp_path / "r")]) == 0
    out = capsys.readouterr().out
    assert "study s-quick" in out
    assert "a: 6 points, 6 runs" in out
    assert "model: resnet50, vgg16" in out
    assert "needs 3 hosts, Python with torch, programs iperf3" in out
    assert re.search(r"a: 6 points, 6 runs, about \d+ min", out)
    assert not (tmp_path / "r").exists()


def test_nothing_is_measured_where_something_is_named(tmp_path, capsys):
    assert main(["study", "salamy", "nightly", "--quick", "--results", str(tmp_path)]) == 2
    assert "nothing is measured" in capsys.readouterr().err


def test_papers_are_listed_with_what_each_shows(capsys):
    assert main(["study"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for name in ("farhat", "hashemi", "li", "salamy", "zerwas"):
        file = paperfile.read(paperfile.find(name))
        assert f"{name}: {file.shows}" in out
    assert "versions: quick, full" in out
    assert main(["study", "--quick"]) == 2
    assert "--quick: no paper is named" in capsys.readouterr().err
    assert main(["study", "mine"]) == 2
    assert re.search(r"no paper mine; accepted: .*salamy", capsys.readouterr().err)


def test_listing_papers_imports_nothing_that_draws_or_computes():
    program = (
        "import sys; from orchestrator.experiment import paperfile; "
        "[paperfile.read(paperfile.find(name)) for name in paperfile.names()]; "
        "print([name for name in ('matplotlib', 'scipy', 'pyarrow', 'duckdb', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
