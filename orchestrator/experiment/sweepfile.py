"""Read a sweep file, and expand it into points: each a whole, checked experiment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, model_validator

from orchestrator.core import secret_looks, units, where
from orchestrator.core.errors import ConfigError, shortened
from orchestrator.core.fields import Duration, Model
from orchestrator.core.opendata import AxisValues, YamlMapping, YamlValue
from orchestrator.core.units import Mistake
from orchestrator.experiment import documents, loading, matrix, variables
from orchestrator.experiment.documents import Document, Keys, Variable
from orchestrator.experiment.experiment import Experiment, Name, TestbedChoice, resolved_data
from orchestrator.experiment.loading import Files
from orchestrator.experiment.matrix import Axis
from orchestrator.experiment.until import Until
from orchestrator.experiment.validation import validate

NEEDS = "name, experiment and axes"
# Keys of experiments that decide nothing of what is measured, and what is accepted in place of an axis over them.
NO_AXES: Mapping[str, str] = MappingProxyType(
    {"attempts": "attempts of the sweep, beside axes", "lost": "lost: again in the experiment"}
)
NO_TIMES: Mapping[str, float] = MappingProxyType({})


class SweepFile(Model):
    """An experiment over axes: every point of the matrix is measured, with repetitions."""

    name: Name
    """Its name: a folder of the results is called like it."""
    experiment: YamlValue
    """The path of an experiment file, as it is or from this file's folder, or what would stand in one."""
    axes: dict[str, Axis] = Field(default_factory=dict)
    """Key path in the experiment (`traffic.0.iperf.load`; `*` is any key or entry), or a variable of it, and its
    values: each is combined with every value of the other axes."""
    zip: tuple[dict[str, Axis], ...] = ()
    """Groups of axes of equal length: their first values belong together, then the second, and so on."""
    exclude: tuple[YamlMapping, ...] = ()
    """Points to leave out: those with all of these values (a list: one of them; text such as ">8gbit": a bound)."""
    repetitions: int | None = Field(default=None, ge=1, le=1000)
    """How often every point is measured; default: the experiment's own, or its `until`."""
    until: Until | None = None
    """Instead of `repetitions`, repeat each point until its level, or an effect, is known, such as {interval: 2%}."""
    budget: Duration | None = Field(default=None, gt=0)
    """With `until.interval`, spend no more than this time on runs: after the fewest repetitions of all points, each run
    goes to the point whose interval it narrows most, for the time that it takes."""
    order: Literal["random", "alternate", "fixed"] = "random"
    """Order of the points within a repetition: shuffled, so that drift follows no axis, and otherwise every night;
    alternately as they stand here and backwards (A B, B A), so that a steady drift cancels out; or as they stand."""
    seed: int = Field(default=1, ge=0)
    """Varies the random order of points, which each sweep draws anew."""
    draws: Literal["own", "common"] = "own"
    """Random numbers of cross traffic and trainings. `own`: those of each measurement, so that all are independent.
    `common`: all points of a repetition have the same, so that differences between points vary less, as in a comparison
    of two settings under the same flows; points are then no longer independent of each other."""
    mode: Literal["runs", "windows"] = "runs"
    """`runs`: each point is a run of its own. `windows`: ranks stay up while points follow one another that differ in
    `traffic` and `measure` alone."""
    windows_per_run: int = Field(default=40, ge=1, le=200)
    """Most windows of one run, in windows mode: what an accident can cost."""
    settle: int = Field(default=2, ge=0)
    """Most warm-up iterations of windows but the first of a run, where `warmup` is a number: the ranks are warm."""
    recheck: int = Field(default=0, ge=0)
    """Windows mode: measure so many points of each curve once more in a run of their own, as a check of the windows."""
    attempts: int = Field(default=2, ge=1, le=100)
    """Most tries of a measurement that fails or is not valid."""
    quarantine: int = Field(default=2, ge=1)
    """Leave out points that need a host once so many runs in a row have failed because of it."""

    @model_validator(mode="after")
    def _consistent(self) -> SweepFile:
        if not self.axes and not self.zip:
            raise Mistake("there is nothing to go over", accepted="axes, zip, or both")
        seen: set[str] = set()
        for place, (at, group) in enumerate(
            [(("axes",), self.axes), *((("zip", i), g) for i, g in enumerate(self.zip))]
        ):
            lengths = {path: len(axis.pairs()) for path, axis in group.items()}
            if place and len(set(lengths.values())) != 1:
                listed = ", ".join(f"{path} {count}" for path, count in lengths.items()) or "nothing"
                raise Mistake(f"not of equal length: {listed}", accepted="as many values of each", at=at)
            for path in group:
                if path in NO_AXES:
                    raise Mistake("no axis", accepted=NO_AXES[path], at=(*at, path))
                if path in seen or not all(path.split(".")):
                    what = "stands twice" if path in seen else "not a key path"
                    raise Mistake(what, accepted="each key path once, as traffic.0.iperf.load", at=(*at, path))
                seen.add(path)
        if self.until is not None and self.repetitions is not None:
            raise Mistake("stands beside repetitions", accepted="exactly one of repetitions, until", at=("until",))
        if self.budget is not None and (self.until is None or self.until.interval is None):
            raise Mistake("nothing is to be narrowed", accepted="until: {interval: 2%} beside it", at=("budget",))
        self._check_search()
        if self.recheck and self.mode == "runs":
            raise Mistake("every run is a fresh one already", accepted="mode: windows", at=("recheck",))
        return self

    def _check_search(self) -> None:
        searched = self.searched
        if any(axis.find is not None for group in self.zip for axis in group.values()):
            raise Mistake("what is found has no partner", accepted="find below axes", at=("zip",))
        if len(searched) > 1:
            raise Mistake("one thing is found at a time", accepted="find on a single axis", at=("axes", searched[1]))
        for key in ("repetitions", "until", "budget", "recheck"):
            if searched and getattr(self, key):
                raise Mistake("what is measured again follows from find", accepted=f"no {key}", at=(key,))

    @property
    def searched(self) -> tuple[str, ...]:
        """Return the axes along which something is found."""
        return tuple(path for path, axis in self.axes.items() if axis.find is not None)

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the axes in the order of the file."""
        return (*self.axes, *(path for group in self.zip for path in group))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of the matrix. `point` is a digest of its `values` alone, so that it is the same on any day."""

    point: str
    values: AxisValues
    experiment: Experiment
    resolved: YamlMapping  # the experiment, with every default


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A sweep that has been read and checked; `digest` covers all that decides what is measured.

    Every point has `repetitions`, none for sure where the sweep finds something; with `until` more may follow, and
    `sides` are the points that it compares, in pairs.
    """

    file: SweepFile
    points: tuple[Point, ...]
    repetitions: int
    digest: str
    until: Until | None = None
    sides: tuple[tuple[str, str], ...] = ()
    variables: tuple[Variable, ...] = ()  # whose values are in all points: those that are axes are in each point's own

    @property
    def axes(self) -> tuple[str, ...]:
        """Return key paths, and names of variables, in the order of the file."""
        return self.file.paths

    @property
    def testbeds(self) -> tuple[TestbedChoice, ...]:
        """Return the testbeds of its points, each once."""
        found: list[TestbedChoice] = []
        for point in self.points:
            if point.experiment.testbed not in found:
                found.append(point.experiment.testbed)
        return tuple(found)

    def curve(self, point: Point) -> tuple[tuple[str, Any], ...]:
        """Return the values that the points of one curve share: all but the loads, and axes zipped with them."""
        along = {path for group in self.file.zip if any(map(_is_load, group)) for path in group}
        shared = (path for path in point.values if not _is_load(path) and path not in along)
        return tuple((path, where.text_of(point.values[path])) for path in shared)

    def timeless(self) -> tuple[str, ...]:
        """Return the models with emulated compute for which the experiment gives no compute time."""
        found = (config for point in self.points for config in _emulated(point.resolved).values())
        return tuple(dict.fromkeys(config["model"] for config in found))

    def as_data(self) -> YamlMapping:
        """Return the file with its defaults, for the record."""
        data: YamlMapping = self.file.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return data


def _is_load(path: str) -> bool:
    return path.endswith("load")


def load(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    local: bool = False,
    compute_s: Mapping[str, float] = NO_TIMES,
    files: Files | None = None,
) -> Definition:
    """Read a sweep file and check every point; `overrides` are `--set` options of the experiment below it.

    `compute_s` are compute times by model, for points whose compute is emulated and that have no time of their own.
    `files` reads the files that the sweep names; sweeps that share files share it.

    ConfigError tells every mistake of the file, or all of the first point that has any.
    """
    return definition(documents.load(path, needs=NEEDS), overrides, local=local, compute_s=compute_s, files=files)


def definition(
    document: Document,
    overrides: Sequence[str] = (),
    *,
    local: bool,
    compute_s: Mapping[str, float] = NO_TIMES,
    files: Files | None = None,
) -> Definition:
    """Expand a sweep file that has been read, as `load` does."""
    path = Path(document.name)
    if "experiment" not in document.data:
        loading.refuse_other(document, "sweep")
    _refuse_nested(document)
    document, overrides = variables.filled(document, overrides)
    file = validate(document, SweepFile)
    base = _base(document, file.experiment, file.paths, overrides, files or Files())
    combinations = list(matrix.combinations(file.axes, file.zip, file.exclude, path))
    points = tuple(
        _point(
            base,
            values,
            place=f"{path}: point {shortened(label(names))}",
            local=local,
            names=names,
            compute_s=compute_s,
        )
        for values, names in combinations
    )
    _refuse_twins(points, path)
    if file.mode == "windows":
        _refuse_windows(points, path)
    if file.searched and points[0].experiment.until is not None:
        raise ConfigError(f"{path}: find beside the experiment's until; accepted: one of both")
    until = file.until or (points[0].experiment.until if file.repetitions is None else None)
    repetitions = file.repetitions or points[0].experiment.repetitions
    points = tuple(_once(point) for point in points)
    return Definition(
        file=file,
        points=points,
        repetitions=0 if file.searched else until.least if until is not None else repetitions,
        digest=_digest(file, points, repetitions, until),
        until=until,
        sides=_sides(until, points, path) if until is not None and until.effect is not None else (),
        variables=base.filled(combinations[0][0]).variables,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """The experiment of a sweep as it is written, the folders of its files, and the `--set` options for it.

    `variable_axes` are those axes of the sweep that are variables of the experiment.
    """

    name: str
    document: Document
    folders: tuple[Path, ...]
    options: tuple[str, ...]
    variable_axes: tuple[str, ...]
    files: Files

    def filled(self, values: AxisValues) -> Document:
        """Return the experiment with these values of a point's axes, as far as these are variables."""
        of_variables = {axis: values[axis] for axis in self.variable_axes}
        document, options = variables.filled(self.document, self.options, of_variables)
        document = replace(document, data={**document.data, "name": self.name})
        return variables.with_overrides(document, options)


