"""Every playbook gives a number for its first experiment and each kind in it, or has a reason of physics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import yaml

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import fitting, loading, sweepfile
from orchestrator.experiment.experiment import Experiment
from orchestrator.predict import computing, foreseeing, inputs
from orchestrator.predict.foreseeing import ForeseenWindow, How

ROOT = Path(__file__).parents[3]
PLAYBOOKS = ROOT / "playbooks"
RACK = PLAYBOOKS / "testbeds" / "example-rack.yaml"
FILES = sorted(
    path
    for folder in ("experiments", "sweeps", "papers")
    for path in (PLAYBOOKS / folder).rglob("*.yaml")
    if path.name != "paper.yaml"
)
MARKS = "the simulation knows nothing of the condition ecn"
PROGRAM = "workload command does not say what its program computes and sends"
UNKNOWN = {  # files of the first experiment of a kind that gives no number, and why
    "papers/congestion/dctcp.yaml": MARKS,
    "papers/congestion/two.yaml": MARKS,
    "papers/open/quick-replayed.yaml": PROGRAM,
    "papers/open/replayed-base.yaml": PROGRAM,
}


def experiments(path: Path, folder: Path) -> Iterator[Experiment]:
    """Yield the experiment of a file, or of each point of a sweep; those of clusters on a rack."""
    told = []
    if path.name.startswith("cluster"):
        rack = folder / "rack.yaml"
        rack.write_text(RACK.read_text().replace("10gbit", "25gbit"))
        told = [f"testbed={{inventory: {rack}}}"]
    data = yaml.safe_load(path.read_text())
    local = "slurm:" in path.read_text()
    if loading.kind_of(data) == "sweep":
        yield from (point.experiment for point in sweepfile.load(path, told, local=local).points)
    elif loading.kind_of(data) == "experiment":
        yield loading.checked(path, told, local=local).experiment


def kind(experiment: Experiment) -> tuple[object, ...]:
    """Return which parts of the simulation an experiment needs."""
    options = ("compute", "order", "strategy", "algorithm", "framework", "library")
    jobs = tuple(
        (
            spec.workload.name,
            *(getattr(spec.workload.config, name, None) for name in options),
            spec.start is not None,
            spec.every is not None,
        )
        for spec in experiment.all_jobs()
    )
    sources = frozenset(choice.name for window in experiment.all_windows() for choice in window.traffic)
    conditions = frozenset(choice.name for choice in experiment.conditions)
    topology = fitting.topology_of(experiment)
    return jobs, sources, conditions, topology.kind, topology.fabric is not None, topology.rails


def read(path: Path, folder: Path) -> list[Experiment]:
    """Return the experiments of a file; none of one that only its sweeps make whole, on hosts with GPUs."""
    try:
        return list(experiments(path, folder))
    except ConfigError as error:
        if "needs a GPU for each rank" in str(error):
            return []
        raise


def subjects(folder: Path) -> Iterator[tuple[str, Experiment]]:
    """Yield the first experiment of each file, and those of a kind that none before has, with the file."""
    seen: set[tuple[object, ...]] = set()
    for path in FILES:
        for place, one in enumerate(read(path, folder)):
            if place == 0 or kind(one) not in seen:
                seen.add(kind(one))
                yield str(path.relative_to(PLAYBOOKS)), one


def foretold(file: str, experiment: Experiment) -> list[ForeseenWindow] | str:
    """Return the windows by a quick simulation, or why there is none."""
    few = {window.name: 1 for window in experiment.all_windows()}
    costs = inputs.usual(fitting.topology_of(experiment))
    try:
        computed = computing.find(ROOT / "tests/data/store", experiment)
        how = How(draws=1, grain="flows", iterations=few, computed=computed)
        return foreseeing.foresee(experiment, costs, file=file, how=how)
    except ConfigError as error:
        return str(error)


def test_every_playbook_gives_a_number_or_says_which_physics_is_unknown(tmp_path: Path) -> None:
    refused: dict[str, str] = {}
    for file, one in subjects(tmp_path):
        found = foretold(file, one)
        if isinstance(found, str):
            refused[file] = found
            continue
        assert [window.window for window in found] == [window.name for window in one.all_windows()], file
        jobs = [job for window in found for job in window.jobs]
        assert all(math.isfinite(job.mean.value) and job.mean.value >= job.compute_s for job in jobs), file
    assert {file: why for file, why in refused.items() if UNKNOWN.get(file, "refused without need") not in why} == {}
    assert refused.keys() == UNKNOWN.keys(), "now predicted: take it out of the list"
