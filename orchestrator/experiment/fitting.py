"""Fit an experiment to its testbed: loads become rates, and mistakes that depend on the testbed are found; pure."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from orchestrator.core.errors import ConfigError, shortened
from orchestrator.core.fields import LinkShare
from orchestrator.core.units import duration_text, rate_text
from orchestrator.experiment import pacing, placements, seeds, testbeds
from orchestrator.experiment.experiment import Choice, Experiment, JobSpec, WindowSpec
from orchestrator.parts import registry
from orchestrator.parts.collectors import tcpdump
from orchestrator.parts.conditions import congestion_control
from orchestrator.parts.protocols import Collector, Condition, OwnPaced, Problem, Traffic, end_name
from orchestrator.parts.shared import capture_files
from orchestrator.parts.topology import Topology
from workloads.common import container_config

Located = tuple[tuple[str | int, ...], Problem]  # with its path in the file
_Direction = tuple[str, str, int]  # "from" or "to", the host, and the rail

_NEEDY: Mapping[registry.Kind, Callable[[str], Collector | Condition | Traffic]] = {
    "collector": registry.collector,
    "condition": registry.condition,
    "traffic": registry.traffic,
}


def topology_of(experiment: Experiment) -> Topology:
    """Return the testbed that the experiment names, as plain data."""
    return testbeds.place(experiment.testbed).topology


def fitted(experiment: Experiment, place: Callable[[Sequence[str | int]], str]) -> Experiment:
    """Return the experiment with every load as a rate, once it fits its testbed.

    One ConfigError tells every problem; `place` turns a path into file:line:column.
    """
    topology = topology_of(experiment)
    sized = _with_rates(_placed(experiment, topology), topology)
    lines = [
        f"{place(loc)}: {'.'.join(map(str, loc))}: {shortened(problem.message)}; accepted: {problem.accepted}"
        for loc, problem in problems(sized, topology)
    ]
    if lines:
        raise ConfigError("\n".join(lines))
    return sized


def _placed(experiment: Experiment, topology: Topology) -> Experiment:
    """Put the hosts of each rank in the place of every placement that fits."""
    jobs: list[JobSpec] = []
    taken: list[str] = []
    for spec in experiment.jobs:
        config, placement = spec.workload.config, spec.placement
        job = spec
        if placement is not None and config.hosts is None:
            with contextlib.suppress(ValueError):  # which `problems` tells
                seed = seeds.of_placement(experiment.seed, spec.name)
                config = config.model_copy(update={"hosts": placements.hosts(placement, topology, taken, seed)})
                job = spec.model_copy(update={"workload": spec.workload.with_config(config), "placement": None})
        taken += topology.placed if config.hosts is None else config.hosts
        jobs.append(job)
    return experiment.model_copy(update={"jobs": tuple(jobs)})


def _jobs_problems(experiment: Experiment, topology: Topology) -> Iterator[Located]:
    """Find placements without room, periods that nothing keeps, and jobs that idle longer than a run waits."""
    for i, job in enumerate(experiment.jobs):
        at = ("jobs", i)
        if job.placement is not None and job.workload.config.hosts is not None:
            accepted = "one of both"
            yield (*at, "placement"), Problem(at=(), message="stands beside hosts of the workload", accepted=accepted)
        elif job.placement is not None:
            slots = len(topology.placed)
            message = f"{job.placement.ranks} ranks do not fit on hosts that take {slots}"
            yield (*at, "placement", "ranks"), Problem(at=(), message=message, accepted=f"at most {slots}")
        own = _own_pace(job.workload)
        if job.every is not None and own:
            message = f"{own} begins iterations by itself"
            yield (*at, "every"), Problem(at=(), message=message, accepted="`start` alone, or another workload")
    names = [job.name for job in experiment.jobs]
    stall_s = min(
        window.measure.stall_timeout if window.measure else experiment.measure.stall_timeout
        for window in experiment.all_windows()
    )
    for name, why in pacing.too_long(experiment.paces(), stall_s):
        accepted = f"less, or a larger `measure: {{stall_timeout: ...}}` than {duration_text(stall_s)}"
        yield ("jobs", names.index(name)), Problem(at=(), message=why, accepted=accepted)


def _own_pace(workload: Choice) -> str:
    module = registry.workload(workload.name)
    return cast("OwnPaced", module).own_pace(workload.config) if hasattr(module, "own_pace") else ""


def _controls_problems(experiment: Experiment) -> Iterator[Located]:
    """Find congestion control for jobs that are not there, have two, or whose connections are a program's of others."""
    jobs, seen = {job.name: job for job in experiment.all_jobs()}, set[str]()
    for i, choice in enumerate(experiment.conditions):
        name = choice.config.job if choice.name == congestion_control.NAME else None
        if name is None:
            continue
        at = ("conditions", i, choice.name, "job")
        own = _own_pace(jobs[name].workload) if name in jobs else ""
        if name not in jobs:
            yield at, Problem(at=(), message=f"no job is called {name}", accepted=f"one of {', '.join(jobs)}")
        elif name in seen:
            yield at, Problem(at=(), message=f"an earlier condition sets that of {name} already", accepted="one a job")
        elif own:
            message = f"the connections of {name} are those of {own}, not of its rank"
            accepted = "hosts that the job has for itself, not job"
            yield at, Problem(at=(), message=message, accepted=accepted)
        seen.add(name)


