"""A plan as JSON data: what `orch plan --json` prints, and what manifests say of processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from orchestrator.core.opendata import JsonObject, YamlValue
from orchestrator.experiment.plans.plan import RunPlan
from orchestrator.experiment.yamlfiles.documents import Variable
from orchestrator.parts.launch import Launch
from orchestrator.store.manifests import records


class VariableData(TypedDict):
    """A variable of a file: its value, and where that is from."""

    value: YamlValue
    type: str
    origin: str


_AFTERWARDS = ("status", "failed")  # what is known of a process once it has ended


def plan_data(plan: RunPlan) -> JsonObject:
    """The plan as JSON data: every process with its flags and files, every change, every demand."""
    return {
        "experiment": plan.experiment,
        "point": plan.point,
        "repetition": plan.repetition,
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
    """Variables as JSON data, by name."""
    return {one.name: {"value": one.value, "type": one.type, "origin": one.origin} for one in variables}


def _launches(launches: Iterable[Launch]) -> list[JsonObject]:
    """Processes that have not run."""
    return [
        {key: value for key, value in dataclasses.asdict(launch_record(launch)).items() if key not in _AFTERWARDS}
        for launch in launches
    ]


def launch_record(launch: Launch, *, status: int | None = None, failed: str | None = None) -> records.Launch:
    """A process as manifests keep it; of its files the sizes."""
    return records.Launch(
        name=launch.name,
        node=launch.node,
        part=launch.part,
        role=launch.role,
        argv=launch.argv,
        env=dict(launch.env),
        env_from=dict(launch.env_from),
        files={
            name: len(content) if isinstance(content, bytes) else Path(content).stat().st_size
            for name, content in launch.files.items()
        },
        privileged=launch.privileged,
        required=launch.required,
        job=launch.job,
        rank=launch.rank,
        window=launch.window,
        source=launch.source,
        wrapped_by=launch.wrapped_by,
        flows=launch.flows,
        container=launch.container,
        status=status,
        failed=failed,
    )
