"""Define the models of an experiment file: frozen, built from the installed parts."""

from __future__ import annotations

import math
import re
import typing
from copy import copy
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema

from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Duration, Model
from orchestrator.core.opendata import JsonSchema, YamlMapping
from orchestrator.core.units import Mistake, rate_text
from orchestrator.experiment import pacing
from orchestrator.experiment.pacing import Pace, Start
from orchestrator.experiment.placements import Placement
from orchestrator.experiment.until import Until
from orchestrator.parts import registry
from orchestrator.testbed.data_plane import DataPlane
from orchestrator.testbed.inventory import Inventory
from orchestrator.testbed.kubernetes.spec import KubernetesSpec
from orchestrator.testbed.local.local_spec import Folder, ImageName, LocalTestbed, Program, RuntimeName
from orchestrator.testbed.slurm.spec import SlurmSpec
from orchestrator.validity import registry as gates

T = TypeVar("T", bound=BaseModel)

LOCAL_LINK_LIMIT = 250e6  # what two cores carry packet by packet on every link of a ring

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")


class Choice(BaseModel):
    """One key that names a part, and below it what the part takes; a bare name takes its defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, value: Any) -> Any:
        return {value: {}} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _exactly_one(self) -> Choice:
        if len(self.model_fields_set) != 1:
            count = len(self.model_fields_set) or "nothing"
            raise Mistake(f"holds {count}", accepted=f"exactly one of {', '.join(names_of(type(self)))}")
        if self.config is None:
            keys = ", ".join(names_of(config_of(type(self), self.name)))
            raise Mistake("nothing stands below it", accepted=f"a mapping of {keys}", at=(self.name,))
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchema:
        """Return a schema of exactly one key, or of the bare name of a part that needs no configuration."""
        schema = handler.resolve_ref_schema(handler(core))
        properties = {name: _without_null(inner) for name, inner in schema.get("properties", {}).items()}
        bare = [
            name
            for name in properties
            if not any(field.is_required() for field in config_of(cls, name).model_fields.values())
        ]
        one = {**schema, "properties": properties, "minProperties": 1, "maxProperties": 1}
        return {"anyOf": [one, {"type": "string", "enum": bare}]} if bare else one

    @property
    def name(self) -> str:
        (field,) = self.model_fields_set
        return str(type(self).model_fields[field].alias)

    def with_config(self, config: Any) -> Choice:
        """Return the same part with another configuration."""
        (field,) = self.model_fields_set
        return self.model_copy(update={field: config})

    @property
    def config(self) -> Any:
        (field,) = self.model_fields_set
        return getattr(self, field)


def _without_null(schema: JsonSchema) -> JsonSchema:
    """Return the schema of an optional part without null: it is left out, or has a value."""
    (kept,) = [inner for inner in schema["anyOf"] if inner != {"type": "null"}]
    return dict(kept)


def config_of(choice: type[Choice], name: str) -> type[BaseModel]:
    """Return the model of a part's configuration."""
    (field,) = [field for field in choice.model_fields.values() if field.alias == name]
    return next(kind for kind in typing.get_args(field.annotation) if isinstance(kind, type))


def names_of(model: type[BaseModel]) -> list[str]:
    """Return the keys that a mapping of this model takes, as they stand in YAML."""
    return [field.alias or name for name, field in model.model_fields.items()]


def choice_of(title: str, kind: registry.Kind) -> type[Choice]:
    """Make the model of a choice among the installed parts of a kind."""
    fields: dict[str, Any] = {
        name.replace("-", "_"): (part.Config | None, Field(default=None, alias=name))
        for name, part in registry.parts_of(kind).items()
    }
    return create_model(title, __base__=Choice, **fields)


def _checked_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise Mistake("not a name", accepted="a letter, then at most 40 letters, digits, '-' or '_'")
    return value


Name = Annotated[str, AfterValidator(_checked_name)]


def _iterations_or_auto(value: Any) -> Any:
    if value == "auto" or (type(value) is int and value >= 0):
        return value
    raise Mistake("not a number of iterations", accepted="0 or more, such as 5, or auto")


WarmUp = Annotated[Annotated[int, Field(ge=0)] | Literal["auto"], BeforeValidator(_iterations_or_auto)]


def _or_path(schema: JsonSchema) -> None:
    schema["anyOf"].insert(0, {"type": "string"})