def _base(sweep: Document, experiment: Any, axes: Sequence[str], options: Sequence[str], files: Files) -> _Base:
    """Read the experiment of a sweep with these axes, from its key `experiment`; ConfigError where it is none."""
    document, folders = _experiment(sweep, experiment, files)
    names = variables.names(document)
    own = {variable.name for variable in sweep.variables}
    for axis in axes:
        if axis in own - names:
            place = f"{sweep.place(('axes', axis))}: {axis}"
            raise ConfigError(
                f"{place}: is a variable of the sweep; accepted: one of the experiment file, or a key path"
            )
    found = tuple(axis for axis in axes if axis in names)
    return _Base(
        name=sweep.data["name"],
        document=document,
        folders=folders,
        options=tuple(options),
        variable_axes=found,
        files=files,
    )


def _refuse_nested(sweep: Document) -> None:
    """Raise ConfigError for an experiment within a sweep that has includes or variables: those are a file's."""
    named = sweep.data.get("experiment")
    for key in (documents.INCLUDE, variables.VARS):
        if isinstance(named, dict) and key in named:
            where = f"{sweep.place(('experiment', key))}: experiment.{key}"
            raise ConfigError(f"{where}: is a file's; accepted: {key} at the top of the sweep, or an experiment file")


def _experiment(sweep: Document, named: Any, files: Files) -> tuple[Document, tuple[Path, ...]]:
    """Return the experiment, and the folders of its files."""
    if isinstance(named, str):
        path = loading.named_by(sweep, ("experiment",), sweep.folders)
        found = files.experiment(path)
        return replace(found, variables=sweep.variables), tuple(dict.fromkeys([*found.folders, *sweep.folders]))
    if not isinstance(named, dict):
        raise ConfigError(
            f"{sweep.place(('experiment',))}: experiment: holds {documents.kind_text(named)}; accepted: the path of "
            "an experiment file, or what would stand in one"
        )
    return sweep.below("experiment"), sweep.folders