def _with_rates(experiment: Experiment, topology: Topology) -> Experiment:
    """Put a rate in the place of every load that is a share of its links."""

    def sized(traffic: Sequence[Choice]) -> tuple[Choice, ...]:
        return tuple(_with_rate(choice, topology) for choice in traffic)

    windows = tuple(window.model_copy(update={"traffic": sized(window.traffic)}) for window in experiment.windows)
    return experiment.model_copy(update={"traffic": sized(experiment.traffic), "windows": windows})


def _with_rate(choice: Choice, topology: Topology) -> Choice:
    share = getattr(choice.config, "load", None)
    if not isinstance(share, LinkShare):
        return choice
    used: dict[tuple[str, str, int], float] = defaultdict(float)  # of each link and direction, by a load of 1 bit/s
    one = choice.config.model_copy(update={"load": 1.0})
    for demand in registry.traffic(choice.name).demands(one):
        used["from", demand.src, demand.rail] += demand.rate
        used["to", demand.dst, demand.rail] += demand.rate
    hosts = {host.name for host in topology.hosts}
    if not used or any(host not in hosts or rail >= topology.rails for _, host, rail in used):
        return choice  # a mistake that the part tells
    fits = min(topology.carries_bps(host, rail) / rate for (_, host, rail), rate in used.items())
    return choice.with_config(choice.config.model_copy(update={"load": share * fits}))


def problems(experiment: Experiment, topology: Topology) -> list[Located]:
    """Find every mistake of an experiment that depends on its testbed, with its path in the file."""
    found: list[Located] = []

    def ask(kind: registry.Kind, choice: Choice, *path: str | int) -> None:
        part = registry.parts_of(kind)[choice.name]
        wrong = part.problems(choice.config, topology) or withheld(kind, choice, topology)
        found.extend(((*path, choice.name, *p.at), p) for p in wrong)

    for i, choice in enumerate(experiment.conditions):
        ask("condition", choice, "conditions", i)
    if not found:
        found.extend(_changed_twice(experiment, topology))
    for i, job in enumerate(experiment.all_jobs()):
        place = (*(("jobs", i) if experiment.jobs else ()), "workload")
        ask("workload", job.workload, *place)
        found.extend(_undilated(job.workload, place, topology))
        found.extend(_in_containers(job.workload, place, topology))
    found.extend(_jobs_problems(experiment, topology))
    found.extend(_controls_problems(experiment))
    for i, window in enumerate(experiment.all_windows()):
        at = ("windows", i, "traffic") if experiment.windows else ("traffic",)
        before = len(found)
        for k, choice in enumerate(window.traffic):
            here = len(found)
            ask("traffic", choice, *at, k)
            loads = [one for one in found[here:] if one[0][-1] == "load"]
            if loads and is_silent(choice):  # no load is what was meant
                found[here:] = [one for one in found[here:] if one not in loads]
        if len(found) == before:
            found.extend((at, problem) for problem in _overloads(window, topology))
    for i, choice in enumerate(experiment.collect):
        ask("collector", choice, "collect", i)
    found.extend(_unfit_captures(experiment))
    return found