class TestbedChoice(Model):
    """Where the experiment runs: containers on this machine, hosts of an inventory or a Slurm allocation, or pods."""

    __test__ = False

    local: LocalTestbed | None = None
    """Containers on this machine."""
    inventory: Inventory | None = Field(default=None, json_schema_extra=_or_path)
    """Real hosts: the path of an inventory file, or what would stand in one."""
    slurm: SlurmSpec | None = None
    """The hosts of the Slurm allocation that the command runs in."""
    kubernetes: KubernetesSpec | None = None
    """Pods of a Kubernetes cluster."""

    @model_validator(mode="after")
    def _exactly_one(self) -> TestbedChoice:
        count = sum(one is not None for one in (self.local, self.inventory, self.slurm, self.kubernetes))
        if count != 1:
            raise Mistake(f"holds {count or 'nothing'}", accepted="exactly one of local, inventory, slurm, kubernetes")
        return self


class LocalRun(Model):
    """How a run with `--local` differs from the real one."""

    hosts: int | None = Field(default=None, ge=2, le=64)
    """How many hosts, for an experiment on Slurm or Kubernetes, whose hosts no file names."""
    scale: int | None = Field(default=None, ge=1, le=1_000_000)
    """Scale of the local testbed; default: the smallest that keeps every link at 250 Mbit/s or less."""
    dilation: int | None = Field(default=None, ge=1, le=1000)
    """Dilation of the local testbed, as in `local`."""
    runtime: RuntimeName | None = None
    """What the hosts are then, as in `local`; with the image that the cluster uses its libraries are tried, too."""
    image: ImageName | None = None
    """Image of the hosts, as in `local`."""
    python: Program | None = None
    """The image's interpreter, as in `local`."""
    mounts: tuple[Folder, ...] | None = None
    """Folders that the hosts see, as in `local`."""


class Measure(Model):
    """When a window begins and ends: after so many iterations, or so much time, whichever is first."""

    warmup: WarmUp = "auto"
    """Iterations of every job that are run first and not counted; "auto": `warmup_most`, judged by MSER-5."""
    warmup_most: int = Field(default=20, ge=0)
    """Iterations that "auto" leaves out: the run makes this many more."""
    iterations: int | None = Field(default=None, ge=1)
    """End the window after this many iterations of every job."""
    at_most: Duration | None = Field(default=None, gt=0)
    """End the window after this much time."""
    stall_timeout: Duration = Field(default=60.0, gt=0)
    """Give the run up when no iteration of some job has ended for so long."""

    @model_validator(mode="after")
    def _ends(self) -> Measure:
        if self.iterations is None and self.at_most is None:
            raise Mistake("the window never ends", accepted="iterations, at_most, or both")
        return self

    @property
    def before(self) -> int:
        """Count the iterations of every job that are made before those by which the window ends."""
        return self.warmup_most if self.warmup == "auto" else self.warmup


class Validity(Model):
    """What a window must keep to in order to count. Its keys are the limits of gates (`validity_model`)."""


class Captures(Model):
    """What is done with captures once they are made."""

    stay: bool = False
    """Each host reduces its captures itself and keeps them; tables and hashes come home. Hosts of this machine write
    captures into the run's folder anyway."""
    reduce: Literal["at-end", "as-they-close"] = "at-end"
    """`at-end`: after the last window. `as-they-close`: captures that stay and rotate are read file by file while the
    run goes on, by processor time that nothing else on the host wants."""


class JobSpec(Model):
    """One training among several that share the network."""

    name: Name
    """Its name in every table."""
    workload: Choice
    """What it runs."""
    start: Start | None = None
    """When its first iteration begins; default: with that of every other job."""
    every: Duration | None = Field(default=None, gt=0)
    """Period of its iterations: each waits for its turn, and one whose turn has passed begins at once. Jobs of one
    period keep their offset. Default: each begins when the one before it has ended."""
    placement: Placement | None = None
    """Where its ranks run, in place of `hosts` of its workload: `packed`, `spread` or `random`."""


class WindowSpec(Model):
    """One measured window of a run: its own traffic, while the ranks stay up."""

    name: Name
    """Its name in every table."""
    traffic: tuple[Choice, ...] = ()
    """Cross traffic of this window."""
    measure: Measure | None = None
    """When it ends, where that differs from the experiment's."""


