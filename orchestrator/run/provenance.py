"""Where a run's numbers come from: the first entries of its manifest."""

from __future__ import annotations

import dataclasses
import platform
import subprocess
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from orchestrator.core import secret_looks
from orchestrator.experiment.plan import PlannedJob, RunPlan
from orchestrator.experiment.plandata import launch_data

PACKAGES = ("orch-testbed", "fabric", "paramiko", "pydantic", "numpy", "numba", "pyarrow", "torch", "torchvision")
GIT_S = 5.0


def collect(plan: RunPlan, argv: Sequence[str]) -> dict[str, Any]:
    """What is known of a run before it begins, as the manifest's first entries."""
    return {
        "began_ns": time.time_ns(),
        "valid": False,
        "reasons": ["the run has not ended"],
        "point": plan.point,
        "repetition": plan.repetition,
        "seed": plan.seed,
        "scale": plan.topology.scale,
        "argv": secret_looks.masked_all(argv),
        "git": git_state(Path(__file__).parent),
        "versions": versions(),
        "topology": dataclasses.asdict(plan.topology),
        "validity": dict(plan.validity),
        "jobs": [
            {
                "name": planned.job.name,
                "workload": planned.workload,
                "model": _text(getattr(planned.config, "model", None)),
                "compute": _compute(planned.config),
                "ranks": _ranks(planned),
                "theory": dataclasses.asdict(planned.theory) if planned.theory else None,
            }
            for planned in plan.jobs
        ],
        "launches": [{**launch_data(launch), "status": None, "failed": None} for launch in plan.launches()],
        "windows": [],
        "clocks": {},
    }


def _ranks(planned: PlannedJob) -> list[dict[str, Any]]:
    logging = {launch.rank for launch in planned.launches if launch.follow is not None}
    return [{"rank": rank.rank, "node": rank.node, "logs": rank.rank in logging} for rank in planned.job.ranks]


def _compute(config: object) -> str | None:
    """How a workload computes: as its file says; where there is a time to wait for and no choice, it is emulated."""
    said = _text(getattr(config, "compute", None))
    return "emulated" if said is None and hasattr(config, "compute_time") else said


def _text(value: object) -> str | None:
    """A model may be given by its numbers in place of a name."""
    return None if value is None else str(value)


def versions() -> dict[str, str | None]:
    """Of this controller: Python, the kernel, and the packages that matter."""
    found: dict[str, str | None] = {"python": platform.python_version(), "kernel": platform.release()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit of the source tree that runs, and whether it was changed since; None outside a checkout."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=GIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if not commit:
        return None
    return {"commit": commit, "dirty": bool(git("status", "--porcelain", "--untracked-files=no"))}
