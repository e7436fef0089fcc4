"""From YAML to a checked experiment; every mistake is told as file:line:column, path, what is wrong, what would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

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

Kind = Literal["experiment", "sweep", "study", "inventory"]

EXPERIMENT_NEEDS = "name, testbed, workload and measure"
INVENTORY_NEEDS = "link and hosts"


def kind_of(data: Mapping[str, object]) -> Kind:
    """What a file is of those that can be planned or examined, by the keys at its top."""
    if "experiment" in data and "workload" not in data:
        return "sweep"
    if "paper" in data and data.keys() & {"quick", "full"}:
        return "study"
    of_experiments = {"testbed", "workload", "jobs", "measure", "traffic"}
    return "inventory" if data.keys() & {"hosts", "link"} and not data.keys() & of_experiments else "experiment"


def refuse_other(path: Path, document: Document, wanted: Kind) -> None:
    """Raise ConfigError for a file that is of another kind, with what takes it."""
    kind = kind_of(document.data)
    if kind == wanted:
        return
    what = {"experiment": "an experiment", "sweep": "a sweep", "study": "a study", "inventory": "an inventory"}
    hint = {
        "experiment": "name it under `experiment` of a sweep file" if wanted == "sweep" else f"orch run {path}",
        "sweep": f"orch sweep {path}",
        "study": f"orch study {document.data.get('paper')} --file {path}",
        "inventory": f"orch doctor {path}, or name it in an experiment: `testbed: {{inventory: {path.name}}}`",
    }
    raise ConfigError(f"{path}: is {what[kind]}, not {what[wanted]}", hint=hint[kind])


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
    refuse_other(path, document, "experiment")
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
    document = includes.load(path, needs=INVENTORY_NEEDS)
    refuse_other(path, document, "inventory")
    return spelled_out(filevars.filled(document)[0])


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
