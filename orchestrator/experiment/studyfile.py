"""What a study file says: which sweeps make up a study, in short and in full, and with which paper it is compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from orchestrator.core.errors import ConfigError
from orchestrator.core.units import Duration, Model
from orchestrator.experiment import config, documents, sweepfile
from orchestrator.experiment.experiment import Name
from orchestrator.experiment.sweepfile import Definition

NEEDS = "name, paper, quick and full"
FOLDER = Path("playbooks/studies")
_BESIDE = Path(__file__).parents[2]


class Needs(Model):
    """What the hosts of a study have to have, beside what every run needs."""

    hosts: int = Field(ge=1)
    """How many hosts."""
    modules: tuple[str, ...] = ()
    """Modules of Python that its ranks import: frameworks."""
    programs: tuple[str, ...] = ()
    """Programs."""


class Takes(Model):
    """How long each version takes on two cores of one machine."""

    quick: Duration | None = None
    full: Duration | None = None


class Covers(Model):
    """Which part of what the paper measured each version measures."""

    quick: str = ""
    full: str = ""


class StudyFile(Model):
    """Sweeps whose results stand beside those of a paper."""

    name: Name
    """Its name, and its page's."""
    paper: Name
    """The paper whose figures are in the project, as `orch study` lists it."""
    needs: Needs | None = None
    """What its hosts have to have: what `orch study` says before a plan is made."""
    takes: Takes = Takes()
    """How long it takes."""
    covers: Covers = Covers()
    """What it measures of the paper."""
    quick: tuple[str, ...] = Field(min_length=1)
    """Sweep files of the short version, as they are or from this file's folder, in the order of their measurement."""
    full: tuple[str, ...] = Field(min_length=1)
    """Those of the full version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study that can be carried out.

    `covers` says which part of the paper's measurements it is, `takes_s` how long it takes on two cores, where the file
    says so.
    """

    name: str
    paper: str
    covers: str
    takes_s: float | None
    sweeps: tuple[Definition, ...]


def there(name: str) -> Path | None:
    """The file of a study of this name: below the current folder, else where the project's own playbooks lie."""
    found = (place / FOLDER / f"{name}.yaml" for place in (Path(), _BESIDE))
    return next((path for path in found if path.is_file()), None)


def find(name: str) -> Path:
    """The same; ConfigError where there is none."""
    path = there(name)
    if path is None:
        raise ConfigError(
            f"no file {FOLDER / name}.yaml, neither here nor in {_BESIDE}",
            hint="a clone of the project has it: run this there, or name a study file with --file",
        )
    return path


def read(path: Path) -> StudyFile:
    """A study file by itself, without its sweeps."""
    return config.validate(documents.load(path, needs=NEEDS), StudyFile)


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
    covers, takes_s = (file.covers.quick, file.takes.quick) if quick else (file.covers.full, file.takes.full)
    name = f"{file.name}-quick" if quick else file.name
    return Study(name=name, paper=file.paper, covers=" ".join(covers.split()), takes_s=takes_s, sweeps=found)
