"""What predictions learn of runs of the same training alone: the time for which no cost stands, and of whom not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from orchestrator.core.errors import StoreError
from orchestrator.experiment import fitting, loading
from orchestrator.experiment.experiment import Experiment
from orchestrator.predict import foreseeing, inputs, learned
from orchestrator.predict.foreseeing import How
from orchestrator.predict.learned import Learned
from orchestrator.store import index
from orchestrator.store.tabular import tables
from tests.helpers.experiments import orch

ROOT = Path(__file__).parents[3]
BESIDE = [{"iperf": {"from": "h1", "to": "h3", "load": "5gbit"}}]
TRAINING: dict[str, Any] = {  # of the run in tests/data/store/traffic
    "name": "traffic",
    "testbed": {"local": {"hosts": 3, "link": "25gbit", "scale": 100}},
    "workload": {"ddp": {"model": "mobilenet_v2", "compute_time": "20ms", "hosts": ["h1", "h2"]}},
    "measure": {"warmup": 2, "iterations": 20},
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Return a store with a run of DDP, of which the experiment is changed to one alone on its links."""
    store = tmp_path / "results"
    shutil.copytree(ROOT / "tests/data/store/traffic", store / "traffic")
    changed(store)
    of_the_window(store, loads=[])
    return store


def changed(store: Path, **changes: Any) -> None:
    (file,) = store.glob("traffic/*/experiment.yaml")
    file.write_text(yaml.safe_dump(TRAINING | changes, sort_keys=False))


def of_the_window(store: Path, **changes: Any) -> None:
    """Change what the run's manifest says of its window."""
    (file,) = store.glob("traffic/*/manifest.json")
    data = json.loads(file.read_text())
    data["windows"][0] |= changes
    file.write_text(json.dumps(data))


def asked(tmp_path: Path, **changes: Any) -> Experiment:
    path = tmp_path / "asked.yaml"
    path.write_text(yaml.safe_dump(TRAINING | changes, sort_keys=False))
    return loading.checked(path, [], local=False).experiment


def told(store: Path, *experiments: Experiment) -> list[Learned]:
    return learned.find(store, experiments, inputs.usual(fitting.topology_of(experiments[0])))


def median_s(store: Path) -> float:
    (run,) = (store / "traffic").iterdir()
    rows = tables.read(run / "tables", "iterations").to_pylist()
    return float(np.median([row["seconds"] for row in rows if row["window_name"] and row["rank"] == 0]))


def test_what_a_run_alone_took_beyond_its_simulation_is_added_to_every_iteration(results: Path, tmp_path: Path) -> None:
    alone = asked(tmp_path, name="again")
    costs = inputs.usual(fitting.topology_of(alone))
    (known,) = told(results, alone)
    beside = known.beside["training"]
    assert 0 < beside.low < beside.value < beside.high
    (quantity,) = known.quantities().values()
    assert quantity == beside
    assert "alone" in beside.source
    assert all(run in beside.source for run in known.runs)
    hows = [How(draws=1), How(draws=1, beside=known.beside)]
    without_s, with_s = (foreseeing.foresee(alone, costs, file="x", how=how)[0].jobs[0].p50.value for how in hows)
    assert without_s == pytest.approx(median_s(results) - beside.value, rel=1e-3)
    assert with_s == pytest.approx(median_s(results), rel=0.02)
    drawn = foreseeing.foresee(alone, costs, file="x", how=How(draws=5, beside=known.beside))[0].jobs[0].mean
    assert drawn.interval is not None


def test_a_simulation_that_is_too_long_is_shortened_by_its_last_step_at_most(tmp_path: Path) -> None:
    alone = asked(tmp_path)
    costs = inputs.usual(fitting.topology_of(alone))
    less = learned.Quantity(value=-1.0, low=-1.0, high=-1.0, source="a test")
    hows = [How(draws=1), How(draws=1, beside={"training": less})]
    usual_s, less_s = (foreseeing.foresee(alone, costs, file="x", how=how)[0].jobs[0].mean.value for how in hows)
    assert less_s == pytest.approx(usual_s - costs.step_s.value, rel=0.01)


