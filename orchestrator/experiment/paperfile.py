"""Read a paper: a folder whose `paper.yaml` has its citation, sweeps, printed values and figures, as data.

A figure asks a question of runs, and says how its answer is drawn and what of it is held to what the paper prints. The
answer to a question is a list of rows, a mapping from columns to values each: the first step of `ask` gives them, and
each step after it changes them. A step is `sql`, a function of `orchestrator/questions`, or one of the paper's own
`answers.py` (`answers.NAME`), with its arguments.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Duration, Model, Share
from orchestrator.core.opendata import JsonSchema
from orchestrator.core.paths import playbooks
from orchestrator.experiment import documents, loading, sweepfile
from orchestrator.experiment.documents import Document
from orchestrator.experiment.experiment import Name
from orchestrator.experiment.sweepfile import NO_TIMES, Definition
from orchestrator.experiment.validation import validate

FILE = "paper.yaml"
FOLDER = Path("playbooks/papers")
NEEDS = "name, title, shows, sweeps and figures"
QUICK, FULL = "quick", "full"
OF_ALL = ("testbed.", "conditions", "workload.", "validity.")  # options that are the calibration's too
KINDS = ("lines", "points", "bars", "heatmap", "cdf", "area")  # of drawings
RESERVED = ("place", "note")  # columns of printed rows that are texts about them
_NUMBER = re.compile(r"[~≈]?\s*([+-]?)(\d[\d,]*)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class PrintedNumber:
    """A number as a paper prints it, and half a unit of its last digit."""

    text: str
    value: float
    half: float


def number(text: str) -> PrintedNumber:
    """Read a printed number such as "~85", "1,880" or "4.50"; ValueError for another text."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no number as printed, such as '4.50', '~85' or '1,880'")
    sign, whole, fraction, exponent = found.groups()
    power = int(exponent or 0)
    value = float(f"{sign}{whole.replace(',', '')}.{fraction or 0}e{power}")
    return PrintedNumber(text.strip(), value, 0.5 * 10.0 ** (power - len(fraction or "")))


class Printed(Model):
    """A table of printed values."""

    values: dict[str, str] = Field(default_factory=dict)
    """Its columns of printed numbers, which rows write as text with the printed digits, each with its unit."""
    place: str = ""
    """Where it is printed (table, figure, section); a row may have a `place` of its own, and a `note`."""
    authors_code: str = ""
    """What the authors' own code tells beyond the paper, where that decides how it is compared."""
    rows: tuple[dict[str, Cell], ...] = Field(min_length=1)
    """Its rows: columns that say what a value is of, and printed values."""

    @model_validator(mode="after")
    def _digits(self) -> Printed:
        for row in self.rows:
            if not (row.get("place") or self.place):
                raise ValueError(f"no place, and none of its table: {dict(row)}")
            for column in self.values:
                if row.get(column) is not None:
                    if not isinstance(row[column], str):
                        raise ValueError(f"{column}: {row[column]}: accepted: text, so that its digits are kept")
                    number(str(row[column]))
        return self

    def number(self, row: Row, column: str) -> PrintedNumber | None:
        """Return the printed number of a row; None where it has none, or the column has words."""
        known = column in self.values and row.get(column) is not None
        return number(str(row[column])) if known else None

    def keys(self, row: Row) -> dict[str, Cell]:
        """Return what says of what the values of a row are."""
        return {name: value for name, value in row.items() if name not in self.values and name not in RESERVED}

    def place_of(self, row: Row) -> str:
        """Return where a row is printed."""
        return str(row.get("place") or self.place)


