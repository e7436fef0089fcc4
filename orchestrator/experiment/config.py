"""From YAML to a checked experiment; every mistake is told as file:line:column, path, what is wrong, what would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.core import safepath
from orchestrator.core.errors import ConfigError
from orchestrator.experiment import documents
from orchestrator.experiment.documents import Document
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.experiment import model as experiment_model
from orchestrator.experiment.mistakes import explained
from orchestrator.testbed.inventory import Inventory

M = TypeVar("M", bound=BaseModel)

EXPERIMENT_NEEDS = "name, testbed, workload and measure"
INVENTORY_NEEDS = "link and hosts"


def validate(document: Document, model: type[M]) -> M:
    """Check a document against a model; one ConfigError tells every mistake, each with its place."""
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise ConfigError("\n".join(explained(document, model, error.errors(include_url=False)))) from None


def load_experiment(path: Path, options: Sequence[str] = ()) -> tuple[Experiment, Document]:
    """Read an experiment file with its `--set` options, and the inventory file that it names."""
    return experiment_of(documents.load(path, needs=EXPERIMENT_NEEDS), path, options)


def experiment_of(document: Document, path: Path, options: Sequence[str] = ()) -> tuple[Experiment, Document]:
    """The experiment in a document that was read from `path`."""
    document = documents.with_overrides(document, options)
    testbed = document.data.get("testbed")
    named = testbed.get("inventory") if isinstance(testbed, dict) else None
    if isinstance(named, str):
        inventory = documents.load(_beside(named, path, document), needs=INVENTORY_NEEDS)
        validate(inventory, Inventory)
        data = {**document.data, "testbed": {**testbed, "inventory": inventory.data}}
        document = replace(document, data=data, parts={("testbed", "inventory"): inventory})
    return validate(document, experiment_model()), document


def _beside(named: str, experiment: Path, document: Document) -> Path:
    """An inventory's path: as it is, or beside the experiment file."""
    tried = dict.fromkeys([Path(named), experiment.parent / named])
    for candidate in tried:
        if safepath.is_there(candidate):
            return candidate
    at = document.place(("testbed", "inventory"))
    raise ConfigError(
        f"{at}: testbed.inventory: no file {' nor '.join(map(str, tried))}; accepted: the path of an inventory file, "
        "as it is or from the experiment file's folder"
    )
