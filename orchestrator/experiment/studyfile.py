"""Read a study file: the sweeps of a study, in short and in full, and the paper with which it is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Duration, Model
from orchestrator.core.paths import playbooks
from orchestrator.experiment import documents, loading, sweepfile, variables
from orchestrator.experiment.documents import Document
from orchestrator.experiment.experiment import Name
from orchestrator.experiment.sweepfile import NO_TIMES, Definition
from orchestrator.experiment.validation import validate

NEEDS = "name, paper, quick and full"
FOLDER = Path("playbooks/studies")
OF_ALL = ("testbed.", "conditions", "workload.", "validity.")  # options that are the calibration's too


class Needs(Model):
    """Requirements of a study's hosts, beside those of every run."""

    hosts: int = Field(ge=1)
    """How many hosts."""
    modules: tuple[str, ...] = ()
    """Modules of Python that its ranks import: frameworks."""
    programs: tuple[str, ...] = ()
    """Programs."""


class Takes(Model):
    """The time that each version takes on two cores of one machine."""

    quick: Duration | None = None
    full: Duration | None = None


class Covers(Model):
    """The part of the paper's measurements that each version repeats."""

    quick: str = ""
    full: str = ""


class Calibrate(Model):
    """The target to which emulated compute is fitted on each machine: iterations that take as long as the paper's."""

    experiment: str = Field(min_length=1)
    """An experiment file without cross traffic, as it is or from this file's folder; each model is put into it."""
    iteration: dict[str, Duration] = Field(min_length=1)
    """By model: the time of an iteration without cross traffic that the paper prints."""


class StudyFile(Model):
    """Sweeps whose results are compared with those of a paper."""

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
    calibrate: Calibrate | None = None
    """What its emulated compute is fitted to; without it models compute for as long as the catalog says."""
    quick: tuple[str, ...] = Field(min_length=1)
    """Sweep files of the short version, as they are or from this file's folder, in the order of their measurement."""
    full: tuple[str, ...] = Field(min_length=1)
    """Those of the full version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """An experiment without cross traffic, with `--set` options for it, and how long an iteration takes, by model."""

    experiment: Path
    overrides: tuple[str, ...]
    iteration_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study that has been read and checked.

    `covers` says which part of the paper's measurements it is, `takes_s` how long it takes on two cores, where the file
    says so. `calibration` is of the models whose compute is emulated and whose compute time the study leaves open.
    """

    name: str
    paper: str
    covers: str
    takes_s: float | None
    sweeps: tuple[Definition, ...]
    calibration: Calibration | None = None


def there(name: str) -> Path | None:
    """Find the file of a study of this name: below the current folder, else among the playbooks of orch; None."""
    found = (folder / f"{name}.yaml" for folder in (FOLDER, playbooks.STUDIES))
    return next((path for path in found if path.is_file()), None)


def find(name: str) -> Path:
    """Find the file of a study of this name; ConfigError where there is none."""
    path = there(name)
    if path is None:
        raise ConfigError(
            f"no file {name}.yaml, neither in {FOLDER} here nor in {playbooks.STUDIES}",
            hint="name a study file with --file",
        )
    return path


def read(path: Path) -> StudyFile:
    """Read a study file by itself, without its sweeps."""
    return validate(variables.filled(documents.load(path, needs=NEEDS))[0], StudyFile)


def load(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    quick: bool,
    local: bool = False,
    compute_s: Mapping[str, float] = NO_TIMES,
) -> Study:
    """Read a study and every point of its sweeps; ConfigError tells every mistake.

    `compute_s` are compute times by model, for points whose compute is emulated and that have no time of their own.
    """
    return study(documents.load(path, needs=NEEDS), overrides, quick=quick, local=local, compute_s=compute_s)


def study(
    document: Document,
    overrides: Sequence[str] = (),
    *,
    quick: bool,
    local: bool,
    compute_s: Mapping[str, float] = NO_TIMES,
) -> Study:
    """Read the sweeps of a study file that has been read, as `load` does."""
    if loading.kind_of(document.data) in ("sweep", "inventory"):
        loading.refuse_other(document, "study")
    document, overrides = variables.filled(document, overrides)
    file = validate(document, StudyFile)
    version = "quick" if quick else "full"
    files = loading.Files()
    found = tuple(
        sweepfile.load(
            loading.named_by(document, (version, number), document.folders),
            overrides,
            local=local,
            compute_s=compute_s,
            files=files,
        )
        for number in range(len(document.value((version,))))
    )
    names = [definition.file.name for definition in found]
    if len(set(names)) < len(names):
        raise ConfigError(f"{document.name}: two sweeps of one name; accepted: {', '.join(names)}, each once")
    covers, takes_s = (file.covers.quick, file.takes.quick) if quick else (file.covers.full, file.takes.full)
    name = f"{file.name}-quick" if quick else file.name
    return Study(
        name=name,
        paper=file.paper,
        covers=" ".join(covers.split()),
        takes_s=takes_s,
        sweeps=found,
        calibration=None if file.calibrate is None else calibration(document, file.calibrate, overrides, found),
    )


def calibration(
    document: Document, asked: Calibrate, overrides: Sequence[str], sweeps: Sequence[Definition]
) -> Calibration | None:
    """Return the calibration that these sweeps of a study or paper need; None where they need none."""
    models = dict.fromkeys(model for definition in sweeps for model in definition.timeless())
    wanted = {model: asked.iteration[model] for model in models if model in asked.iteration}
    if not wanted:
        return None
    return Calibration(
        experiment=loading.named_by(document, ("calibrate", "experiment"), document.folders),
        overrides=tuple(option for option in overrides if option.startswith(OF_ALL)),
        iteration_s=wanted,
    )
