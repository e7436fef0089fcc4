"""Predict an experiment's iteration time: which workloads can be predicted, and under which conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import fitting
from orchestrator.experiment.experiment import Experiment
from orchestrator.parts import registry
from orchestrator.parts.protocols import Predictable
from orchestrator.parts.terms import Terms
from orchestrator.parts.theory import Replicated, Work
from orchestrator.parts.topology import Job, Topology
from orchestrator.predict import pipeline
from orchestrator.predict.network_costs import Costs, Network, Rates, all_reduced, network
from workloads.common import placement, torch_ranks

PREDICTABLE = ("ddp", "ptd")

_WHY_NOT = {
    "moe": "who sends how much is decided by its gates, iteration by iteration (Li, section 3.2)",
    "horovod": "its background thread fuses tensors by a clock of its own",
    "tensorflow": "its workers and servers overlap in ways that no theory here describes",
    "command": "orch does not know what another program computes and sends",
    "kungfu": "its ranks adapt who sends to whom",
    "collective": "it is what the model's inputs are measured with",
}
_HARMLESS = frozenset({"rate", "congestion-control", "offloads", "firewall"})

AT_ONCE = 2  # threads of gloo's process group, each with one collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The input of a prediction: a job on its testbed, what its ranks do, and the links between them."""

    config: Any  # the workload's own
    workload: str
    job: Job
    topology: Topology
    work: Work
    network: Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Terms of each rank, and the iteration with all inputs at their low and at their high end, in seconds."""

    subject: Subject
    ranks: tuple[Terms, ...]
    interval_s: tuple[float, float]
    costs_assumed: bool

    @property
    def terms(self) -> Terms:
        """The terms of rank 0, as Li has them."""
        return self.ranks[0]

    @property
    def iteration_s(self) -> float:
        return self.terms.iteration_s


def subject(experiment: Experiment, *, file: str) -> Subject:
    """Return the subject of an experiment without problems; ConfigError says what cannot be predicted, and why."""
    for reason in _refusals(experiment):
        raise ConfigError(f"{file}: cannot be predicted: {reason}")
    topology = fitting.topology_of(experiment)
    choice = experiment.all_jobs()[0].workload
    job = Job(name=experiment.all_jobs()[0].name, index=0, ranks=placement.ranks(choice.config.hosts, topology))
    work = work_of(choice.name, choice.config, job, topology)
    if isinstance(work, str):
        raise ConfigError(f"{file}: cannot be predicted: {choice.name}: {work}")
    spread = torch_ranks.spread(choice.config, job, traced=True) if topology.rails > 1 else ""
    rates = [one.config for one in experiment.conditions if one.name == "rate"]
    limits = [(rate.host, rate.where or "nic", rate.rate) for rate in rates]
    return Subject(
        config=choice.config,
        workload=choice.name,
        job=job,
        topology=topology,
        work=work,
        network=network(job, topology, limits=limits, spread=spread),
    )


def refused(experiment: Experiment) -> bool:
    """Return whether the terms of an experiment cannot be predicted."""
    return bool(next(_refusals(experiment), "")) or isinstance(_work(experiment), str)


def _work(experiment: Experiment) -> Work | str:
    topology = fitting.topology_of(experiment)
    spec = experiment.all_jobs()[0]
    job = Job(name=spec.name, index=0, ranks=placement.ranks(spec.workload.config.hosts, topology))
    return work_of(spec.workload.name, spec.workload.config, job, topology)


def work_of(workload: str, config: Any, job: Job, topology: Topology) -> Work | str:
    """Return the work of a workload's ranks; where it cannot be predicted, why."""
    return cast("Predictable", registry.workload(workload)).work(config, job, topology)


def _refusals(experiment: Experiment) -> Iterator[str]:
    """Yield the reasons why an experiment cannot be predicted."""
    jobs = experiment.all_jobs()
    if len(jobs) > 1:
        yield f"{len(jobs)} jobs share the network; accepted: one job"
    name = jobs[0].workload.name
    if name not in PREDICTABLE:
        why = _WHY_NOT.get(name, "there is no model of it here")
        yield f"workload {name}: {why}; accepted: {' or '.join(PREDICTABLE)}"
    for window in experiment.all_windows():
        for choice in window.traffic:
            if not fitting.is_silent(choice):
                yield f"{choice.name} shares the links in window {window.name}; accepted: no cross traffic"
    rails = fitting.topology_of(experiment).rails
    if rails > 1 and name == "ptd":
        yield f"hosts have {rails} rails, and what each group of ptd sends over which is not modelled; accepted: one"
    for condition in experiment.conditions:
        if rails > 1 and condition.name == "rate" and condition.config.rail is not None:
            yield f"rail {condition.config.rail} has a rate of its own; accepted: one for all {rails} rails"
        if condition.name not in _HARMLESS:
            yield f"no term of the model stands for the condition {condition.name}; accepted: none of that kind"


def predict(subject: Subject, costs: Costs) -> Prediction:
    """Return the prediction for a subject with these inputs."""
    likely, low, high = (_ranks(subject, costs.at(side)) for side in ("value", "low", "high"))
    return Prediction(
        subject=subject,
        ranks=likely,
        interval_s=(low[0].iteration_s, high[0].iteration_s),
        costs_assumed=costs.are_assumed,
    )


def _ranks(subject: Subject, rates: Rates) -> tuple[Terms, ...]:
    work = subject.work
    if isinstance(work, Replicated):
        return (replicated_terms(work, subject.network, rates),) * work.ranks
    stages = pipeline.terms(work, subject.network, rates)
    return tuple(stages[stage] for stage in work.stage_of)


def replicated_terms(work: Replicated, net: Network, rates: Rates) -> Terms:
    """Return the terms of any rank of a replicated model: all do the same.

    Buckets go through the network in the order in which they are ready. As many as AT_ONCE are under way, so that the
    rounds of one pass while another's bytes are on the links; the links of a rail carry one byte after the other, and
    of several rails each bucket takes the next. Whatever copies bytes does so for one bucket after the other.
    """
    everyone = [range(work.ranks)]
    done: list[float] = []
    free_s, copied_s = [0.0] * net.rails, 0.0
    busy_s, last_s = 0.0, 0.0
    for number, bucket in enumerate(work.buckets):
        one = all_reduced(everyone, bucket.size, net=net, rates=rates)
        begin_s = max(bucket.ready_s, done[number - AT_ONCE] if number >= AT_ONCE else 0.0)
        rail = number % net.rails
        there_s = max(begin_s + one.rounds_s, max(begin_s, free_s[rail]) + one.link_s)
        end_s = there_s
        if one.copies_s:
            end_s = copied_s = max(there_s, copied_s) + one.copies_s
        busy_s += max(0.0, end_s - max(begin_s, last_s))
        free_s[rail] = end_s
        last_s = max(last_s, end_s)
        done.append(end_s)
    exposed_s = max(0.0, last_s - work.backward_s)
    return Terms(
        compute_s=work.passes * (work.forward_s + work.backward_s),
        data_s=exposed_s,
        hidden_s=max(0.0, busy_s - exposed_s),
        other_s=rates.step_s,
    )
