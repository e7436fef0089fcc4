"""From YAML to a checked experiment; every mistake is told as file:line:column, path, what is wrong, what would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.core import lookup
from orchestrator.core.errors import ConfigError
from orchestrator.experiment import documents, nodesets
from orchestrator.experiment.documents import Document, Keys
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.experiment import model as experiment_model
from orchestrator.experiment.mistakes import explained
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
    return experiment_of(documents.load(path, needs=EXPERIMENT_NEEDS), [path.parent], options)


def experiment_of(
    document: Document, folders: Sequence[Path], options: Sequence[str] = ()
) -> tuple[Experiment, Document]:
    """The experiment in a document that was read from files of these folders; files that it names are beside them."""
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
    """An inventory file with its node sets spelled out."""
    return spelled_out(documents.load(path, needs=INVENTORY_NEEDS), path)


def spelled_out(document: Document, path: Path) -> Document:
    """The same of a file that has been read."""
    return replace(document, data=nodesets.expanded(document.data, [path.parent], where=str(path)))


def named_by(document: Document, at: Keys, folders: Sequence[Path]) -> Path:
    """The path of a file that a document names at a place; ConfigError tells where it was looked up."""
    named = str(document.value(at))
    found = lookup.find(named, folders)
    if found is None:
        where = f"{document.place(at)}: {documents.dotted(at)}"
        raise ConfigError(f"{where}: {lookup.nowhere(named, folders)}; accepted: {lookup.ACCEPTED}")
    return found
