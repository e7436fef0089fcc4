"""Simulate what iterations of a run would have taken without what made them slow, beside a simulation of the run.

Causes are found in what was measured; what is left out stands in the run's experiment. The simulation of the run as it
was, held to its measurement, is the error of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.analysis.causes.explanation import Explanation, Finding
from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.core.units import span_text
from orchestrator.experiment import fitting, loading, seeds
from orchestrator.experiment.experiment import Choice, Experiment, WindowSpec
from orchestrator.parts import registry
from orchestrator.predict import foreseeing, inputs, learned
from orchestrator.predict.foreseeing import How
from orchestrator.store.manifests.records import Manifest

# Conditions of a host's link that show as these causes.
_CONDITIONS = {"link-rate": "rate", "small-queue": "rate", "loss": "loss", "delay": "delay"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """Mean iterations of a job in seconds: measured, simulated as the run was, and simulated without what is left out.

    `unknown` says why there is none.
    """

    left_out: tuple[str, ...] = ()
    measured_s: float = 0.0
    simulated_s: float = 0.0
    without_s: float = 0.0
    unknown: str = ""

    @property
    def error(self) -> float:
        """By how much the simulation of the run is longer than its measurement, as a share of that."""
        return self.simulated_s / self.measured_s - 1.0

    @property
    def text(self) -> str:
        """The answer in one line, with its own error."""
        if self.unknown:
            return f"without  not simulated: {self.unknown}"
        less = self.without_s / self.simulated_s - 1.0
        return (
            f"without  {', '.join(self.left_out)} an iteration would take {span_text(self.without_s)} ({less:+.0%}) by "
            f"simulation, which gives {span_text(self.simulated_s)} for the run as it was ({self.error:+.1%})"
        )


def of_run(path: Path, manifest: Manifest, found: Explanation, *, results: Path) -> Counterfactual:
    """Simulate a window of a run as it was, and without the first cause of an explanation."""
    if not found.findings:
        return Counterfactual(unknown="no cause stands out")
    try:
        experiment = loading.sealed(path)
        window = next(one for one in experiment.all_windows() if one.name == found.window)
        less, left_out = _without(experiment, window, found.findings[0], found.job)
        if not left_out:
            return Counterfactual(unknown="the experiment has nothing that this cause could be left out of")
        how = How(
            salt=manifest.salt or seeds.PLANNED,
            repetition=manifest.repetition or 1,
            draws=1,
            iterations={window.name: len(found.iterations)},
        )
        costs = inputs.costs(results, fitting.topology_of(experiment))
        (known,) = learned.find(results, [experiment], costs)
        how = replace(how, computed=known.computed, beside=known.beside)
        simulated_s, without_s = (
            next(
                job.mean.value
                for foreseen in foreseeing.foresee(one, costs, file=manifest.run, how=how)
                for job in foreseen.jobs
                if job.job == found.job
            )
            for one in (foreseeing.with_window(experiment, window), less)
        )
    except (ConfigError, StoreError) as error:
        return Counterfactual(unknown=error.message)
    return Counterfactual(
        left_out=tuple(left_out), measured_s=found.mean_s, simulated_s=simulated_s, without_s=without_s
    )


def _without(experiment: Experiment, window: WindowSpec, cause: Finding, job: str) -> tuple[Experiment, Sequence[str]]:
    """Return the experiment with one window and without a cause, and what of it was left out; nothing where that is."""
    alone = foreseeing.with_window(experiment, window)
    if cause.cause == "job":
        names = [
            spec.name for spec in experiment.jobs if spec.name != job and cause.place.startswith(f"{spec.name} on ")
        ]
        return (foreseeing.without(alone, names) if names else alone), names
    if cause.cause == "load":
        names = _sources(window, cause)
        return (foreseeing.without(alone, names) if names else alone), names
    kind = _CONDITIONS.get(cause.cause)
    left_out = [one for one in experiment.conditions if one.name == kind and one.config.host in cause.hosts]
    kept = tuple(one for one in experiment.conditions if one not in left_out)
    return alone.model_copy(update={"conditions": kept}), [f"the condition {one.name}" for one in left_out]


def _sources(window: WindowSpec, cause: Finding) -> list[str]:
    """Return the sources of a window that a cause names, or those that send from or to its hosts."""
    sources = {
        f"{choice.name}{place}": choice for place, choice in enumerate(window.traffic) if not fitting.is_silent(choice)
    }
    named = [name for name in sources if cause.place.startswith(f"{name} on ")]
    return named or [name for name, choice in sources.items() if _ends(choice) & set(cause.hosts)]


def _ends(choice: Choice) -> set[str]:
    """Return the hosts between which a source sends."""
    demands = registry.traffic(choice.name).demands(choice.config)
    return {host for demand in demands for host in (demand.src, demand.dst)}