class Experiment(Model):
    """One experiment: where, under which conditions, what trains, what disturbs it, what is collected."""

    name: Name
    """Its name: a folder of the results is called like it."""
    testbed: TestbedChoice
    """Where it runs."""
    local_run: LocalRun = LocalRun()
    """What `--local` changes."""
    conditions: tuple[Choice, ...] = ()
    """Reversible changes to hosts or links, undone and verified."""
    workload: Choice | None = None
    """Short for one job named "training"."""
    jobs: tuple[JobSpec, ...] = ()
    """Trainings that run at the same time."""
    traffic: tuple[Choice, ...] = ()
    """Cross traffic of the only window."""
    windows: tuple[WindowSpec, ...] = ()
    """Several windows in one run, instead of `traffic`."""
    collect: tuple[Choice, ...] = ()
    """Collectors: what is sampled or captured during a run."""
    captures: Captures | None = None
    """Whether captures are fetched, or stay on the hosts."""
    measure: Measure
    """When a window ends, such as {iterations: 100}."""
    repetitions: int = Field(default=1, ge=1, le=1000)
    """How many runs."""
    until: Until | None = None
    """Instead of `repetitions`, go on until the level of every window is known, such as {interval: 2%}."""
    attempts: int = Field(default=1, ge=1, le=100)
    """Most tries of a run that is not valid for what may pass, such as other work on a host (gates `processor` and
    `drift`). A sweep has its own."""
    seed: int = Field(default=1, ge=0)
    """Another number gives other random numbers under the same salt. Each command that measures draws a salt of its
    own, and `--seed SALT` repeats one."""
    validity: Validity = Validity()
    """What a window must keep to in order to count."""

    @model_validator(mode="after")
    def _consistent(self) -> Experiment:
        if self.workload is None and not self.jobs:
            raise Mistake("nothing trains", accepted="exactly one of workload, jobs")
        if self.workload is not None and self.jobs:
            raise Mistake("stands beside workload", accepted="exactly one of workload, jobs", at=("jobs",))
        if self.traffic and self.windows:
            raise Mistake("stands beside windows", accepted="the traffic of each window in it", at=("traffic",))
        if self.until is not None and self.repetitions != 1:
            raise Mistake("stands beside repetitions", accepted="exactly one of repetitions, until", at=("until",))
        if self.until is not None and self.until.effect is not None:
            raise Mistake("compares points of a sweep", accepted="interval, or a sweep", at=("until", "effect"))
        for key, below, names in (
            ("jobs", ("name",), [job.name for job in self.jobs]),
            ("windows", ("name",), [window.name for window in self.windows]),
            ("collect", (), [choice.name for choice in self.collect]),
        ):
            for place, name in enumerate(names):
                if name in names[:place]:
                    raise Mistake(f"{name!r} stands here twice", accepted="each name once", at=(key, place, *below))
        pacing.check_starts([(job.name, job.start) for job in self.jobs])
        return self

    def paces(self) -> dict[str, Pace]:
        """Return when iterations of each job may begin, by its name."""
        return pacing.paces([(job.name, job.start, job.every) for job in self.all_jobs()])

    def all_jobs(self) -> tuple[JobSpec, ...]:
        """Return the jobs, the shorthand spelled out."""
        if self.workload is not None:
            return (JobSpec.model_construct(name="training", workload=self.workload),)
        return self.jobs

    def all_windows(self) -> tuple[WindowSpec, ...]:
        """Return the windows, the shorthand spelled out."""
        return self.windows or (WindowSpec.model_construct(name="w1", traffic=self.traffic, measure=None),)


@cache
def model() -> type[Experiment]:
    """Return the experiment's model with the installed parts in the place of every Choice."""
    workload = choice_of("WorkloadChoice", "workload")
    traffic = choice_of("TrafficChoice", "traffic")
    job = _with(JobSpec, workload=workload)
    window = _with(WindowSpec, traffic=tuple[traffic, ...])  # type: ignore[valid-type]
    return _with(
        Experiment,
        conditions=tuple[choice_of("ConditionChoice", "condition"), ...],  # type: ignore[misc]
        workload=workload | None,
        jobs=tuple[job, ...],  # type: ignore[valid-type]
        traffic=tuple[traffic, ...],  # type: ignore[valid-type]
        windows=tuple[window, ...],  # type: ignore[valid-type]
        collect=tuple[choice_of("CollectorChoice", "collector"), ...],  # type: ignore[misc]
        validity=validity_model(),
    )


