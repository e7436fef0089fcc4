"""Open a file named on a command line, of any kind: an experiment, a sweep, a study or an inventory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import documents, loading, paperfile, sweepfile
from orchestrator.experiment.documents import Document
from orchestrator.experiment.experiment import Experiment, TestbedChoice
from orchestrator.experiment.loading import Checked
from orchestrator.experiment.paperfile import Study
from orchestrator.experiment.sweepfile import Definition
from orchestrator.experiment.testbeds import Named
from orchestrator.experiment.validation import validate
from orchestrator.testbed.inventory import Inventory

NEEDS = f"{loading.EXPERIMENT_NEEDS} (an experiment), or {loading.INVENTORY_NEEDS} (an inventory)"

Planned = Checked | Definition | Study


def open_file(path: Path, overrides: Sequence[str] = (), *, local: bool) -> Planned | Inventory:
    """Read and check a file that can be planned or examined, of any kind.

    `overrides` are `--set` options, `local` puts hosts of this machine in the place of others; of a paper all
    sweeps of its full version are read. ConfigError tells every mistake with its place.
    """
    document = documents.load(path, needs=NEEDS)
    kind = loading.kind_of(document.data)
    if kind == "sweep":
        return sweepfile.definition(document, overrides, local=local)
    if kind == "paper":
        return paperfile.study(document, overrides, version=paperfile.FULL, local=local)
    if kind == "experiment":
        return loading.checked_document(document, overrides, local=local)
    if overrides:
        raise ConfigError(f"--set {overrides[0]}: {path} is an inventory; accepted: with an experiment or a sweep")
    return _inventory(document)


def experiments(found: Planned) -> list[Experiment]:
    """Return the experiments of a file: a sweep has one for each point."""
    if isinstance(found, Checked):
        return [found.experiment]
    definitions = found.sweeps if isinstance(found, Study) else (found,)
    return [point.experiment for definition in definitions for point in definition.points]


def inventory_or_experiment(path: Path) -> Inventory | Experiment:
    """Read the hosts of an inventory or an experiment; nothing of an experiment is checked against its testbed."""
    found = _inventory_or_experiment(documents.load(path, needs=NEEDS))
    return found if isinstance(found, Inventory) else loading.with_allocation(found)


def named_testbeds(files: Sequence[Path]) -> list[Named]:
    """Read the testbeds of inventories, experiments (whose Slurm is not asked yet) and sweeps that a caller names."""
    return [Named(choice, str(path)) for path in files for choice in _testbeds_of(path)]


def _testbeds_of(path: Path) -> Sequence[TestbedChoice]:
    document = documents.load(path, needs=NEEDS)
    if loading.kind_of(document.data) == "sweep":
        return sweepfile.definition(document, local=False).testbeds
    found = _inventory_or_experiment(document)
    return [TestbedChoice(inventory=found) if isinstance(found, Inventory) else found.testbed]


def _inventory_or_experiment(document: Document) -> Inventory | Experiment:
    if loading.kind_of(document.data) == "inventory":
        return _inventory(document)
    loading.refuse_other(document, "experiment")
    expanded = loading.with_hosts(loading.changed(document, ()), document.folders)
    return loading.validated(expanded, document.folders)


def _inventory(document: Document) -> Inventory:
    return validate(loading.with_nodesets(document), Inventory)
