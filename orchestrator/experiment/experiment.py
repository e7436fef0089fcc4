"""What an experiment file can say: frozen models, built from the parts that are there."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, create_model, model_validator

from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Duration, Model, Share
from orchestrator.core.opendata import JsonSchema, YamlMapping
from orchestrator.core.units import Mistake, rate_text
from orchestrator.experiment.capture_keys import Captures
from orchestrator.experiment.choice import Choice, choice_of
from orchestrator.testbed.inventory import Inventory
from orchestrator.testbed.local.local_spec import Folder, ImageName, LocalTestbed, Program, RuntimeName
from orchestrator.testbed.slurm.spec import SlurmSpec

T = TypeVar("T", bound=BaseModel)

LOCAL_LINK_LIMIT = 250e6  # what two cores carry packet by packet on every link of a ring

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")


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
    """Where the experiment runs: containers on this machine, hosts of an inventory, or those of a Slurm allocation."""

    __test__ = False

    local: LocalTestbed | None = None
    """Containers on this machine."""
    inventory: Inventory | None = Field(default=None, json_schema_extra=_or_path)
    """Real hosts: the path of an inventory file, or what would stand in one."""
    slurm: SlurmSpec | None = None
    """The hosts of the Slurm allocation that the command runs in."""

    @model_validator(mode="after")
    def _exactly_one(self) -> TestbedChoice:
        count = sum(one is not None for one in (self.local, self.inventory, self.slurm))
        if count != 1:
            raise Mistake(f"holds {count or 'nothing'}", accepted="exactly one of local, inventory, slurm")
        return self


class LocalRun(Model):
    """How a run with `--local` differs from the real one."""

    hosts: int | None = Field(default=None, ge=2, le=64)
    """How many hosts, for an experiment in an allocation of Slurm, whose hosts no file names."""
    scale: int | None = Field(default=None, ge=1, le=1_000_000)
    """Scale of the local testbed; default: the smallest that keeps every link at 250 Mbit/s or less."""
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
    """Iterations of every job that are run first and not counted; "auto" chooses them from the data (MSER-5)."""
    warmup_most: int = Field(default=20, ge=0)
    """Most iterations that "auto" leaves out: the run makes this many more, and counts those that are steady."""
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
        """Iterations of every job that are made before those by which the window ends."""
        return self.warmup_most if self.warmup == "auto" else self.warmup


class Validity(Model):
    """What a window must keep to in order to count."""

    load: Share | Literal["as-achieved"] = 0.05
    """Largest difference between achieved and requested cross traffic; "as-achieved" accepts any."""
    load_course: Share | Literal["ignore"] = 0.2
    """Largest departure of a load over time from its schedule, root mean square of its mean; "ignore" only notes it."""
    capture_drops: Share = 0.0001
    """Largest share of packets that a capture may have dropped."""
    capture_nic: Share = 0.02
    """Largest difference between captured bytes and the counters of the NIC."""
    min_iterations: int = Field(default=20, ge=1)
    """Fewest iterations of a window (or what `measure` asks for, where that is fewer)."""
    clock: Duration = 0.001
    """Largest uncertainty of a node's clock offset."""
    drift: Share | Literal["ignore"] = 0.05
    """Largest trend of the iteration time from a window's beginning to its end; "ignore" only notes it."""
    processor: Share | Literal["ignore"] = 0.05
    """Largest share of a window for which other work may keep a job from processors; "ignore" only notes it."""
    congestion: Literal["warn", "invalid"] = "warn"
    """What becomes of a window in which RDMA or a switch lost packets, or the network paused a host: a remark, or it
    is invalid."""
    launch_late: Duration = 0.01
    """Latest that flows of generated cross traffic may start (99th percentile)."""


class JobSpec(Model):
    """One training among several that share the network."""

    name: Name
    """Its name in every table."""
    workload: Choice
    """What it runs."""


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
    attempts: int = Field(default=1, ge=1, le=100)
    """Most tries of a run that is not valid for what may pass, such as other work on a host (gates `processor` and
    `drift`). A sweep has its own."""
    seed: int = Field(default=1, ge=0)
    """From which every run's own seed is derived."""
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
        for key, below, names in (
            ("jobs", ("name",), [job.name for job in self.jobs]),
            ("windows", ("name",), [window.name for window in self.windows]),
            ("collect", (), [choice.name for choice in self.collect]),
        ):
            for place, name in enumerate(names):
                if name in names[:place]:
                    raise Mistake(f"{name!r} stands here twice", accepted="each name once", at=(key, place, *below))
        return self

    def all_jobs(self) -> tuple[JobSpec, ...]:
        """The jobs, the shorthand spelled out."""
        if self.workload is not None:
            return (JobSpec.model_construct(name="training", workload=self.workload),)
        return self.jobs

    def all_windows(self) -> tuple[WindowSpec, ...]:
        """The windows, the shorthand spelled out."""
        return self.windows or (WindowSpec.model_construct(name="w1", traffic=self.traffic, measure=None),)


@cache
def model() -> type[Experiment]:
    """The experiment's model with the parts that are there in the place of every Choice."""
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
    )


def _with(base: type[T], **annotations: Any) -> type[T]:
    """The same model with other types for some fields; defaults and descriptions stay."""
    fields: dict[str, Any] = {name: (kind, base.model_fields[name]) for name, kind in annotations.items()}
    return create_model(base.__name__, __base__=base, __doc__=base.__doc__, **fields)


def on_this_machine(experiment: Experiment) -> Experiment:
    """The same experiment on containers of this machine, with the inventory's host names and link rates."""
    inventory = experiment.testbed.inventory
    asked = experiment.local_run.model_dump(mode="json", exclude_none=True)
    if experiment.testbed.slurm is not None:
        data = {**_of_slurm(experiment.testbed.slurm, asked), **asked}
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


def _of_slurm(spec: SlurmSpec, asked: YamlMapping) -> YamlMapping:
    """What stands for hosts that only an allocation will name: as many as `local_run` says, at the declared rate."""
    if "hosts" not in asked or spec.link is None:
        raise ConfigError(
            "--local: hosts and links of an experiment on Slurm are known in its allocation alone",
            hint="say `local_run: {hosts: 4}` and `testbed: {slurm: {link: 25gbit}}`",
        )
    scale = max(1, math.ceil(spec.link / LOCAL_LINK_LIMIT))
    return {"link": rate_text(spec.link), "scale": scale}
