"""From a path on the command line to a checked experiment, or to the testbed that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import config, fitting, resolved
from orchestrator.experiment.experiment import Experiment, TestbedChoice, on_this_machine
from orchestrator.experiment.experiment import model as experiment_model
from orchestrator.experiment.series import sweepfile
from orchestrator.experiment.testbeds import Named
from orchestrator.experiment.yamlfiles import documents, filevars, includes, renamed
from orchestrator.experiment.yamlfiles.documents import Document
from orchestrator.testbed.inventory import Inventory


def sealed(path: Path) -> Experiment:
    """The experiment of a sealed run, whichever names its keys had when it was written.

    The folder may be somebody else's: it is data about the run. No file that it names is opened, and no host of it is
    reached (`testbeds.reached`).
    """
    document = documents.load(path, needs=config.EXPERIMENT_NEEDS)
    document = replace(document, data=renamed.current(document.data))
    experiment: Experiment = config.validate(document, experiment_model())
    return fitting.fitted(experiment, document.place)


def checked(path: Path, overrides: Sequence[str], *, local: bool) -> tuple[Experiment, Document]:
    """An experiment that is fit to be planned; ConfigError tells every mistake with its place."""
    if sweepfile.is_sweep(path):
        raise ConfigError(f"{path}: is a sweep, not an experiment", hint=f"orch sweep {path}")
    experiment, document = config.load_experiment(path, overrides)
    experiment = on_this_machine(experiment) if local else config.with_allocation(experiment)
    return fitting.fitted(experiment, document.place), document


def resolved_text(experiment: Experiment) -> str:
    """The experiment as YAML with every default spelled out: run again, it is the same experiment."""
    return yaml.safe_dump(resolved.recorded_data(experiment), sort_keys=False, allow_unicode=True)


def inventory_or_experiment(path: Path) -> Inventory | Experiment:
    """What a file is that may be either: an experiment has a `testbed`."""
    found = _inventory_or_experiment(path)
    return found if isinstance(found, Inventory) else config.with_allocation(found)


def named_testbeds(files: Sequence[Path]) -> list[Named]:
    """The testbeds that a caller names by inventories, experiments (whose Slurm is not asked yet) and sweeps."""
    return [Named(choice, str(path)) for path in files for choice in _testbeds_of(path)]


def _testbeds_of(path: Path) -> Sequence[TestbedChoice]:
    if sweepfile.is_sweep(path):
        return sweepfile.load(path).testbeds
    found = _inventory_or_experiment(path)
    return [TestbedChoice(inventory=found) if isinstance(found, Inventory) else found.testbed]


def _inventory_or_experiment(path: Path) -> Inventory | Experiment:
    needs = f"{config.INVENTORY_NEEDS} (an inventory), or {config.EXPERIMENT_NEEDS} (an experiment)"
    document = includes.load(path, needs=needs)
    if "testbed" in document.data:
        return config.experiment_of(document, document.folders)[0]
    return config.validate(config.spelled_out(filevars.filled(document)[0]), Inventory)
