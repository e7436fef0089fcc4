"""What programs and notebooks use: `from orchestrator import load, run, Store`."""

from __future__ import annotations

import subprocess
import sys
import types

import numpy as np
import pytest

import orchestrator
from orchestrator import Store, load, run
from orchestrator.api.results import MeasuredRun
from orchestrator.core.errors import ConfigError, StoreError
from tests.helpers import notebooks
from tests.helpers.experiments import GOOD


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(notebooks.store(tmp_path_factory.mktemp("store")))


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


def test_importing_the_package_imports_nothing_else_of_it_nor_a_library():
    code = "import sys; known = set(sys.modules); import orchestrator; print(*sorted(set(sys.modules) - known))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=notebooks.ROOT)
    assert {name.partition(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names == {"orchestrator"}
    assert [name for name in done.stdout.split() if name.startswith("orchestrator.")] == []


def test_a_run_is_opened_by_a_name_in_the_current_folder(store, monkeypatch):
    folder = store.runs()[0].path.absolute()
    monkeypatch.chdir(folder.parent)
    assert MeasuredRun(folder.name).id == folder.name


def test_run_is_the_function_whatever_was_imported_below_the_package():
    code = (
        "from orchestrator.execution import execute; import orchestrator; from orchestrator import run;"
        "import orchestrator.api.running; assert run is orchestrator.run and callable(run) and execute.carry_out;"
        "from orchestrator import Store, __version__"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=notebooks.ROOT)
    assert isinstance(run, types.FunctionType)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        orchestrator.nothing  # noqa: B018 - is what is tried


def test_a_file_is_loaded_with_settings_of_any_kind(good):
    settings = {
        "measure.iterations": 25,
        "testbed.local.links.h2": "400mbit",
        "workload.ddp.hosts": ["h1", "h2"],
        "validity.drift": "ignore",
        "workload.ddp.env": {"A": "1e3", "B": "on"},
        "traffic": [],
        "seed": 7,
    }
    found = load(good, settings=settings)
    assert (found.measure.iterations, found.seed, found.traffic) == (25, 7, ())
    assert found.testbed.local.links == {"h2": 400e6}
    assert found.workload.config.env == {"A": "1e3", "B": "on"}
    assert load(str(good)).repetitions == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"measure.iterations": 0}, "--set measure.iterations=0: measure.iterations: 0 is too small"),
        ({"seed": np.int64(7)}, "seed: a int64 cannot stand in a file"),
        ({"no.such": 1}, "no"),
    ],
)
def test_a_mistake_is_one_error_that_names_it(good, settings, told):
    with pytest.raises(ConfigError, match=told):
        load(good, settings=settings)


def test_runs_are_found_as_by_orch_ls(store):
    assert [one.experiment for one in store.runs(experiment="traffic")] == ["traffic"]
    everything = store.runs()
    assert [one.id for one in everything] == sorted(one.id for one in everything)
    assert store.runs(where="load>4gbit", experiment="traffic")
    assert store.runs(where=["load>400gbit"], experiment="traffic") == []
    assert store.run("last").id == everything[-1].id
    with pytest.raises(StoreError, match="no such run"):
        store.run("20200101")


def test_a_run_has_its_verdict_and_its_tables(store):
    (measured,) = store.runs(experiment="traffic")
    assert (measured.outcome, measured.scale, measured.error) == ("completed", 100, None)
    assert repr(measured).startswith(f"<run {measured.id} of traffic: completed, ")
    assert "iterations" in str(measured)
    table = measured.table("iterations")
    frame = measured.frame("iterations")
    assert list(frame.columns) == table.column_names
    assert frame.seconds.sum() == pytest.approx(sum(table["seconds"].to_pylist()))
    with pytest.raises(StoreError, match="there is no table 'nothing'"):
        measured.table("nothing")
    assert measured.table("accuracy").num_rows == 0


def test_a_query_is_over_all_runs_or_those_that_are_named(store):
    sql = "select distinct run from iterations"
    assert len(store.frame(sql)) == len(store.runs())
    (one,) = store.runs(experiment="traffic")
    assert store.query(sql, runs=[one]).to_pydict() == {"run": [one.id]}
    assert store.query(sql, runs=[]).num_rows == 0
    with pytest.raises(ConfigError, match="iteration"):
        store.query("select seconds from iteration")


def test_nights_are_compared_and_the_step_is_found(store):
    histories = store.history("nightly")
    days = histories[0].days
    sides = [",".join(f"nightly@{day}" for day in side) for side in (days[:5], days[-2:])]
    assert store.compare(*sides).of("worse") == [], "5 % is less than nights may differ if they differ by 2 %"
    found = store.compare(*sides, night_spread=0.005)
    assert list(found.frame()["label"]) == ["load 0gbit", "load 8gbit", "load 16gbit"]
    assert [point.verdict for point in found.points] == ["worse", "worse", "cannot tell"], "the last is noisy"
    lenient = store.compare(found.found.a.name, found.found.b.name, margin=0.2)
    assert lenient.of("worse") == []
    assert "worse" in str(found)
    assert found._repr_markdown_().startswith("#")
    with pytest.raises(ConfigError, match="margin: 5 is not a share"):
        store.compare("a", "b", margin=5)
    with pytest.raises(StoreError, match="no night of"):
        store.history("nothing")


def test_a_figure_is_that_of_the_report_and_is_saved_by_its_ending(store, tmp_path):
    (measured,) = store.runs(experiment="traffic")
    drawn = measured.draw("iterations")
    assert drawn.title == "Iteration time"
    assert drawn.caption
    assert drawn._repr_png_().startswith(b"\x89PNG")
    assert drawn.save(tmp_path / "a.svg").read_text().startswith("<?xml")
    with pytest.raises(StoreError, match="cannot be written"):
        drawn.save(tmp_path / "a.nothing")
    with pytest.raises(ConfigError, match="accepted: over-load, iterations, cdf"):
        measured.draw("nothing")
    with pytest.raises(StoreError, match="no data for it"):
        measured.draw("accuracy")
    assert store.draw("cdf", store.runs(experiment="nightly")[:2]).caption