@cache
def validity_model() -> type[Validity]:
    """Return the model of `validity:`, with a key for each limit that a gate declares."""
    fields: dict[str, Any] = {
        key: (limit.kind, Field(default=limit.default, description=limit.help)) for key, limit in gates.limits().items()
    }
    return create_model(
        "Validity", __base__=Validity, __doc__="What a window must keep to in order to count.", **fields
    )


def _with(base: type[T], **annotations: Any) -> type[T]:
    """Return a model with other types for some fields; descriptions stay, and defaults that are no such models."""
    fields: dict[str, Any] = {}
    for name, kind in annotations.items():
        fields[name] = (kind, copy(base.model_fields[name]))
        if isinstance(base.model_fields[name].default, Model):
            fields[name][1].default = kind()
    return create_model(base.__name__, __base__=base, __doc__=base.__doc__, **fields)


def on_this_machine(experiment: Experiment) -> Experiment:
    """Put an experiment on containers of this machine, with the inventory's host names and link rates."""
    inventory = experiment.testbed.inventory
    asked = experiment.local_run.model_dump(mode="json", exclude_none=True)
    unnamed = experiment.testbed.slurm or experiment.testbed.kubernetes
    if unnamed is not None:
        data = {**_of_unnamed(unnamed, asked), **asked}
    elif "hosts" in asked:
        raise ConfigError("local_run.hosts: the testbed names its hosts; accepted: to leave it out")
    elif inventory is None:
        local = experiment.testbed.local
        if local is None or not asked:
            return experiment
        data = {**local.model_dump(mode="json"), **asked}
    else:
        rates = {name: host.link or inventory.link for name, host in inventory.hosts.items()}
        data = {
            "hosts": list(inventory.hosts),
            "link": rate_text(inventory.link),
            "links": {name: rate_text(rate) for name, rate in rates.items() if rate != inventory.link},
            "scale": max(1, math.ceil(max(rates.values()) / LOCAL_LINK_LIMIT)),
            "mtu": inventory.mtu,
            **asked,
        }
    try:
        swapped = LocalTestbed.model_validate(data)
    except ValidationError as error:
        reasons = dict.fromkeys(str(item["msg"]).removeprefix("Value error, ") for item in error.errors())
        raise ConfigError(
            f"--local: the hosts cannot be containers of this machine: {'; '.join(reasons)}",
            hint="local_run: {scale: N} sets the scale; names, rates and MTU are those of the inventory",
        ) from None
    return experiment.model_copy(update={"testbed": TestbedChoice.model_construct(local=swapped)})


def _of_unnamed(spec: DataPlane, asked: YamlMapping) -> YamlMapping:
    """Return local hosts in place of those that no file names: as many as `local_run` says, at the declared rate."""
    if "hosts" not in asked or spec.link is None:
        raise ConfigError(
            f"--local: hosts and links of an experiment on {spec.KEY} are known there alone",
            hint=f"say `local_run: {{hosts: 4}}` and `testbed: {{{spec.KEY}: {{link: 25gbit}}}}`",
        )
    scale = max(1, math.ceil(spec.link / LOCAL_LINK_LIMIT))
    return {"link": rate_text(spec.link), "scale": scale}


def resolved_data(experiment: Experiment) -> YamlMapping:
    """Return the experiment as data with its defaults: run again, it measures the same, in any allocation or pods."""
    data = recorded_data(experiment)
    data["testbed"].get("slurm", {}).pop("allocation", None)
    data["testbed"].get("kubernetes", {}).pop("pods", None)
    for key in ("attempts", "until"):  # how often is tried and repeated decides nothing of what is measured
        data.pop(key, None)
    return data


def recorded_data(experiment: Experiment) -> YamlMapping:
    """Return the same with the facts of its allocated hosts or pods, so that its results can be read anywhere."""
    data = experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    if (local := data["testbed"].get("local")) and local["dilation"] == 1:
        del local["dilation"]  # what the same experiment was before it could be said
    for key in ("conditions", "jobs", "traffic", "windows", "collect"):
        if not data[key]:
            del data[key]
    return data
