"""From a path on the command line to a checked experiment, or to the testbed that it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import config, fitting, resolved
from orchestrator.experiment.experiment import Experiment, TestbedChoice, on_this_machine
from orchestrator.experiment.experiment import model as experiment_model
from orchestrator.experiment.series import studyfile, sweepfile
from orchestrator.experiment.series.studyfile import Study
from orchestrator.experiment.series.sweepfile import Definition
from orchestrator.experiment.testbeds import Named
from orchestrator.experiment.yamlfiles import filevars, includes, renamed
from orchestrator.experiment.yamlfiles.documents import Document
from orchestrator.testbed.inventory import Inventory

NEEDS = f"{config.EXPERIMENT_NEEDS} (an experiment), or {config.INVENTORY_NEEDS} (an inventory)"


def sealed(run: Path) -> Experiment:
    """The experiment of the run in a folder, whichever names its keys had when it was written.

    The folder may be somebody else's: it is data about the run. No file that it names is opened, and no host of it is
    reached (`testbeds.reached`). StoreError where it cannot be read, ConfigError where it is none of today.
    """
    document = renamed.recorded(run)
    experiment: Experiment = config.validate(document, experiment_model())
    return fitting.fitted(experiment, document.place)


class Checked(NamedTuple):
    """An experiment that is fit to be planned, and the document that it was read from."""

    experiment: Experiment
    document: Document


Planned = Checked | Definition | Study


def opened(path: Path, overrides: Sequence[str] = (), *, local: bool) -> Planned | Inventory:
    """What is in a file that can be planned or examined, whichever of the four it is, fit to be carried out.

    `overrides` are `--set` options, `local` puts hosts of this machine in the place of others; of a study all sweeps of
    its full version are read. ConfigError tells every mistake with its place.
    """
    document = includes.load(path, needs=NEEDS)
    kind = config.kind_of(document.data)
    if kind == "sweep":
        return sweepfile.load(path, overrides, local=local)
    if kind == "study":
        return studyfile.load(path, overrides, quick=False, local=local)
    if kind == "experiment":
        return checked(path, overrides, local=local)
    if overrides:
        raise ConfigError(f"--set {overrides[0]}: {path} is an inventory; accepted: with an experiment or a sweep")
    return _inventory(document)


def experiments(found: Planned) -> list[Experiment]:
    """Each experiment that a file means: a sweep has one a point."""
    if isinstance(found, Checked):
        return [found.experiment]
    definitions = found.sweeps if isinstance(found, Study) else (found,)
    return [point.experiment for definition in definitions for point in definition.points]


def checked(path: Path, overrides: Sequence[str], *, local: bool) -> Checked:
    """An experiment that is fit to be planned; ConfigError tells every mistake with its place."""
    experiment, document = config.load_experiment(path, overrides)
    experiment = on_this_machine(experiment) if local else config.with_allocation(experiment)
    return Checked(fitting.fitted(experiment, document.place), document)


def resolved_text(experiment: Experiment) -> str:
    """The experiment as YAML with every default spelled out: run again, it is the same experiment."""
    return yaml.safe_dump(resolved.recorded_data(experiment), sort_keys=False, allow_unicode=True)


def inventory_or_experiment(path: Path) -> Inventory | Experiment:
    """What a file says of hosts that is one of both; of an experiment nothing else is held against its testbed."""
    found = _inventory_or_experiment(path)
    return found if isinstance(found, Inventory) else config.with_allocation(found)


def named_testbeds(files: Sequence[Path]) -> list[Named]:
    """The testbeds that a caller names by inventories, experiments (whose Slurm is not asked yet) and sweeps."""
    return [Named(choice, str(path)) for path in files for choice in _testbeds_of(path)]


def _testbeds_of(path: Path) -> Sequence[TestbedChoice]:
    if config.kind_of(includes.load(path, needs=NEEDS).data) == "sweep":
        return sweepfile.load(path).testbeds
    found = _inventory_or_experiment(path)
    return [TestbedChoice(inventory=found) if isinstance(found, Inventory) else found.testbed]


def _inventory_or_experiment(path: Path) -> Inventory | Experiment:
    document = includes.load(path, needs=NEEDS)
    if config.kind_of(document.data) == "inventory":
        return _inventory(document)
    config.refuse_other(path, document, "experiment")
    return config.experiment_of(document, document.folders)[0]


def _inventory(document: Document) -> Inventory:
    return config.validate(config.spelled_out(filevars.filled(document)[0]), Inventory)
