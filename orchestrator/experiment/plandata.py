"""A plan as JSON data: what `orch plan --json` prints, and what manifests say of processes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from orchestrator.experiment.plan import RunPlan
from orchestrator.parts.launch import Launch


def plan_data(plan: RunPlan) -> dict[str, Any]:
    """The plan as JSON data: every process with its flags and files, every change, every demand."""
    return {
        "experiment": plan.experiment,
        "point": plan.point,
        "repetition": plan.repetition,
        "seed": plan.seed,
        "topology": dataclasses.asdict(plan.topology),
        "changes": [{"node": c.node, "name": c.name, "kind": c.kind, "read": list(c.read)} for c in plan.changes],
        "collectors": [launch_data(launch) for launch in plan.collectors],
        "jobs": [
            {
                "name": planned.job.name,
                "workload": planned.workload,
                "config": planned.config.model_dump(mode="json", by_alias=True, exclude_none=True),
                "ranks": [dataclasses.asdict(rank) for rank in planned.job.ranks],
                "theory": dataclasses.asdict(planned.theory) if planned.theory else None,
                "launches": [launch_data(launch) for launch in planned.launches],
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
                        "launches": [launch_data(launch) for launch in source.launches],
                        "escalations": [
                            {"text": step.text, "launches": [launch_data(launch) for launch in step.launches]}
                            for step in source.escalations
                        ],
                    }
                    for source in window.sources
                ],
            }
            for window in plan.windows
        ],
        "requirements": [dataclasses.asdict(requirement) for requirement in plan.requirements],
    }


def launch_data(launch: Launch) -> dict[str, Any]:
    """One process as JSON data; of its files the sizes."""
    return {
        "name": launch.name,
        "node": launch.node,
        "part": launch.part,
        "role": launch.role,
        "argv": list(launch.argv),
        "env": dict(launch.env),
        "env_from": dict(launch.env_from),
        "files": {
            name: len(content) if isinstance(content, bytes) else Path(content).stat().st_size
            for name, content in launch.files.items()
        },
        "privileged": launch.privileged,
        "required": launch.required,
        "job": launch.job,
        "rank": launch.rank,
        "window": launch.window,
        "source": launch.source,
        "flows": [dataclasses.asdict(flow) for flow in launch.flows],
    }
