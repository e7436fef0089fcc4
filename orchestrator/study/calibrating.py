"""Fit emulated compute to this machine (`orch calibrate`), by runs of a study's models without cross traffic."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.core.errors import ConfigError, OrchError, StoreError
from orchestrator.core.units import duration_text
from orchestrator.execution import execute
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import Attempt, RunOptions
from orchestrator.experiment import loading, plan, seeds
from orchestrator.experiment.experiment import Experiment, resolved_data
from orchestrator.experiment.paperfile import Calibration
from orchestrator.store import atomic

CLOSE = 0.01  # a fitted iteration is this much off what is printed, at most
MOST_RUNS = 6
LEAST_S = 0.001  # of compute: as good as none
SLOPES = (0.25, 4.0)  # what the iteration gains for a second of compute, however two noisy runs lie to each other
LARGER_SCALES = (2, 4, 8)
CPUINFO = Path("/proc/cpuinfo")
FIRST_SHARE = 0.7  # of the printed iteration: the compute that is tried first

Measure = Callable[[float, int], float]  # seconds of compute, and times the testbed's scale: seconds of an iteration
Run = Callable[[Experiment, str], float]  # an experiment, and what to call its run: the median iteration in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A compute time, the iteration that it makes, what is printed, and in how many runs it was found; in seconds."""

    compute_s: float
    iteration_s: float
    printed_s: float
    runs: int


class TooSlow(OrchError):
    """Iterations are longer than printed without any compute: `carries` is by how much to scale more, if that helps."""

    def __init__(self, iteration_s: float, printed_s: float, carries: int | None) -> None:
        super().__init__(
            f"an iteration takes {iteration_s:.4g} s without any compute, and {printed_s:.4g} s are printed"
        )
        self.carries = carries


def fit(printed_s: float, measure: Measure, *, first_s: float) -> Fitted:
    """Follow the secant from a first guess to the printed time (Press et al., Numerical Recipes, section 9.2).

    TooSlow where there is no such compute time, OrchError where runs differ too much to find it.
    """
    tried: list[tuple[float, float]] = []
    compute_s = max(first_s, LEAST_S)
    for runs in range(1, MOST_RUNS + 1):
        iteration_s = measure(compute_s, 1)
        tried.append((compute_s, iteration_s))
        if abs(iteration_s / printed_s - 1) <= CLOSE:
            return Fitted(compute_s=compute_s, iteration_s=iteration_s, printed_s=printed_s, runs=runs)
        if compute_s <= LEAST_S and iteration_s > printed_s:
            raise TooSlow(iteration_s, printed_s, _carried(printed_s, measure))
        compute_s = max(_next(tried, printed_s), LEAST_S)
    attempts = ", ".join(f"{iteration_s:.4g} s with {compute_s:.4g}" for compute_s, iteration_s in tried)
    raise OrchError(
        f"no compute time makes an iteration of {printed_s:.4g} s in {MOST_RUNS} runs: {attempts}",
        hint="calibrate while nothing else runs on this machine",
    )


def _next(tried: list[tuple[float, float]], printed_s: float) -> float:
    """Where the line through the two runs nearest to the printed time meets it; from one run with a slope of one."""
    (compute_s, iteration_s), *others = sorted(tried, key=lambda point: abs(point[1] - printed_s))
    slope = 1.0
    if others and others[0][0] != compute_s:
        slope = (others[0][1] - iteration_s) / (others[0][0] - compute_s)
    return compute_s + (printed_s - iteration_s) / min(max(slope, SLOPES[0]), SLOPES[1])


def _carried(printed_s: float, measure: Measure) -> int | None:
    """Return the smallest of the larger scales that the machine carries, as a factor."""
    return next((times for times in LARGER_SCALES if measure(LEAST_S, times) <= printed_s), None)


def machine() -> dict[str, str | int]:
    """Return what emulated compute depends on: the processors' model and number, and the kernel."""
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
    }


def path_of(calibration: Calibration) -> Path:
    """Where the times of this machine and this experiment lie; another scale is another experiment."""
    experiment, _ = loading.checked(calibration.experiment, calibration.overrides, local=False)
    asked = {"machine": machine(), "experiment": resolved_data(experiment)}
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
    return cache / "orch" / "calibration" / f"{digest}.json"


def read(path: Path) -> dict[str, Fitted]:
    """Return what was fitted, by model; nothing where nothing was. StoreError where the file cannot be understood."""
    try:
        return {model: Fitted(**fitted) for model, fitted in json.loads(path.read_bytes())["models"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} holds no calibration: {error}", hint="remove it, or `orch calibrate --new`") from None


def write(path: Path, fitted: Mapping[str, Fitted]) -> None:
    """Keep what was fitted, whole or not at all."""
    document = {"machine": machine(), "models": {model: asdict(one) for model, one in fitted.items()}}
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(path, document)


def fitted_here(calibration: Calibration) -> dict[str, Fitted]:
    """Those of a calibration's models that were fitted on this machine already."""
    known = read(path_of(calibration))
    return {
        model: known[model]
        for model, printed_s in calibration.iteration_s.items()
        if model in known and known[model].printed_s == printed_s
    }


def carry_out(calibration: Calibration, *, run: Run, progress: Progress, new: bool = False) -> dict[str, Fitted]:
    """Fit the models that are missing, or all of them when `new`; each is kept as soon as it is known.

    OrchError where this machine is too slow for the testbed's scale: it says which one it can carry.
    """
    path = path_of(calibration)
    found = {} if new else fitted_here(calibration)
    for model, printed_s in calibration.iteration_s.items():
        if model in found:
            continue
        progress.say(f"calibrate {model}: compute for an iteration of {printed_s:.4g} s without cross traffic")
        found[model] = _fit(calibration, model, printed_s, run)
        write(path, {**({} if new else read(path)), **found})
        progress.say(f"  {text(model, found[model])}")
    return {model: found[model] for model in calibration.iteration_s}


def _fit(calibration: Calibration, model: str, printed_s: float, run: Run) -> Fitted:
    def measure(compute_s: float, times: int) -> float:
        return run(_experiment(calibration, model, compute_s, times), f"{model}, {duration_text(compute_s)} of compute")

    try:
        return fit(printed_s, measure, first_s=FIRST_SHARE * printed_s)
    except TooSlow as error:
        scale = _scale(_experiment(calibration, model, LEAST_S, 1))
        carries = None if error.carries is None else scale * error.carries
        raise OrchError(
            f"this machine is too slow for {model} at a scale of {scale}: {error.message}",
            hint="no larger scale helps: the links are too slow for this iteration, or the machine is busy"
            if carries is None
            else f"--set testbed.local.scale={carries}, which it carries",
        ) from None


def _scale(experiment: Experiment) -> int:
    return plan.build(experiment)[0].topology.wire_scale


def _experiment(calibration: Calibration, model: str, compute_s: float, times: int) -> Experiment:
    """Return the calibration's experiment with a model and its compute time, at so many times its scale."""
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
        planned = plan.build(experiment, options.salt or seeds.drawn())[0]
        outcome = execute.run_planned(experiment, planned, options, Attempt(label=label))
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
    """Return a model's fit in a line."""
    return (
        f"{model}: {fitted.iteration_s:.4g} s with {fitted.compute_s:.4g} s of compute (printed: {fitted.printed_s:.4g}"
        f" s), in {fitted.runs} run{'s' * (fitted.runs > 1)}"
    )
