"""Plan the runs of an experiment: the placement of ranks, every process, flag and file; pure, without a network."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, cast

from orchestrator.core.opendata import JsonObject, YamlValue
from orchestrator.experiment import fitting, seeds
from orchestrator.experiment.dilation import dilated
from orchestrator.experiment.documents import Variable
from orchestrator.experiment.experiment import Choice, Experiment, Measure, resolved_data
from orchestrator.experiment.pacing import Pace
from orchestrator.experiment.seeds import Draws
from orchestrator.parts import contained, ranks, registry
from orchestrator.parts.collectors import processor, tcpdump
from orchestrator.parts.conditions import congestion_control
from orchestrator.parts.launch import Change, Container, Launch, LaunchFacts, Listening, Requirement
from orchestrator.parts.protocols import Demand, Remarking, Source
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import TRAFFIC_PORT, Job, Topology
from orchestrator.store.manifests import records
from orchestrator.testbed import inventory as inventory_testbed
from workloads.common import container_config, placement, trained_model
from workloads.rank.lifecycle import CONGESTION_CONTROL

REDUCTION_MODULES = ("numpy", "numba")  # of the interpreter on a host that reduces captures itself
REDUCTION_PYTHON = "python>=3.10"
PORTS_PER_SOURCE = 16
LONGEST_WINDOW_S = 3600.0  # of one that ends by iterations alone
WARMUP_ALLOWANCE_S = 120.0  # how much longer than its window a traffic source may be needed
_PLANNED = Draws()
_AFTERWARDS = ("status", "failed")  # of a process: what is known once it has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job with its processes and the traffic that theory predicts for it."""

    job: Job
    workload: str
    config: Any
    launches: tuple[Launch, ...]
    theory: Theory | None
    remarks: tuple[str, ...] = ()
    pace: Pace = field(default_factory=Pace)  # at full size, as all that a plan says of time; the gate's is dilated

    def ranks(self) -> list[Launch]:
        """Return the processes of the job's ranks, without those of the rendezvous."""
        return [launch for launch in self.launches if launch.rank is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalatedSource:
    """The processes that a traffic source starts instead where its load was not reached."""

    text: str
    launches: tuple[Launch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSource:
    """A traffic source in one window. Sources of one `shape` differ in their load alone."""

    name: str
    part: str
    shape: str
    launches: tuple[Launch, ...]
    demands: tuple[Demand, ...]
    escalations: tuple[EscalatedSource, ...]  # in the order in which they are tried
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWindow:
    """A window with its traffic and its stop rule."""

    name: str
    measure: Measure
    sources: tuple[PlannedSource, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One run: every process and change, in order."""

    experiment: str
    point: str  # the same for the same experiment and repetition, on any day
    repetition: int  # from 1
    salt: str  # of its random numbers
    seed: int  # from which those of its jobs are derived
    topology: Topology
    validity: Mapping[str, records.LimitValue]
    changes: tuple[Change, ...]
    requirements: tuple[Requirement, ...]
    collectors: tuple[Launch, ...]
    jobs: tuple[PlannedJob, ...]
    windows: tuple[PlannedWindow, ...]
    stay: bool = False  # whether captures stay on the hosts, which reduce them
    as_they_close: bool = False  # whether hosts read these while they are written
    ends_lost: bool = False  # whether a window ends as soon as it cannot be valid any more

    def launches(self) -> Iterator[Launch]:
        """Yield every process that the run may start."""
        yield from self.helper_processes()
        yield from self.collectors
        for job in self.jobs:
            yield from job.launches
        for window in self.windows:
            for source in window.sources:
                yield from source.launches
                for stronger in source.escalations:
                    yield from stronger.launches

    def helper_processes(self) -> Iterator[Launch]:
        """Yield the processes of changes."""
        yield from (change.process for change in self.changes if change.process is not None)

    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that take part, in the testbed's order."""
        taking_part = {launch.node for launch in self.launches()} | {change.node for change in self.changes}
        return tuple(node.name for node in self.topology.nodes if node.name in taking_part)


def build(experiment: Experiment, salt: str = seeds.PLANNED) -> tuple[RunPlan, ...]:
    """Plan the runs of an experiment that has no problems, with the random numbers of this salt.

    Of one that goes on `until` something is known, the fewest that there will be.
    """
    topology = fitting.topology_of(experiment)
    text = json.dumps(resolved_data(experiment), sort_keys=True)
    numbers = range(1, (experiment.repetitions if experiment.until is None else experiment.until.least) + 1)
    return tuple(_run(experiment, topology, number, text, Draws(salt=salt)) for number in numbers)


def single(experiment: Experiment, repetition: int, draws: Draws = _PLANNED) -> RunPlan:
    """Plan the run of an experiment that has this number, from 1, whatever `repetitions` says."""
    text = json.dumps(resolved_data(experiment), sort_keys=True)
    return _run(experiment, fitting.topology_of(experiment), repetition, text, draws)


def _run(experiment: Experiment, topology: Topology, repetition: int, text: str, draws: Draws) -> RunPlan:
    digest = hashlib.sha256(f"{repetition}\n{text}".encode()).hexdigest()
    seed = draws.of_run(experiment.name, experiment.seed, repetition)
    in_testbed_time = dilated(experiment, topology.dilation)
    jobs = tuple(_wrapped(job, in_testbed_time, topology) for job in _jobs(experiment, topology, seed))
    windows = tuple(_windows(experiment, topology, repetition, draws))
    collectors = tuple(_collectors(in_testbed_time, topology, [rank for job in jobs for rank in job.ranks()]))
    stay = captures_stay(experiment, topology)
    plan = RunPlan(
        experiment=experiment.name,
        point=digest[:8],
        repetition=repetition,
        salt=draws.salt,
        seed=seed,
        topology=topology,
        validity=dict(experiment.validity),
        changes=_changes(in_testbed_time, topology),
        requirements=_requirements(experiment, topology, jobs, windows, collectors if stay else ()),
        collectors=collectors,
        jobs=jobs,
        windows=windows,
        stay=stay,
        as_they_close=read_as_they_close(experiment, topology),
        ends_lost=experiment.lost == "again",
    )
    plan = replace(plan, collectors=(*collectors, *_processors(experiment, plan)))
    _refuse_twins(plan)
    return plan


def _processors(experiment: Experiment, plan: RunPlan) -> Iterator[Launch]:
    """Yield the sampler of processors for every node that takes part, unless the experiment configures it."""
    if processor.NAME not in {choice.name for choice in experiment.collect}:
        config = dilated(processor.Config(hosts=plan.nodes()), plan.topology.dilation)
        for launch in processor.launches(config, plan.topology):
            yield replace(launch, part=f"collector.{processor.NAME}")


def _collectors(experiment: Experiment, topology: Topology, of_jobs: Sequence[Launch]) -> Iterator[Launch]:
    """Yield the processes of collectors, with those that watch these ranks."""
    for choice in experiment.collect:
        if (collector := registry.node_collector(choice.name)) is not None:
            for launch in collector.launches(choice.config, topology):
                yield _owned(launch, "collector", choice)
        if (watcher := registry.rank_watcher(choice.name)) is not None:
            for launch in watcher.rank_launches(choice.config, of_jobs, topology):
                yield replace(_owned(launch, "collector", choice), after_ranks=True)


def _wrapped(job: PlannedJob, experiment: Experiment, topology: Topology) -> PlannedJob:
    """Return a job whose ranks run below the commands of collectors, the first one's innermost."""
    launches = []
    for launch in job.launches:
        rank = launch
        for choice in experiment.collect:
            collector = registry.rank_wrapper(choice.name) if launch.rank is not None else None
            if collector is not None and (found := collector.wrapper(choice.config, launch, topology)) is not None:
                python = launch.container.python if launch.container else topology.node(launch.node).python
                rank = ranks.wrapped(rank, found, part=f"collector.{choice.name}", python=python)
        launches.append(rank)
    return replace(job, launches=tuple(launches))


def _changes(experiment: Experiment, topology: Topology) -> tuple[Change, ...]:
    """Return every change in order; one that conditions share stands once, at its first."""
    found: dict[tuple[str, str], Change] = {}
    for choice in experiment.conditions:
        for change in registry.condition(choice.name).changes(choice.config, topology):
            process = change.process and _owned(change.process, "condition", choice)
            found.setdefault((change.node, change.name), replace(change, process=process))
    return tuple(found.values())


def _owned(
    launch: Launch, kind: registry.Kind, choice: Choice, *, window: str | None = None, source: str | None = None
) -> Launch:
    return replace(launch, part=f"{kind}.{choice.name}", window=window, source=source)


def _of_rank(launch: Launch, env_from: Mapping[str, str], more: Mapping[str, str]) -> Launch:
    """Return a rank with variables whose values the run itself looks up, and more; a rendezvous process needs none."""
    return launch if launch.rank is None else replace(launch, env_from=env_from, env={**launch.env, **more})


def _controls(experiment: Experiment) -> dict[str, dict[str, str]]:
    """Return the variable that tells ranks of a job their congestion control, by the names of jobs that have one."""
    configs = [choice.config for choice in experiment.conditions if choice.name == congestion_control.NAME]
    return {config.job: {CONGESTION_CONTROL: config.algorithm} for config in configs if config.job is not None}


def _jobs(experiment: Experiment, topology: Topology, seed: int) -> Iterator[PlannedJob]:
    paces, controls = experiment.paces(), _controls(experiment)
    for index, spec in enumerate(experiment.all_jobs()):
        config = spec.workload.config
        module = registry.workload(spec.workload.name)
        job = Job(name=spec.name, index=index, ranks=placement.ranks(config.hosts, topology))
        inside = _containers(config, job)
        seen, secrets = contained.topology_of(topology, inside), config.env_from or {}
        in_testbed_time = dilated(_timed(config, topology), topology.dilation)
        yield PlannedJob(
            job=job,
            workload=spec.workload.name,
            config=config,
            launches=tuple(
                contained.wrapped(
                    _of_rank(_owned(launch, "workload", spec.workload), secrets, controls.get(spec.name, {})), inside
                )
                for launch in module.launches(in_testbed_time, job, seen, seeds.of_job(seed, spec.name))
            ),
            theory=module.theory(config, job, topology),
            remarks=tuple(cast("Remarking", module).remarks(config)) if hasattr(module, "remarks") else (),
            pace=paces[spec.name],
        )


def _timed(config: Any, topology: Topology) -> Any:
    """Return a workload's configuration with its default compute time, where that is to be multiplied."""
    if topology.dilation == 1 or getattr(config, "compute_time", 0.0) is not None or not hasattr(config, "model"):
        return config
    if getattr(config, "compute", "emulated") != "emulated":
        return config
    return config.model_copy(update={"compute_time": trained_model.compute_time(config)})


def _containers(config: Any, job: Job) -> dict[str, Container]:
    return {} if config.container is None else container_config.containers(config.container, job)


def _windows(experiment: Experiment, topology: Topology, repetition: int, draws: Draws) -> Iterator[PlannedWindow]:
    number = 0
    for window in experiment.all_windows():
        measure = dilated(window.measure or experiment.measure, topology.dilation)
        sources = []
        for place, choice in enumerate(window.traffic):
            if fitting.is_silent(choice):
                continue
            module = registry.traffic(choice.name)
            name = f"{choice.name}{place}"
            source = Source(
                name=name,
                window=window.name,
                port=TRAFFIC_PORT + PORTS_PER_SOURCE * number,
                duration_s=(measure.at_most or LONGEST_WINDOW_S * topology.dilation)
                + WARMUP_ALLOWANCE_S * topology.dilation,
                seed=draws.of_source(experiment.name, experiment.seed, repetition, window=window.name, source=name),
            )
            number += 1
            sources.append(
                PlannedSource(
                    name=source.name,
                    part=f"traffic.{choice.name}",
                    shape=f"{choice.name} {choice.config.model_dump_json(exclude={'load'})}",
                    launches=_traffic(choice, choice.config, source, topology),
                    demands=tuple(module.demands(choice.config)),
                    escalations=tuple(_escalations(choice, source, topology)),
                    remarks=tuple(module.remarks(dilated(choice.config, topology.dilation), topology)),
                )
            )
        yield PlannedWindow(name=window.name, measure=measure, sources=tuple(sources))


def _traffic(choice: Choice, config: Any, source: Source, topology: Topology) -> tuple[Launch, ...]:
    return tuple(
        _owned(launch, "traffic", choice, window=source.window, source=source.name)
        for launch in registry.traffic(choice.name).launches(dilated(config, topology.dilation), source, topology)
    )


def _escalations(choice: Choice, source: Source, topology: Topology) -> Iterator[EscalatedSource]:
    module = registry.traffic(choice.name)
    stronger = module.escalate(choice.config)
    for step in itertools.count(1):
        if stronger is None:
            return
        launches = _traffic(choice, stronger.config, source, topology)
        named = (replace(launch, name=f"{launch.name}.escalated{step}") for launch in launches)
        yield EscalatedSource(text=stronger.text, launches=tuple(named))
        stronger = module.escalate(stronger.config)


def _requirements(
    experiment: Experiment,
    topology: Topology,
    jobs: Sequence[PlannedJob],
    windows: Sequence[PlannedWindow],
    reducing: Sequence[Launch],
) -> tuple[Requirement, ...]:
    needed = dict.fromkeys(_of_parts(experiment, topology, jobs))
    needed |= dict.fromkeys(_ports(jobs, windows))
    needed |= dict.fromkeys(reduction_requirements(reducing, topology))
    if topology.kind != "local":
        hosts = dict.fromkeys(requirement.node for requirement in needed)
        needed |= dict.fromkeys(inventory_testbed.requirements(topology, hosts))
    return tuple(needed)


def _ports(jobs: Sequence[PlannedJob], windows: Sequence[PlannedWindow]) -> Iterator[Requirement]:
    """Yield requirements of free ports where processes of the run are to listen."""
    of_jobs = (launch for job in jobs for launch in job.launches)
    of_windows = (launch for window in windows for source in window.sources for launch in source.launches)
    for launch in itertools.chain(of_jobs, of_windows):
        by_ready = (launch.ready.port,) if isinstance(launch.ready, Listening) else ()
        for port in (*launch.ports, *by_ready):
            yield Requirement(
                node=launch.node,
                kind="port",
                what=str(port),
                needed_by=launch.part.partition(".")[2],
                remedy=f"end what listens there: `ss -ltnp 'sport = :{port}'` names it, asked by root; what a dead run"
                " left `orch clean` ends",
            )


def _of_parts(experiment: Experiment, topology: Topology, jobs: Sequence[PlannedJob]) -> Iterator[Requirement]:
    for planned in jobs:
        module = registry.workload(planned.workload)
        inside = {launch.node: launch.container for launch in planned.launches if launch.container is not None}
        needed = module.requirements(planned.config, planned.job, contained.topology_of(topology, inside))
        yield from contained.requirements(needed, inside, by=planned.workload)
    for window in experiment.all_windows():
        for choice in window.traffic:
            if not fitting.is_silent(choice):
                yield from registry.traffic(choice.name).requirements(choice.config, topology)
    of_jobs = [rank for job in jobs for rank in job.ranks()]
    for choice in experiment.collect:
        yield from _of_collector(choice, topology, of_jobs)
    for choice in experiment.conditions:
        yield from registry.condition(choice.name).requirements(choice.config, topology)


def _of_collector(choice: Choice, topology: Topology, of_jobs: Sequence[Launch]) -> Iterator[Requirement]:
    """Yield a collector's requirements: on ranks' nodes where it watches them, in their images where it wraps them."""
    needed = registry.collector(choice.name).requirements(choice.config, topology)
    if registry.node_collector(choice.name) is None:
        nodes = {rank.node for rank in of_jobs}
        needed = [need for need in needed if need.node in nodes]
    inside: dict[str, Container] = {}
    if registry.rank_wrapper(choice.name) is not None:
        inside = {rank.node: rank.container for rank in of_jobs if rank.container is not None}
    yield from contained.in_images(needed, inside)


def _refuse_twins(plan: RunPlan) -> None:
    """Raise for two processes of one name, which would share a folder: a bug of the part that plans them."""
    seen: set[tuple[str, str]] = set()
    for launch in plan.launches():
        if (launch.node, launch.name) in seen:
            raise AssertionError(f"{launch.part} plans two processes called {launch.name} on {launch.node}")
        seen.add((launch.node, launch.name))


# Captures that hosts reduce themselves


def captures_stay(experiment: Experiment, topology: Topology) -> bool:
    """Return whether captures stay on hosts: local hosts write them into the run's folder."""
    return experiment.captures is not None and experiment.captures.stay and topology.kind != "local"


def read_as_they_close(experiment: Experiment, topology: Topology) -> bool:
    """Return whether hosts read captures that stay while they are written."""
    return (
        captures_stay(experiment, topology)
        and experiment.captures is not None
        and experiment.captures.reduce != "at-end"
    )


def reduction_requirements(collectors: Sequence[Launch], topology: Topology) -> Iterator[Requirement]:
    """Yield what each host that captures needs to reduce its captures."""
    nodes = dict.fromkeys(launch.node for launch in collectors if launch.part == f"collector.{tcpdump.NAME}")
    for node in nodes:
        python = topology.node(node).python
        for module in (REDUCTION_PYTHON, *REDUCTION_MODULES):
            way = "name a later one as `python:`" if module == REDUCTION_PYTHON else f"{python} -m pip install {module}"
            remedy = f"{way}, or leave out `captures: {{stay: true}}`"
            yield Requirement(
                node=node, kind="module", what=module, python=python, remedy=remedy, needed_by="captures that stay"
            )


# As JSON data


class VariableData(TypedDict):
    """A variable of a file: its value, and its origin."""

    value: YamlValue
    type: str
    origin: str


def plan_data(plan: RunPlan) -> JsonObject:
    """Return the plan as JSON data: every process with its flags and files, every change, every demand."""
    return {
        "experiment": plan.experiment,
        "point": plan.point,
        "repetition": plan.repetition,
        "salt": plan.salt,
        "seed": plan.seed,
        "topology": dataclasses.asdict(plan.topology),
        "changes": [{"node": c.node, "name": c.name, "kind": c.kind, "read": list(c.read)} for c in plan.changes],
        "collectors": _launches(plan.collectors),
        "jobs": [
            {
                "name": planned.job.name,
                "workload": planned.workload,
                "config": planned.config.model_dump(mode="json", by_alias=True, exclude_none=True),
                "ranks": [dataclasses.asdict(rank) for rank in planned.job.ranks],
                "theory": dataclasses.asdict(planned.theory) if planned.theory else None,
                "launches": _launches(planned.launches),
                **({"pace": dataclasses.asdict(planned.pace)} if planned.pace != Pace() else {}),
            }
            for planned in plan.jobs
        ],
        "windows": [
            {
                "name": window.name,
                "measure": window.measure.model_dump(mode="json", exclude_none=True),
                "sources": [
                    {
                        "name": source.name,
                        "part": source.part,
                        "demands": [dataclasses.asdict(demand) for demand in source.demands],
                        "launches": _launches(source.launches),
                        "escalations": [
                            {"text": step.text, "launches": _launches(step.launches)} for step in source.escalations
                        ],
                    }
                    for source in window.sources
                ],
            }
            for window in plan.windows
        ],
        "requirements": [dataclasses.asdict(requirement) for requirement in plan.requirements],
    }


def variables_data(variables: Iterable[Variable]) -> dict[str, VariableData]:
    """Return variables as JSON data, by name."""
    return {one.name: {"value": one.value, "type": one.type, "origin": one.origin} for one in variables}


def _launches(launches: Iterable[Launch]) -> list[JsonObject]:
    """Return processes as data, without results."""
    return [
        {key: value for key, value in dataclasses.asdict(launch_record(launch)).items() if key not in _AFTERWARDS}
        for launch in launches
    ]


def launch_record(launch: Launch, *, status: int | None = None, failed: str | None = None) -> records.Launch:
    """Return a process as a manifest's record, with the sizes of its files."""
    same = {one.name: getattr(launch, one.name) for one in dataclasses.fields(LaunchFacts) if one.name != "files"}
    sizes = {
        name: len(content) if isinstance(content, bytes) else Path(content).stat().st_size
        for name, content in launch.files.items()
    }
    return records.Launch(**same, files=sizes, status=status, failed=failed)
