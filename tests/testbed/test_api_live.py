"""An experiment that a program measures, and the notebooks of the documentation."""

from __future__ import annotations

import pytest

from orchestrator import Store, load, run
from tests.helpers import notebooks
from tests.helpers.orch_runs import light, nothing_is_left, write

pytestmark = [pytest.mark.testbed, pytest.mark.variants]


def test_a_program_measures_an_experiment_and_reads_its_runs(tmp_path, capfd):
    path = write(tmp_path, light(collect=["tcpdump", "nic"]))
    experiment = load(path, settings={"measure.iterations": 10, "repetitions": 2})
    measured = run(experiment, results=tmp_path / "results", wait="5min", quiet=True)
    assert capfd.readouterr() == ("", "")
    assert [one.outcome for one in measured] == ["completed"] * 2, [one.error for one in measured]
    store = Store(tmp_path / "results")
    assert [one.id for one in store.runs()] == [one.id for one in measured]
    counted = store.frame("select run, count(distinct iteration) as n from iterations group by all order by run")
    assert list(counted.n) == [10, 10]
    assert measured[0].report().is_file()
    for one in measured:
        nothing_is_left(one.id)


def test_a_run_that_fails_is_among_the_runs_with_its_error(tmp_path):
    broken = light(
        workload={"command": {"argv": ["false"], "iterations": {"pattern": r"(?P<seconds>\d+)"}, "hosts": ["h1", "h2"]}}
    )
    (measured,) = run(write(tmp_path, broken), results=tmp_path / "results", wait="5min", quiet=True)
    assert (measured.outcome, measured.valid) == ("failed", False)
    assert "the command ended with status 1" in (measured.error or "")


@pytest.mark.parametrize("path", sorted(notebooks.FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_can_be_carried_out_and_shows_something_in_every_cell(path, tmp_path):
    notebooks.store(tmp_path / "results")
    done = notebooks.carried_out(path, tmp_path)
    cells = [cell for cell in done.cells if cell.cell_type == "code"]
    assert len(cells) >= 5
    assert all(cell.outputs for cell in cells)
