"""`orch calibrate`: fits emulated compute to this machine, by runs of a study's models without cross traffic."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.core.errors import ConfigError, OrchError
from orchestrator.core.units import duration_text
from orchestrator.execution import execute
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import RunOptions
from orchestrator.experiment import loading, plan
from orchestrator.experiment.experiment import Experiment, resolved_data
from orchestrator.experiment.studyfile import Calibration
from orchestrator.study import calibrations, compute_fit
from orchestrator.study.compute_fit import Fitted, TooSlow

FIRST_SHARE = 0.7  # of the printed iteration: the compute that is tried first

Run = Callable[[Experiment, str], float]  # an experiment, and what to call its run: the median iteration in seconds


def fitted_here(calibration: Calibration) -> dict[str, Fitted]:
    """Those of a calibration's models that were fitted on this machine already."""
    known = calibrations.read(calibrations.path_of(calibration))
    return {
        model: known[model]
        for model, printed_s in calibration.iteration_s.items()
        if model in known and known[model].printed_s == printed_s
    }


def carry_out(calibration: Calibration, *, run: Run, progress: Progress, new: bool = False) -> dict[str, Fitted]:
    """Fit the models that are missing, or all of them when `new`; each is kept as soon as it is known.

    OrchError where this machine is too slow for the testbed's scale: it says which one it can carry.
    """
    path = calibrations.path_of(calibration)
    found = {} if new else fitted_here(calibration)
    for model, printed_s in calibration.iteration_s.items():
        if model in found:
            continue
        progress.say(f"calibrate {model}: compute for an iteration of {printed_s:.4g} s without cross traffic")
        found[model] = _fit(calibration, model, printed_s, run)
        calibrations.write(path, {**({} if new else calibrations.read(path)), **found})
        progress.say(f"  {text(model, found[model])}")
    return {model: found[model] for model in calibration.iteration_s}


def _fit(calibration: Calibration, model: str, printed_s: float, run: Run) -> Fitted:
    def measure(compute_s: float, times: int) -> float:
        return run(_experiment(calibration, model, compute_s, times), f"{model}, {duration_text(compute_s)} of compute")

    try:
        return compute_fit.fit(printed_s, measure, first_s=FIRST_SHARE * printed_s)
    except TooSlow as error:
        scale = _scale(_experiment(calibration, model, compute_fit.LEAST_S, 1))
        carries = None if error.carries is None else scale * error.carries
        raise OrchError(
            f"this machine is too slow for {model} at a scale of {scale}: {error.message}",
            hint="no larger scale helps: the links are too slow for this iteration, or the machine is busy"
            if carries is None
            else f"--set testbed.local.scale={carries}, which it carries",
        ) from None


def _scale(experiment: Experiment) -> int:
    return plan.build(experiment)[0].topology.scale


def _experiment(calibration: Calibration, model: str, compute_s: float, times: int) -> Experiment:
    """The calibration's experiment with a model and its compute time, at so many times its scale."""
    base, _ = loading.checked(calibration.experiment, calibration.overrides, local=False)
    kinds = list(resolved_data(base).get("workload") or ())
    if len(kinds) != 1 or base.traffic or base.windows:
        raise ConfigError(f"{calibration.experiment}: accepted: one workload and one window, without cross traffic")
    (kind,) = kinds
    own = [f"workload.{kind}.model={model}", f"workload.{kind}.compute_time={duration_text(round(compute_s, 6))}"]
    if times > 1:
        own.append(f"testbed.local.scale={_scale(base) * times}")
    return loading.checked(calibration.experiment, [*calibration.overrides, *own], local=False)[0]


def runner(options: RunOptions) -> Run:
    """Return what runs an experiment on this machine; OrchError when that fails, or its window does not count."""

    def run(experiment: Experiment, label: str) -> float:
        planned = plan.build(experiment)[0]
        outcome = execute.run_planned(experiment, planned, options, label=label)
        options.progress.done()
        if outcome.error is not None:
            raise outcome.error
        (window,) = outcome.manifest.windows
        seconds = window.training[0].p50_s if window.valid and window.training else None
        if seconds is None:
            raise OrchError(
                f"{outcome.path} does not count: {'; '.join(window.reasons) or 'no iteration in its window'}",
                hint="calibrate while nothing else runs on this machine",
            )
        return seconds

    return run


def text(model: str, fitted: Fitted) -> str:
    """A model's fit in a line."""
    return (
        f"{model}: {fitted.iteration_s:.4g} s with {fitted.compute_s:.4g} s of compute (printed: {fitted.printed_s:.4g}"
        f" s), in {fitted.runs} run{'s' * (fitted.runs > 1)}"
    )
