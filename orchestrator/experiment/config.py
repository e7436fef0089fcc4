"""From YAML to a checked experiment; every mistake is told as file:line:column, path, what is wrong, what would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.core.errors import ConfigError
from orchestrator.core.paths import lookup
from orchestrator.experiment import testbeds
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.experiment import model as experiment_model
from orchestrator.experiment.yamlfiles import documents, filevars, includes, nodesets
from orchestrator.experiment.yamlfiles.documents import Document, Keys
from orchestrator.experiment.yamlfiles.mistakes import explained
from orchestrator.testbed.inventory import Inventory

M = TypeVar("M", bound=BaseModel)

EXPERIMENT_NEEDS = "name, testbed, workload and measure"
INVENTORY_NEEDS = "link and hosts"


def validate(document: Document, model: type[M], *, folders: Sequence[Path] | None = None) -> M:
    """Check a document against a model; one ConfigError tells every mistake, each with its place.

    Files that it names are looked up in `folders`; without any they are taken as they are named.
    """
    try:
        return model.model_validate(document.data, context=None if folders is None else lookup.context(*folders))
    except ValidationError as error:
        raise ConfigError("\n".join(explained(document, model, error.errors(include_url=False)))) from None


def load_experiment(path: Path, options: Sequence[str] = ()) -> tuple[Experiment, Document]:
    """Read an experiment file with its `--set` options, and the inventory file that it names."""
    document = includes.load(path, needs=EXPERIMENT_NEEDS)
    return experiment_of(document, document.folders, options)


def experiment_of(
    document: Document, folders: Sequence[Path], options: Sequence[str] = ()
) -> tuple[Experiment, Document]:
    """The experiment in a document that was read from files of these folders; files that it names are beside them.

    Of a Slurm allocation it says what was learned of it before, if anything: see `with_allocation`.
    """
    document, options = filevars.filled(document, options)
    document = documents.with_overrides(document, options)
    testbed = document.data.get("testbed")
    named = testbed.get("inventory") if isinstance(testbed, dict) else None
    if isinstance(named, str):
        inventory = load_inventory(named_by(document, ("testbed", "inventory"), folders))
        validate(inventory, Inventory)
        data = {**document.data, "testbed": {**testbed, "inventory": inventory.data}}
        document = replace(document, data=data, parts={("testbed", "inventory"): inventory})
    elif isinstance(named, dict):
        hosts = nodesets.expanded(named, folders, where=document.place(("testbed", "inventory")))
        document = replace(document, data={**document.data, "testbed": {**testbed, "inventory": hosts}})
    return validate(document, experiment_model(), folders=folders), document


def load_inventory(path: Path) -> Document:
    """Read an inventory file: its includes, the defaults of its variables, and its node sets spelled out."""
    return spelled_out(filevars.filled(includes.load(path, needs=INVENTORY_NEEDS))[0])


def spelled_out(document: Document) -> Document:
    """An inventory that has been read, with its node sets spelled out."""
    return replace(document, data=nodesets.expanded(document.data, document.folders, where=document.name))


def with_allocation(experiment: Experiment) -> Experiment:
    """An experiment on hosts of Slurm with what those of the allocation that this process is in say of themselves.

    Outside of one it keeps what was learned before. TestbedError where the hosts cannot be asked.
    """
    if (spec := experiment.testbed.slurm) is None:
        return experiment
    testbed = experiment.testbed.model_copy(update={"slurm": testbeds.learned(spec)})
    return experiment.model_copy(update={"testbed": testbed})


def named_by(document: Document, at: Keys, folders: Sequence[Path]) -> Path:
    """The path of a file that a document names at a place; ConfigError tells where it was looked up."""
    named = str(document.value(at))
    found = lookup.find(named, folders)
    if found is None:
        where = f"{document.place(at)}: {documents.dotted(at)}"
        raise ConfigError(f"{where}: {lookup.nowhere(named, folders)}; accepted: {lookup.ACCEPTED}")
    return found
