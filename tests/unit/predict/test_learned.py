"""What predictions learn of runs of the same training alone: the time for which no cost stands, and of whom not."""

from __future__ import annotations

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
    return store


def changed(store: Path, **changes: Any) -> None:
    (file,) = store.glob("traffic/*/experiment.yaml")
    file.write_text(yaml.safe_dump(TRAINING | changes, sort_keys=False))


def asked(tmp_path: Path, **changes: Any) -> Experiment:
    path = tmp_path / "asked.yaml"
    path.write_text(yaml.safe_dump(TRAINING | changes, sort_keys=False))
    return loading.checked(path, [], local=False).experiment


def told(store: Path, tmp_path: Path, **changes: Any) -> Learned:
    experiment = asked(tmp_path, **changes)
    return learned.find(store, experiment, inputs.usual(fitting.topology_of(experiment)))


def median_s(store: Path) -> float:
    (run,) = (store / "traffic").iterdir()
    rows = tables.read(run / "tables", "iterations").to_pylist()
    return float(np.median([row["seconds"] for row in rows if row["window_name"] and row["rank"] == 0]))


def test_what_a_run_alone_took_beyond_its_simulation_is_added_to_every_iteration(results: Path, tmp_path: Path) -> None:
    known = told(results, tmp_path, traffic=BESIDE)
    (beside,) = known.beside.values()
    assert set(known.beside) == {("w1", "training")}
    assert 0 < beside.low < beside.value < beside.high
    assert "alone" in beside.source
    (quantity,) = known.quantities().values()
    assert quantity == beside
    alone = asked(tmp_path, name="again")
    costs = inputs.usual(fitting.topology_of(alone))
    how = How(draws=1, beside=known.beside)
    ((without,), (with_it,)) = (
        foreseeing.foresee(alone, costs, file="x", how=one)[0].jobs for one in (How(draws=1), how)
    )
    assert without.p50.value == pytest.approx(median_s(results) - beside.value, rel=1e-3)
    assert with_it.p50.value == pytest.approx(median_s(results), rel=0.02)
    drawn = foreseeing.foresee(alone, costs, file="x", how=How(draws=5, beside=known.beside))[0].jobs[0].mean
    assert drawn.interval is not None


def test_a_simulation_that_is_too_long_is_shortened_by_its_last_step_at_most(tmp_path: Path) -> None:
    alone = asked(tmp_path)
    costs = inputs.usual(fitting.topology_of(alone))
    least = learned.Quantity(value=-1.0, low=-1.0, high=-1.0, source="a test")
    hows = [How(draws=1), How(draws=1, beside={("w1", "training"): least})]
    usual_s, less_s = (foreseeing.foresee(alone, costs, file="x", how=how)[0].jobs[0].mean.value for how in hows)
    assert less_s == pytest.approx(usual_s - costs.step_s.value, rel=0.01)


@pytest.mark.parametrize(
    "changes",
    [
        {
            "traffic": BESIDE,
            "workload": {"ddp": {"model": "mobilenet_v2", "compute_time": "40ms", "hosts": ["h1", "h2"]}},
        },
        {"traffic": BESIDE, "testbed": {"local": {"hosts": 3, "link": "25gbit", "scale": 50}}},
        {"traffic": BESIDE, "testbed": {"local": {"hosts": 3, "link": "25gbit", "scale": 100, "dilation": 2}}},
        {"traffic": []},
    ],
    ids=["another training", "another scale", "dilated", "the very window that was measured"],
)
def test_another_setting_tells_nothing(changes: dict[str, Any], results: Path, tmp_path: Path) -> None:
    assert told(results, tmp_path, **changes).beside == {}


@pytest.mark.parametrize(
    "changes",
    [{"traffic": BESIDE}, {"conditions": [{"rate": {"host": "h1", "where": "nic", "rate": "5gbit"}}]}],
    ids=["with traffic", "on a slow link"],
)
def test_a_run_that_was_not_alone_tells_nothing(changes: dict[str, Any], results: Path, tmp_path: Path) -> None:
    changed(results, **changes)
    assert (
        told(results, tmp_path, traffic=BESIDE, testbed={"local": {"hosts": 3, "link": "8gbit", "scale": 100}})
        == Learned()
    )


def test_named_runs_that_tell_nothing_are_an_error(results: Path, tmp_path: Path) -> None:
    experiment = asked(tmp_path, testbed={"local": {"hosts": 3, "link": "25gbit", "scale": 50}})
    costs = inputs.usual(fitting.topology_of(experiment))
    with pytest.raises(StoreError, match="tells nothing"):
        learned.find(results, experiment, costs, named=list(index.entries(results)))
