"""The experiment below a sweep: what the sweep names or holds, with those variables that are axes of the sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.core.errors import ConfigError
from orchestrator.core.opendata import AxisValues
from orchestrator.experiment import config
from orchestrator.experiment.yamlfiles import documents, filevars, includes
from orchestrator.experiment.yamlfiles.documents import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The experiment as it is written, the folders of its files, and the `--set` options for it.

    `variable_axes` are those axes of the sweep that are variables of the experiment.
    """

    name: str
    document: Document
    folders: tuple[Path, ...]
    options: tuple[str, ...]
    variable_axes: tuple[str, ...]

    def filled(self, values: AxisValues) -> Document:
        """The experiment of a point with these values of its axes, as far as they are variables'."""
        of_variables = {axis: values[axis] for axis in self.variable_axes}
        document, options = filevars.filled(self.document, self.options, of_variables)
        document = replace(document, data={**document.data, "name": self.name})
        return documents.with_overrides(document, options)


def of(sweep: Document, experiment: Any, axes: Sequence[str], options: Sequence[str]) -> Base:
    """What stands at `experiment` of a sweep with these axes; ConfigError where that is none."""
    document, folders = _experiment(sweep, experiment)
    names = filevars.names(document)
    own = {variable.name for variable in sweep.variables}
    for axis in axes:
        if axis in own - names:
            place = f"{sweep.place(('axes', axis))}: {axis}"
            raise ConfigError(
                f"{place}: is a variable of the sweep; accepted: one of the experiment file, or a key path"
            )
    found = tuple(axis for axis in axes if axis in names)
    return Base(
        name=sweep.data["name"], document=document, folders=folders, options=tuple(options), variable_axes=found
    )


def refuse_nested(sweep: Document) -> None:
    """ConfigError for an experiment within a sweep that has includes or variables: those are a file's."""
    named = sweep.data.get("experiment")
    for key in (includes.KEY, filevars.KEY):
        if isinstance(named, dict) and key in named:
            where = f"{sweep.place(('experiment', key))}: experiment.{key}"
            raise ConfigError(f"{where}: is a file's; accepted: {key} at the top of the sweep, or an experiment file")


def _experiment(sweep: Document, named: Any) -> tuple[Document, tuple[Path, ...]]:
    """The experiment, and the folders of the files that it is written in."""
    if isinstance(named, str):
        path = config.named_by(sweep, ("experiment",), sweep.folders)
        found = includes.load(path, needs=config.EXPERIMENT_NEEDS)
        return replace(found, variables=sweep.variables), tuple(dict.fromkeys([*found.folders, *sweep.folders]))
    if not isinstance(named, dict):
        raise ConfigError(
            f"{sweep.place(('experiment',))}: experiment: holds {documents.kind_text(named)}; accepted: the path of "
            "an experiment file, or what would stand in one"
        )
    return sweep.below("experiment"), sweep.folders