def _once(point: Point) -> Point:
    experiment = point.experiment.model_copy(update={"repetitions": 1, "until": None})
    return replace(point, experiment=experiment, resolved=resolved_data(experiment))


def label(values: AxisValues) -> str:
    """Write a short label of a point's values."""
    return ", ".join(secret_looks.masked(f"{path}={where.text_of(value)}") for path, value in values.items())


def _point(
    base: _Base, values: AxisValues, *, place: str, local: bool, names: AxisValues, compute_s: Mapping[str, float]
) -> Point:
    document = base.filled(values)
    ways: dict[str, Keys] = {}
    for axis, value in values.items():
        if axis in base.variable_axes:
            continue
        found = list(matrix.places(document.data, variables.steps(axis)))
        if not found:
            raise ConfigError(f"{place}: nothing in the experiment is at {axis}")
        for way in found:
            document = variables.with_value(document, way, value, origin=place)
        ways[axis] = found[0]
    for kind, given in _emulated(document.data).items():
        if given["model"] in compute_s:
            duration = units.duration_text(compute_s[given["model"]])
            document = variables.with_value(
                document, ("workload", kind, "compute_time"), duration, origin="calibration"
            )
    document = loading.with_hosts(document, base.folders, base.files)
    experiment = loading.fit(loading.validated(document, base.folders), document, local=local)
    resolved = resolved_data(experiment)
    point_values = {
        axis: matrix.value_at(resolved, ways[axis], name) if name is values[axis] and axis in ways else name
        for axis, name in names.items()
    }
    digest = hashlib.sha256(json.dumps(point_values, sort_keys=True).encode()).hexdigest()
    return Point(point=digest[:8], values=point_values, experiment=experiment, resolved=resolved)


