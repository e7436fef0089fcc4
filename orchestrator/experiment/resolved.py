"""An experiment as data with every default spelled out, as it is identified, and as it is kept with its results."""

from __future__ import annotations

from orchestrator.core.opendata import YamlMapping
from orchestrator.experiment.experiment import Experiment


def resolved_data(experiment: Experiment) -> YamlMapping:
    """The experiment as data, defaults spelled out: run again, it is the same experiment, in any allocation."""
    data = recorded_data(experiment)
    data["testbed"].get("slurm", {}).pop("allocation", None)
    del data["attempts"]  # how often is tried decides nothing of what is measured
    return data


def recorded_data(experiment: Experiment) -> YamlMapping:
    """The same with what was learned of its hosts, by which its results can be read anywhere."""
    data = experiment.model_dump(mode="json", by_alias=True, exclude_none=True)
    for key in ("conditions", "jobs", "traffic", "windows", "collect"):
        if not data[key]:
            del data[key]
    return data