class Step(Model):
    """A step of a question: one name with its arguments, such as `sql: select ...`."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, value: Any) -> Any:
        if not (isinstance(value, dict) and len(value) == 1):
            raise ValueError("not a step; accepted: one name with its arguments, such as `sql: select ...`")
        ((name, arguments),) = value.items()
        return {"name": name, "arguments": {"text": arguments} if isinstance(arguments, str) else arguments or {}}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        """Return the schema of what stands in a file: a mapping with one key."""
        return {"type": "object", "minProperties": 1, "maxProperties": 1, "description": inspect.getdoc(cls)}


class Check(Model):
    """What a printed value or claim is held to, and what would make it fail.

    Every repetition gives a value; what is judged is their interval (analysis/stats/agreement.py).
    """

    what: str
    """What is compared, for people; `{column}` stands for a row's value."""
    by: tuple[str, ...] = ()
    """Columns that tell the lines apart: a line for each of their values, by which printed rows are found."""
    value: str
    """The column with the value: a number, or, without a margin, whether something holds."""
    where: dict[str, Cell | tuple[Cell, ...]] = Field(default_factory=dict)
    """Rows of the answer that it is about: columns and their values."""
    printed: str = ""
    """The printed values, as TABLE.COLUMN, or one value as printed."""
    unit: str = ""
    """Unit of a value that is printed in no table."""
    says: str = ""
    """The claim in words, as printed, where it has no number."""
    place: str = ""
    """Where that is printed; of a table its rows say it."""
    within: Share | None = None
    """Agrees within this share of the printed value, beside half a unit of its last digit."""
    by_most: float | None = None
    """Agrees within so much about the printed value, in its unit."""
    least: float | None = None
    """A claim holds from here on."""
    most: float | None = None
    """A claim holds up to here."""
    rival: float | None = None
    """Less than `least`, or more than `most`: beyond it another explanation is better, and up to it as good."""
    because: str = Field(min_length=1)
    """Why the margin is what it is."""
    fails: dict[str, tuple[Step, ...]] = Field(min_length=1)
    """Inputs with which it must not agree: by name, steps that change the rows that were measured."""

    @model_validator(mode="after")
    def _one_kind(self) -> Check:
        kinds = [self.within is not None, self.by_most is not None, self.least is not None or self.most is not None]
        if sum(kinds) > 1:
            raise ValueError("one of within, by_most, and least or most")
        if (kinds[0] or kinds[1]) and not self.printed:
            raise ValueError("within and by_most need `printed`")
        if not self.printed and not (self.says and self.place):
            raise ValueError("without `printed` it needs `says` and `place`")
        return self

    @property
    def table(self) -> tuple[str, str] | None:
        """The table and column of printed values; None for a value or a claim."""
        name, dot, column = self.printed.partition(".")
        return (name, column) if dot and not name[:1].isdigit() and name[:1] not in "+-~≈" else None

    def bounds(self, printed: PrintedNumber | None) -> tuple[float, float]:
        """Return the lowest and the highest value that agrees."""
        if printed is not None and self.least is None and self.most is None:
            margin = printed.half + (self.by_most or 0.0) + (self.within or 0.0) * abs(printed.value)
            return printed.value - margin, printed.value + margin
        return -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most


class NotCompared(Model):
    """Printed values or a claim that these runs cannot be compared with, and why."""

    printed: str = ""
    """The table, or TABLE.COLUMN."""
    where: dict[str, Cell | tuple[Cell, ...]] = Field(default_factory=dict)
    """Its rows, where not all."""
    says: str = ""
    """A claim in words."""
    place: str = ""
    """Where that is printed."""
    why: str = Field(min_length=1)
    """The reason."""


class Draw(Model):
    """How rows are drawn."""

    kind: str = Field(default="lines", pattern=rf"^({'|'.join(KINDS)}|answers\.[A-Za-z_]\w*)$")
    """`lines` and `points` have intervals over repetitions; `answers.NAME` is a function of the paper's own."""
    x: str = ""
    y: str = ""
    z: str = ""
    """Value of a heatmap's cell."""
    series: str = ""
    """The column whose values are lines, or bars beside each other."""
    panels: str = ""
    """The column whose values are panels."""
    where: dict[str, Cell | tuple[Cell, ...]] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    """Words for columns, on the axes, and for values of series."""
    log: tuple[Literal["x", "y"], ...] = ()
    ask: tuple[Step, ...] = ()
    """Further steps over the figure's answer before it is drawn."""
    printed: str = ""
    """A printed table with the same columns, drawn as hollow marks over ours."""
    caption: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Of a function of the paper's own."""


class Figure(Model):
    """A figure, table, equation or claim of the paper, with what it asks of runs."""

    title: str
    """Its number and what it shows."""
    text: str = ""
    """How ours is made, in a sentence or two."""
    ask: tuple[Step, ...] = ()
    """The question."""
    draw: tuple[Draw, ...] = ()
    """How the answer is drawn, and what is drawn beside it."""
    table: dict[str, str] = Field(default_factory=dict)
    """Columns of the answer that are shown as a table, with their heads; means over repetitions."""
    holds: tuple[Check, ...] = ()
    """What is held to what is printed."""
    not_compared: tuple[NotCompared, ...] = ()
    """What is printed and cannot be compared."""


class Calibrate(Model):
    """The target to which emulated compute is fitted on each machine: iterations that take as long as the paper's."""

    experiment: str = Field(min_length=1)
    """An experiment file without cross traffic, in the paper's folder; each model is put into it."""
    iteration: dict[str, Duration] = Field(min_length=1)
    """By model: the time of an iteration without cross traffic that the paper prints."""


class AuthorsCode(Model):
    """Code that the authors released."""

    at: str
    """Where it is."""
    commit: str
    """The commit that was read."""


class FiguresFile(Model):
    """Figures over runs, with what they are held to."""

    printed: dict[str, Printed] = Field(default_factory=dict)
    """Printed values, by table."""
    figures: tuple[Figure, ...] = Field(min_length=1)
    """The figures, in order."""


