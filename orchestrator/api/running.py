"""Measure experiments from a program: `load` reads a file, `run` carries it out."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import yaml

from orchestrator.api.results import MeasuredRun
from orchestrator.core.errors import ConfigError, Interrupted
from orchestrator.execution import execute
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import RunOptions, wait_seconds
from orchestrator.experiment import loading, seeds
from orchestrator.experiment.experiment import Experiment
from orchestrator.report.site import refreshing
from orchestrator.sweep import repeating


def load(path: str | Path, *, settings: Mapping[str, object] | None = None, local: bool = False) -> Experiment:
    """Return the experiment in a file, checked as `orch plan` checks it.

    `settings` replaces values by their paths, as `--set` does: {"measure.iterations": 50, "traffic": []}. `local` puts
    hosts of this machine in the place of an inventory's, as `--local` does. ConfigError lists every mistake with its
    place.
    """
    options = [f"{key}={_yaml(key, value)}" for key, value in (settings or {}).items()]
    return loading.checked(Path(path), options, local=local)[0]


def run(
    experiment: Experiment | str | Path,
    *,
    results: str | Path = "results",
    wait: str | None = None,
    force: bool = False,
    seed: str | None = None,
    quiet: bool = False,
) -> list[MeasuredRun]:
    """Measure an experiment, all its repetitions, and give its runs in their order; each is sealed below `results`.

    Of a run that was tried several times (`attempts`) the last try is given. A run that failed is among them, with its
    `outcome` and `error`. `wait` is how long to wait for a testbed that is in use ("10min"; default: LockedError at
    once), `force` starts although processors or memory do not suffice, `seed` is the salt of a run whose
    random numbers are to be repeated (default: a new one), `quiet` prints no progress on standard error.
    ConfigError where the experiment cannot be carried out; Interrupted after Ctrl-C, once what was measured is sealed.
    """
    if not isinstance(experiment, Experiment):
        experiment = load(experiment)
    options = RunOptions(
        results=Path(results),
        wait_s=wait_seconds(wait),
        force=force,
        salt=seeds.given(seed),
        progress=Progress(io.StringIO() if quiet else None),
        after_run=refreshing.refresh_apart,
    )
    outcomes = execute.carry_out(experiment, options, enough=repeating.rule(experiment, options))
    for outcome in outcomes:
        if isinstance(outcome.error, Interrupted):
            raise outcome.error
    return [MeasuredRun(outcome.path) for outcome in execute.last_tries(outcomes)]


def _yaml(key: str, value: object) -> str:
    """Return a value as `--set` reads it."""
    try:
        text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True)
    except yaml.representer.RepresenterError:
        raise ConfigError(
            f"{key}: a {type(value).__name__} cannot stand in a file; accepted: text, numbers, bools, lists and dicts"
        ) from None
    return text.removesuffix("\n").removesuffix("\n...")
