"""Collect where a run's numbers come from: its manifest before it begins."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from orchestrator.core import secret_looks
from orchestrator.experiment.pacing import Pace
from orchestrator.experiment.plan import PlannedJob, RunPlan, launch_record
from orchestrator.parts import outside
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.summaries import Git, Job, JobPace, OfSweep, Rank
from orchestrator.store.rundir import controller

PACKAGES = ("orch-testbed", "fabric", "paramiko", "pydantic", "numpy", "numba", "pyarrow", "torch", "torchvision")
GIT_S = 5.0


def collect(
    plan: RunPlan, argv: Sequence[str], *, run: str, sweep: OfSweep | None = None, forced: Sequence[str] = ()
) -> Manifest:
    """Return what is known of a run before it begins."""
    return Manifest(
        run=run,
        experiment=plan.experiment,
        outcome="running",
        stage="start",
        controller=controller(),
        began_ns=time.time_ns(),
        reasons=("the run has not ended",),
        point=plan.point,
        repetition=plan.repetition,
        salt=plan.salt,
        seed=plan.seed,
        scale=plan.topology.scale,
        dilation=plan.topology.dilation,
        argv=tuple(secret_looks.masked_all(argv)),
        git=git_state(Path(__file__).parent),
        versions=versions(),
        topology=plan.topology,
        validity=plan.validity,
        jobs=tuple(map(_job, plan.jobs)),
        launches=tuple(map(launch_record, plan.launches())),
        forced=tuple(forced),
        sweep=sweep,
        planned_windows=len(plan.windows),
    )


def _job(planned: PlannedJob) -> Job:
    logging = {launch.rank for launch in planned.launches if launch.follow is not None}
    return Job(
        name=planned.job.name,
        workload=planned.workload,
        model=_text(getattr(planned.config, "model", None)),
        compute=_compute(planned.config),
        ranks=tuple(Rank(rank=one.rank, node=one.node, logs=one.rank in logging) for one in planned.job.ranks),
        theory=planned.theory,
        pace=None if planned.pace == Pace() else _pace(planned.pace),
    )


def _pace(pace: Pace) -> JobPace:
    return JobPace(every_s=pace.every_s, after=pace.after, by_s=pace.by_s, held=pace.held)


def _compute(config: object) -> str | None:
    """How a workload computes: as its file says; where there is a time to wait for and no choice, it is emulated."""
    said = _text(getattr(config, "compute", None))
    return "emulated" if said is None and hasattr(config, "compute_time") else said


def _text(value: object) -> str | None:
    """Return a model as text: it may be given by its numbers in place of a name."""
    return None if value is None else str(value)


def versions() -> dict[str, str | None]:
    """Of this controller: Python, the kernel, the packages that matter, and those that offer parts."""
    found: dict[str, str | None] = {"python": platform.python_version(), "kernel": platform.release()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return {**found, **outside.packages()}


def git_state(folder: Path) -> Git | None:
    """Commit of the source tree that runs, and whether it was changed since; None outside a checkout.

    A wheel that is installed below somebody's repository is no part of it: what git does not track has no commit there.
    """

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=GIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD") if git("ls-files", "--error-unmatch", ".") else None
    if not commit:
        return None
    return Git(commit=commit, dirty=bool(git("status", "--porcelain", "--untracked-files=no")))