class PaperFile(FiguresFile):
    """A paper."""

    name: Name
    """Its name in commands, and its folder's."""
    title: str = Field(min_length=1)
    """Authors, title, place and year."""
    shows: str = Field(min_length=1)
    """What the paper measured, in one line."""
    at: str = ""
    """Where it can be read."""
    authors_code: AuthorsCode | None = None
    """The code that the authors released, where it was read."""
    calibrate: Calibrate | None = None
    """What its emulated compute is fitted to; without it models compute for as long as the catalog says."""
    sweeps: dict[str, tuple[str, ...]] = Field(min_length=1)
    """Sweep files in the order of their measurement by version: `quick`, `full` and others."""
    limits: tuple[str, ...] = ()
    """What cannot be compared on the whole, beside what the runs themselves tell (scale, emulated compute)."""
    contradictions: tuple[str, ...] = ()
    """Where the paper contradicts itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """An experiment without cross traffic, with `--set` options for it, and how long an iteration takes, by model."""

    experiment: Path
    overrides: tuple[str, ...]
    iteration_s: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A version of a paper's sweeps that has been read and checked.

    `calibration` is of the models whose compute is emulated and whose compute time the sweeps leave open.
    """

    name: str
    paper: str
    sweeps: tuple[Definition, ...]
    calibration: Calibration | None = None


def names() -> tuple[str, ...]:
    """Return the papers that can be named: folders below the current one's playbooks, and those of orch."""
    found = (path.parent.name for folder in (FOLDER, playbooks.PAPERS) for path in folder.glob(f"*/{FILE}"))
    return tuple(sorted(set(found)))


def find(named: str) -> Path:
    """Return the file of a paper: of a folder, or by the paper's name; ConfigError where there is none."""
    folders = [Path(named), FOLDER / named, playbooks.PAPERS / named]
    for folder in folders:
        path = folder if folder.name == FILE else folder / FILE
        if path.is_file():
            return path
    raise ConfigError(
        f"no paper {named}; accepted: {', '.join(names())}, or a folder with a {FILE}", hint="orch init paper"
    )


def read(path: Path) -> PaperFile:
    """Read a paper by itself, without its sweeps; ConfigError tells every mistake with its place."""
    return validate(opened(path), PaperFile)


def opened(path: Path) -> Document:
    """Read the file of a paper as data, with the place of each value."""
    return documents.load(path, needs=NEEDS)


def read_figures(path: Path) -> FiguresFile:
    """Read a file of figures: a paper, or figures alone; ConfigError tells every mistake with its place."""
    document = documents.load(path, needs="figures")
    return validate(document, PaperFile if loading.kind_of(document.data) == "paper" else FiguresFile)


def load(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    version: str,
    local: bool = False,
    compute_s: Mapping[str, float] = NO_TIMES,
) -> Study:
    """Read a version of a paper's sweeps and every point of them; ConfigError tells every mistake.

    `compute_s` are compute times by model, for points whose compute is emulated and that have no time of their own.
    """
    return study(opened(path), overrides, version=version, local=local, compute_s=compute_s)


def study(
    document: Document,
    overrides: Sequence[str] = (),
    *,
    version: str,
    local: bool,
    compute_s: Mapping[str, float] = NO_TIMES,
) -> Study:
    """Read the sweeps of a paper that has been read, as `load` does."""
    if loading.kind_of(document.data) != "paper":
        loading.refuse_other(document, "paper")
    file = validate(document, PaperFile)
    if version not in file.sweeps:
        raise ConfigError(f"{document.name}: no sweeps {version}; accepted: {', '.join(file.sweeps)}")
    files = loading.Files()
    found = tuple(
        sweepfile.load(
            loading.named_by(document, ("sweeps", version, number), document.folders),
            overrides,
            local=local,
            compute_s=compute_s,
            files=files,
        )
        for number in range(len(file.sweeps[version]))
    )
    known = [definition.file.name for definition in found]
    if len(set(known)) < len(known):
        raise ConfigError(f"{document.name}: two sweeps of one name; accepted: {', '.join(known)}, each once")
    return Study(
        name=file.name if version == FULL else f"{file.name}-{version}",
        paper=file.name,
        sweeps=found,
        calibration=None if file.calibrate is None else _calibration(document, file.calibrate, overrides, found),
    )


def _calibration(
    document: Document, asked: Calibrate, overrides: Sequence[str], sweeps: Sequence[Definition]
) -> Calibration | None:
    """Return the calibration that these sweeps need; None where they need none."""
    models = dict.fromkeys(model for definition in sweeps for model in definition.timeless())
    wanted = {model: asked.iteration[model] for model in models if model in asked.iteration}
    if not wanted:
        return None
    return Calibration(
        experiment=loading.named_by(document, ("calibrate", "experiment"), document.folders),
        overrides=tuple(option for option in overrides if option.startswith(OF_ALL)),
        iteration_s=wanted,
    )
