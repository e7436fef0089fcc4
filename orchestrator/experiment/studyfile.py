"""What a study file says: which sweeps make up a study, in short and in full, and with which paper it is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from orchestrator.core.errors import ConfigError
from orchestrator.core.units import Model
from orchestrator.experiment import config, documents, sweepfile
from orchestrator.experiment.experiment import Name
from orchestrator.experiment.sweepfile import Definition

NEEDS = "name, paper, quick and full"
FOLDER = Path("playbooks/studies")


class StudyFile(Model):
    """Sweeps whose curves stand beside those of a paper."""

    name: Name
    """Its name, and its page's."""
    paper: Literal["salamy"]
    """The paper whose figures are in the project."""
    quick: tuple[str, ...] = Field(min_length=1)
    """Sweep files of the short version, as they are or from this file's folder, in the order of their measurement."""
    full: tuple[str, ...] = Field(min_length=1)
    """Those of the full version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study that can be carried out."""

    name: str
    sweeps: tuple[Definition, ...]


def find(name: str) -> Path:
    """The file of a study of this name: below the current folder, else where the project's own playbooks lie."""
    beside = Path(__file__).parents[2]
    for place in (Path(), beside):
        if (path := place / FOLDER / f"{name}.yaml").is_file():
            return path
    raise ConfigError(
        f"no file {FOLDER / name}.yaml, neither here nor in {beside}",
        hint="a clone of the project has it: run this there, or name a study file with --file",
    )


def load(path: Path, overrides: Sequence[str] = (), *, quick: bool, local: bool = False) -> Study:
    """Read a study and every point of its sweeps; ConfigError tells mistakes before anything is touched."""
    document = documents.load(path, needs=NEEDS)
    file = config.validate(document, StudyFile)
    version = "quick" if quick else "full"
    found = tuple(
        sweepfile.load(config.named_by(document, (version, number), [path.parent]), overrides, local=local)
        for number in range(len(document.value((version,))))
    )
    names = [definition.file.name for definition in found]
    if len(set(names)) < len(names):
        raise ConfigError(f"{path}: two sweeps of one name; accepted: {', '.join(names)}, each once")
    return Study(name=f"{file.name}-quick" if quick else file.name, sweeps=found)