def _unfit_captures(experiment: Experiment) -> Iterator[Located]:
    if experiment.captures is None:
        return
    configs = [choice.config for choice in experiment.collect if choice.name == tcpdump.NAME]
    if not configs:
        accepted = f"with `collect: [{tcpdump.NAME}]`"
        yield ("captures",), Problem(at=(), message="nothing is captured", accepted=accepted)
    elif experiment.captures.reduce == capture_files.AS_THEY_CLOSE:
        at = ("captures", "reduce")
        if not experiment.captures.stay:
            yield at, Problem(at=(), message="captures that come home are read there", accepted="with `stay: true`")
        if not any(config.rotate or config.rotate_every for config in configs):
            message = "captures of one file close when the run ends"
            yield at, Problem(at=(), message=message, accepted="with `tcpdump: {rotate_every: 10min}`, or `rotate`")


def _undilated(workload: Choice, at: tuple[str | int, ...], topology: Topology) -> Iterator[Located]:
    """Find a workload whose computing takes the time that it takes, where time is dilated."""
    config = workload.config
    if topology.dilation > 1 and (workload.name == "command" or getattr(config, "compute", "") == "real"):
        message = f"its computing cannot be dilated {topology.dilation} times"
        yield (*at, workload.name), Problem(at=(), message=message, accepted="compute: emulated, or no `dilation`")


def _in_containers(workload: Choice, at: tuple[str | int, ...], topology: Topology) -> Iterator[Located]:
    for problem in container_config.problems(workload.config.container, topology):
        yield (*at, workload.name, "container", *problem.at), problem


# Who grants a right not, and what would do, of hosts that are known beforehand to grant none.
_WITHHELD = {
    "slurm": ("a job of Slurm without root has not", "an experiment without it; docs/slurm.md says what is left"),
    "kubernetes": (
        "its container has not",
        "an experiment without it, or a container whose securityContext grants it: `runAsUser: 0` and"
        " `capabilities: {add: [NET_RAW, NET_ADMIN, SYS_NICE]}` (docs/kubernetes.md)",
    ),
}


def withheld(kind: registry.Kind, choice: Choice, topology: Topology) -> Iterator[Problem]:
    """Find a right that a part needs, and that the hosts are known beforehand to grant nobody.

    Workloads need none: their ranks are programs of the user's.
    """
    if topology.rights is None or kind not in _NEEDY:
        return
    for need in _NEEDY[kind](choice.name).requirements(choice.config, topology):
        if need.kind == "privilege" and need.what not in topology.rights:
            who, accepted = _WITHHELD[topology.kind]
            message = f"needs {need.what.partition(' ')[0]} on {need.node}, which {who}"
            yield Problem(at=(), message=message, accepted=accepted)
            return


def is_silent(choice: Choice) -> bool:
    """Return whether a source of cross traffic is asked for no load at all: it is left out of the plan."""
    demands = registry.traffic(choice.name).demands(choice.config)
    return bool(demands) and not any(demand.rate for demand in demands)


def _changed_twice(experiment: Experiment, topology: Topology) -> Iterator[Located]:
    seen: set[tuple[str, str]] = set()
    for i, choice in enumerate(experiment.conditions):
        for change in registry.condition(choice.name).changes(choice.config, topology):
            if (change.node, change.name) in seen and not change.shared:
                message = f"an earlier condition sets the {change.name} already"
                yield ("conditions", i), Problem(at=(), message=message, accepted="one for each place")
            seen.add((change.node, change.name))


def _overloads(window: WindowSpec, topology: Topology) -> Iterator[Problem]:
    """Find sources that together ask for more than the link of a host carries from or to it."""
    for (way, host, rail), total in _totals(window).items():
        if total > topology.carries_bps(host, rail):
            end = end_name(host, rail)
            yield Problem(
                at=(),
                message=f"the loads {way} {end} add up to {rate_text(total)}, more than its link carries",
                accepted=f"at most {topology.carries_text([host], rail)} together",
            )


def _totals(window: WindowSpec) -> dict[_Direction, float]:
    totals: dict[_Direction, float] = defaultdict(float)
    for choice in window.traffic:
        for demand in registry.traffic(choice.name).demands(choice.config):
            totals["from", demand.src, demand.rail] += demand.rate
            totals["to", demand.dst, demand.rail] += demand.rate
    return totals
