"""Find runs of the store that measured what is predicted: their iteration times and their terms."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from orchestrator.analysis.windows import time_shares
from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.core.screen import console
from orchestrator.experiment import fitting, loading
from orchestrator.experiment.experiment import Experiment
from orchestrator.parts.terms import Terms
from orchestrator.parts.theory import Replicated, Work
from orchestrator.parts.topology import Job
from orchestrator.predict import predicting
from orchestrator.predict.predicting import Subject
from orchestrator.store import index
from orchestrator.store.rundir import Listed
from orchestrator.store.tabular import tables
from workloads.common import placement


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredIteration:
    """Measurements of runs of the same settings: medians over iterations and ranks, then over runs, in seconds."""

    runs: tuple[str, ...]
    iteration_s: float
    terms: Terms  # of rank 0
    ranks: dict[int, Terms]  # of the newest run
    valid: bool  # whether all runs are


def key(subject: Subject) -> Hashable:
    """Return the settings that a run must share to have measured this: the training, and the network below it."""
    net = subject.network
    config = subject.config
    return (
        subject.workload,
        config.model_dump_json(exclude={"env", "env_from", "threads"}),
        net.node_of,
        tuple(sorted(net.out_bps.items())),
        tuple(sorted(net.in_bps.items())),
        subject.topology.scale,
        subject.topology.dilation,
        subject.topology.kind,
    )


def find(results: Path, subjects: Sequence[Subject]) -> dict[Hashable, MeasuredIteration]:
    """Return by key what the store's completed runs measured of these subjects; those never measured are left out."""
    wanted = {key(subject): subject for subject in subjects}
    models = {(subject.workload, _model(subject)) for subject in subjects}
    found: dict[Hashable, list[tuple[Listed, Subject]]] = {}
    for entry in index.entries(results) if results.is_dir() else []:
        jobs = entry.manifest.jobs
        if not entry.sealed or len(jobs) != 1 or (jobs[0].workload, jobs[0].model) not in models:
            continue
        subject = _subject(entry.path)
        if subject is not None and key(subject) in wanted:
            found.setdefault(key(subject), []).append((entry, subject))
    read = ((name, _measured(runs)) for name, runs in found.items())
    return {name: measured for name, measured in read if measured is not None}


def _model(subject: Subject) -> str:
    return str(subject.config.model)


def _subject(path: Path) -> Subject | None:
    """Return the subject that a sealed run measured; None where that could not have been predicted."""
    try:
        return predicting.subject(loading.sealed(path), file=str(path))
    except ConfigError:
        return None
    except StoreError as error:
        console.note(f"left out: {error.message}", hint=error.hint)
        return None


def _measured(runs: list[tuple[Listed, Subject]]) -> MeasuredIteration | None:
    """Combine the runs into one measurement; None where none of them has iterations in a window."""
    terms = ((entry, _terms(entry.path, subject.work, subject.job.name)) for entry, subject in runs)
    read = [(entry, ranks) for entry, ranks in terms if ranks]
    if not read:
        return None
    first = [ranks[min(ranks)] for _, ranks in read]
    return MeasuredIteration(
        runs=tuple(entry.run for entry, _ in read),
        iteration_s=median(fmean(terms.iteration_s for terms in ranks.values()) for _, ranks in read),
        terms=Terms(**{name: median(getattr(terms, name) for terms in first) for name in Terms.__slots__}),
        ranks=read[-1][1],
        valid=all(entry.manifest.valid for entry, _ in read),
    )


def recorded(path: Path, experiment: Experiment) -> dict[int, Terms]:
    """Return the measured terms of each rank of a run's first job of a workload that has some.

    What shared its links does not matter.
    """
    topology = fitting.topology_of(experiment)
    for number, spec in enumerate(experiment.all_jobs()):
        if spec.workload.name in predicting.PREDICTABLE:
            config = spec.workload.config
            job = Job(name=spec.name, index=number, ranks=placement.ranks(config.hosts, topology))
            work = predicting.work_of(spec.workload.name, config, job, topology)
            return {} if isinstance(work, str) else _terms(path, work, job.name)
    return {}


def _terms(path: Path, work: Work, job: str) -> dict[int, Terms]:
    """Return the measured terms of each rank of a run; none where its tables cannot be read."""
    try:
        read = {name: tables.read(path / "tables", name) for name in ("iterations", "overlaps", "spans")}
    except StoreError:
        return {}
    if isinstance(work, Replicated):
        return time_shares.of_replicas(read, job)
    return time_shares.of_stages(read, job, ends=work.ends)