LOCAL = {"hosts": 3, "link": "25gbit", "scale": 100}
OTHERS: dict[str, dict[str, Any]] = {
    "another training": {"workload": {"ddp": {"model": "mobilenet_v2", "compute_time": "40ms", "hosts": ["h1", "h2"]}}},
    "traced": {"workload": {"ddp": {**TRAINING["workload"]["ddp"], "trace": False}}},
    "two ranks to a host": {"workload": {"ddp": {**TRAINING["workload"]["ddp"], "hosts": ["h1", "h1"]}}},
    "another scale": {"testbed": {"local": {**LOCAL, "scale": 50}}},
    "dilated": {"testbed": {"local": {**LOCAL, "dilation": 2}}},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_another_setting_tells_nothing_and_takes_it_from_all(
    changes: dict[str, Any], results: Path, tmp_path: Path
) -> None:
    same, other = asked(tmp_path, traffic=BESIDE), asked(tmp_path, **changes)
    assert told(results, other) == [Learned()]
    assert [one.beside for one in told(results, same, other)] == [{}, {}]
    assert all(one.beside for one in told(results, same, same))


FABRIC = {"fabric": {"leaves": 2, "spines": 2, "hosts": 2}, "link": "25gbit", "scale": 100}
NOT_ALONE: dict[str, dict[str, Any]] = {
    "traffic": {"traffic": BESIDE},
    "a slow link": {"conditions": [{"rate": {"host": "h1", "where": "nic", "rate": "5gbit"}}]},
    "spines that nobody knows": {"testbed": {"local": FABRIC}},
    "another job": {"workload": None, "jobs": [{"name": name, "workload": TRAINING["workload"]} for name in "ab"]},
    "a part of another version": {"workload": {"unheard": {}}},
}


@pytest.mark.parametrize("changes", NOT_ALONE.values(), ids=NOT_ALONE)
def test_a_run_that_was_not_alone_tells_nothing(changes: dict[str, Any], results: Path, tmp_path: Path) -> None:
    changed(results, **changes)
    assert told(results, asked(tmp_path, testbed={"local": {**LOCAL, "link": "8gbit"}})) == [Learned()]


def test_a_run_beside_load_is_not_even_opened(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = {"source": "iperf0", "src": "h1", "dst": "h3", "requested_bps": 5e9}
    of_the_window(results, loads=[load])
    monkeypatch.setattr(learned.loading, "sealed", None)
    assert told(results, asked(tmp_path)) == [Learned()]


def test_an_invalid_window_tells_nothing_unless_its_run_is_named(results: Path, tmp_path: Path) -> None:
    of_the_window(results, valid=False, reasons=["a test"])
    alone = asked(tmp_path)
    costs = inputs.usual(fitting.topology_of(alone))
    assert learned.find(results, [alone], costs) == [Learned()]
    (known,) = learned.find(results, [alone], costs, named=list(index.entries(results)))
    assert known.beside


def test_named_runs_that_tell_nothing_are_an_error(results: Path, tmp_path: Path) -> None:
    experiment = asked(tmp_path, testbed={"local": {**LOCAL, "scale": 50}})
    costs = inputs.usual(fitting.topology_of(experiment))
    with pytest.raises(StoreError, match="tells nothing"):
        learned.find(results, [experiment], costs, named=list(index.entries(results)))


def test_a_run_that_told_of_a_prediction_is_no_check_of_it(results: Path, tmp_path: Path) -> None:
    asked(tmp_path)
    status, out, err = orch("predict", str(tmp_path / "asked.yaml"), "--results", str(results), "--draws", "1")
    assert status == 0, err
    assert "learned from it" in out
    assert "training, beside computing and messages" in out
    status, out, _ = orch("predict", str(tmp_path / "asked.yaml"), "--results", str(results), "--draws", "1", "--json")
    (window,) = json.loads(out)["windows"]
    assert window["jobs"][0]["measured"]["learned_from"] is True