def _emulated(experiment: YamlMapping) -> dict[str, YamlMapping]:
    """Return by workload the configuration of a model with emulated compute and no compute time."""
    workload = experiment.get("workload")
    found = workload.items() if isinstance(workload, dict) else ()
    return {
        kind: given
        for kind, given in found
        if isinstance(given, dict)
        and isinstance(given.get("model"), str)
        and given.get("compute", "emulated") == "emulated"
        and given.get("compute_time") is None
    }


def _refuse_twins(points: Sequence[Point], path: Path) -> None:
    seen: dict[str, Point] = {}
    for point in points:
        if point.point in seen:
            raise ConfigError(f"{path}: the point {label(point.values)} stands twice; accepted: each once")
        seen[point.point] = point


def _refuse_windows(points: Sequence[Point], path: Path) -> None:
    if any(point.experiment.windows for point in points):
        raise ConfigError(f"{path}: mode: windows of an experiment that has windows itself; accepted: mode: runs")


def _sides(until: Until, points: Sequence[Point], path: Path) -> tuple[tuple[str, str], ...]:
    """Return the pairs of points that have the values of both sides and agree in all other axes.

    ConfigError for a key that no axis is about, and where there is no pair.
    """
    axes = list(points[0].values)
    own: set[str] = set()
    for key in until.between:
        found = [axis for axis in axes if axis == key or axis.endswith("." + key)]
        if len(found) != 1:
            raise ConfigError(f"{path}: until: between: no single axis {key}; accepted: {', '.join(axes)}")
        own.update(found)

    def of_side(side: YamlMapping) -> dict[str, str]:
        chosen = [point for point in points if matrix.has_values(point.values, side)]
        rest = ({axis: value for axis, value in point.values.items() if axis not in own} for point in chosen)
        return {json.dumps(values, sort_keys=True): point.point for values, point in zip(rest, chosen, strict=True)}

    reference, other = of_side(until.between), of_side(until.and_)
    pairs = tuple((point, other[rest]) for rest, point in reference.items() if rest in other)
    if not pairs or any(one == two for one, two in pairs):
        raise ConfigError(f"{path}: until: no two points differ by between and and alone; `orch plan` lists the points")
    return pairs


def _digest(file: SweepFile, points: Sequence[Point], repetitions: int, until: Until | None) -> str:
    data: dict[str, object] = {
        "points": [[point.point, point.resolved] for point in points],
        "repetitions": repetitions,
        **{
            key: getattr(file, key) for key in ("name", "mode", "settle", "recheck", "order", "seed", "windows_per_run")
        },
    }
    if file.draws != "own":  # which sweeps that are older than the key had
        data["draws"] = file.draws
    if file.searched:
        data["find"] = {axis: file.axes[axis].model_dump(mode="json", by_alias=True) for axis in file.searched}
    if until is not None:
        data["until"] = until.model_dump(mode="json", by_alias=True)
        data["budget"] = file.budget
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
