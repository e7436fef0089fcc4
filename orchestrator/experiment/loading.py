"""Read an experiment file in one pass of stages, each of which takes the result of the stage before it.

1. read: the file and those that it includes, as a document that knows where each value stands (`documents.load`)
2. fill in: values of variables in the place of `$name` (`variables.filled`)
3. override: `--set` options over what stands there (`variables.with_overrides`)
4. expand: the inventory file that is named, and its node sets (`with_hosts`, `nodesets.expanded`)
5. validate: the experiment that the document describes (`validation.validate`)
6. choose the hosts: those of this machine, of the Slurm allocation, or pods (`on_this_machine`, `with_allocation`)
7. fit: loads as rates of the testbed's links, and what it cannot carry (`fitting.fitted`)

A sweep sets the values of its axes between 3 and 4. Every mistake is a ConfigError that tells file:line:column, path,
what is wrong and what would do.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import yaml

from orchestrator.core.errors import ConfigError
from orchestrator.core.paths import lookup
from orchestrator.experiment import documents, nodesets, old_names, testbeds, variables
from orchestrator.experiment.documents import Document, Keys
from orchestrator.experiment.experiment import Experiment, on_this_machine, recorded_data
from orchestrator.experiment.experiment import model as experiment_model
from orchestrator.experiment.fitting import fitted
from orchestrator.experiment.validation import validate
from orchestrator.testbed.inventory import Inventory

Kind = Literal["experiment", "sweep", "paper", "inventory"]

EXPERIMENT_NEEDS = "name, testbed, workload and measure"
INVENTORY_NEEDS = "link and hosts"


class Checked(NamedTuple):
    """An experiment that is fit to be planned, and the document from which it was read."""

    experiment: Experiment
    document: Document


def checked(path: Path, overrides: Sequence[str], *, local: bool) -> Checked:
    """Read an experiment file that is fit to be planned; ConfigError tells every mistake with its place.

    `overrides` are `--set` options, `local` puts hosts of this machine in the place of others.
    """
    return checked_document(documents.load(path, needs=EXPERIMENT_NEEDS), overrides, local=local)


def checked_document(document: Document, overrides: Sequence[str], *, local: bool) -> Checked:
    """Return the experiment in a document that was read from a file, fit to be planned."""
    refuse_other(document, "experiment")
    expanded = with_hosts(changed(document, overrides), document.folders)
    return Checked(fit(validated(expanded, document.folders), expanded, local=local), expanded)


def load_experiment(path: Path, options: Sequence[str] = ()) -> tuple[Experiment, Document]:
    """Read an experiment file without its hosts: nothing is checked against the testbed."""
    document = documents.load(path, needs=EXPERIMENT_NEEDS)
    refuse_other(document, "experiment")
    expanded = with_hosts(changed(document, options), document.folders)
    return validated(expanded, document.folders), expanded


def changed(document: Document, options: Sequence[str]) -> Document:
    """Fill in the variables of a document, and apply the `--set` options of other keys."""
    filled, others = variables.filled(document, options)
    return variables.with_overrides(filled, others)


def load_inventory(path: Path) -> Document:
    """Read an inventory file that an experiment names: checked, with its node sets spelled out."""
    document = documents.load(path, needs=INVENTORY_NEEDS)
    refuse_other(document, "inventory")
    expanded = with_nodesets(document)
    validate(expanded, Inventory)
    return expanded


def with_nodesets(document: Document) -> Document:
    """Put the defaults of its variables into an inventory that has been read, and spell out its node sets."""
    filled, _ = variables.filled(document)
    return replace(filled, data=nodesets.expanded(filled.data, document.folders, where=document.name))


class Files:
    """Reads the files that others name, each once in a pass, however many points and sweeps name it."""

    def __init__(self) -> None:
        self.experiment = functools.cache(functools.partial(documents.load, needs=EXPERIMENT_NEEDS))
        self.inventory = functools.cache(load_inventory)


def with_hosts(document: Document, folders: Sequence[Path], files: Files | None = None) -> Document:
    """Put the named inventory file into an experiment, or spell out the hosts that stand there.

    Files are looked up in `folders`, and read by `files`.
    """
    inventory = load_inventory if files is None else files.inventory
    testbed = document.data.get("testbed")
    named = testbed.get("inventory") if isinstance(testbed, dict) else None
    at = ("testbed", "inventory")
    if isinstance(named, str):
        found = inventory(named_by(document, at, folders))
        data = {**document.data, "testbed": {**testbed, "inventory": found.data}}
        return replace(document, data=data, parts={at: found})
    if isinstance(named, dict):
        hosts = nodesets.expanded(named, folders, where=document.place(at))
        return replace(document, data={**document.data, "testbed": {**testbed, "inventory": hosts}})
    return document


def named_by(document: Document, at: Keys, folders: Sequence[Path]) -> Path:
    """Find the file that a document names at a place; ConfigError tells where it was looked up."""
    named = str(document.value(at))
    found = lookup.find(named, folders)
    if found is None:
        where = f"{document.place(at)}: {documents.dotted(at)}"
        raise ConfigError(f"{where}: {lookup.nowhere(named, folders)}; accepted: {lookup.ACCEPTED}")
    return found


def validated(document: Document, folders: Sequence[Path]) -> Experiment:
    """Validate a document and return its experiment; files that it names are looked up in `folders`."""
    return validate(document, experiment_model(), folders=folders)


def fit(experiment: Experiment, document: Document, *, local: bool) -> Experiment:
    """Choose the hosts of an experiment, and fit it to them; mistakes are placed in the document."""
    return fitted(on_this_machine(experiment) if local else with_allocation(experiment), document.place)


def with_allocation(experiment: Experiment) -> Experiment:
    """Add what hosts say that no file describes: those of this process's Slurm allocation, or pods.

    Outside of an allocation it keeps what was recorded. TestbedError where the hosts cannot be asked.
    """
    testbed = experiment.testbed
    if testbed.slurm is not None:
        testbed = testbed.model_copy(update={"slurm": testbeds.learned(testbed.slurm)})
    elif testbed.kubernetes is not None:
        testbed = testbed.model_copy(update={"kubernetes": testbeds.learned_pods(testbed.kubernetes)})
    return experiment.model_copy(update={"testbed": testbed})


def sealed(run: Path) -> Experiment:
    """Read the experiment in a run's folder, with keys of this version or of earlier ones.

    The folder may be somebody else's: it is data about the run. No file that it names is opened, and no host of it is
    reached (`testbeds.reached`). StoreError where it cannot be read, ConfigError where it is none of today.
    """
    document = old_names.recorded(run)
    return fitted(validate(document, experiment_model()), document.place)


def resolved_text(experiment: Experiment) -> str:
    """Write the experiment as YAML with every default spelled out: run again, it is the same experiment."""
    return yaml.safe_dump(recorded_data(experiment), sort_keys=False, allow_unicode=True)


def kind_of(data: Mapping[str, object]) -> Kind:
    """Return the kind of a file that can be planned or examined, by its top-level keys."""
    if "experiment" in data and "workload" not in data:
        return "sweep"
    if "figures" in data and "sweeps" in data:
        return "paper"
    of_experiments = {"testbed", "workload", "jobs", "measure", "traffic"}
    return "inventory" if data.keys() & {"hosts", "link"} and not data.keys() & of_experiments else "experiment"


def refuse_other(document: Document, wanted: Kind) -> None:
    """Raise ConfigError for a file that is of another kind, with the command that takes it."""
    kind = kind_of(document.data)
    if kind == wanted:
        return
    path = Path(document.name)
    what = {kind: f"{'an' if kind[0] in 'ei' else 'a'} {kind}" for kind in typing.get_args(Kind)}
    hint = {
        "experiment": "name it under `experiment` of a sweep file" if wanted == "sweep" else f"orch run {path}",
        "sweep": f"orch sweep {path}",
        "paper": f"orch study {path.parent}",
        "inventory": f"orch doctor {path}, or name it in an experiment: `testbed: {{inventory: {path.name}}}`",
    }
    raise ConfigError(f"{path}: is {what[kind]}, not {what[wanted]}", hint=hint[kind])
