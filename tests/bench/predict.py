"""How far predicted iterations are from measured ones, over settings of every kind that nothing was fitted to."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import yaml

from orchestrator.core.errors import ConfigError, OrchError
from orchestrator.experiment import fitting, loading
from orchestrator.predict import foreseeing, inputs, learned
from orchestrator.predict.foreseeing import ForeseenJob, ForeseenWindow, How
from orchestrator.predict.simulation.simulating import Grain
from orchestrator.store.tabular import tables
from tests.bench import prediction_tables
from tests.bench.commands import INVALID, ROOT, CommandError, call
from tests.bench.figure import Figure, Settings, Table
from tests.bench.predicted_settings import Run, fitted_to, held_out
from tests.bench.prediction_tables import Compared, Repeated, Times

FOLDER = ROOT / ".predict"  # what was measured stays there: the same command goes on where it stopped
KNOWN, HELD_OUT = FOLDER / "known", FOLDER / "held-out"  # what predictions know, and what they are held against
AGAIN, AGAIN_EACH = FOLDER / "again", 8  # every so many runs are measured once more
WAIT_S, RUN_WITHIN_S = 600, 240.0  # for a testbed of somebody else, and then
QUICK = 8  # runs that --quick measures


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Measure what is missing, then predict each run with its own flows, and hold both against each other."""
    most = settings.most or (QUICK if settings.quick else None)
    wanted = chosen(list(held_out()), only=settings.only, most=most)
    missing: dict[str, str] = {}
    known: dict[str, str] = {}  # what came of each
    for number, run in enumerate(wanted, 1):
        for data in fitted_to(wanted[:number]):  # shortly before the run: a shared machine's speed changes in hours
            if data["name"] not in known:
                known[data["name"]] = _carried_out(data, KNOWN)
                _told("known", data["name"], known[data["name"]])
        if problem := _carried_out(run.data, HELD_OUT):
            missing[run.name] = problem
        _told(f"run {number} of {len(wanted)}", run.name, problem)
    again = [run for run in wanted[::AGAIN_EACH] if run.name not in missing]
    for number, run in enumerate(again, 1):
        _told(f"again {number} of {len(again)}", run.name, _carried_out(run.data, AGAIN))
    found: list[Compared] = []
    for number, run in enumerate(wanted, 1):
        if run.name in missing:
            continue
        began = time.monotonic()
        try:
            found += compared(run)
        except OrchError as error:
            missing[run.name] = error.message
        problem = missing.get(run.name, "")
        _told(f"prediction {number} of {len(wanted)}, {time.monotonic() - began:.1f} s", run.name, problem)
    yield from prediction_tables.figures(found)
    yield from prediction_tables.made(found, missing, [pair for run in again for pair in repeated(run)])


def chosen(runs: Sequence[Run], *, only: str = "", most: int | None = None) -> list[Run]:
    """Return the runs in whose kind or name the pattern is found; of these at most so many, evenly spread."""
    matching = [run for run in runs if re.search(only, f"{run.kind}: {run.name}")]
    if most is None or most >= len(matching):
        return matching
    return [matching[int(place)] for place in np.linspace(0, len(matching) - 1, most).round()]


def _told(what: str, name: str, problem: str) -> None:
    print(f"  {what}: {name}{f': {problem}' if problem else ''}", flush=True)


def _file(name: str) -> Path:
    return FOLDER / f"{name}.yaml"


def completed(name: str, store: Path) -> Path | None:
    """Return the newest completed run of an experiment in a store; None where there is none."""
    sealed = sorted((store / name).glob("*/manifest.json"))
    done = [path.parent for path in sealed if json.loads(path.read_bytes()).get("outcome") == "completed"]
    return done[-1] if done else None


def _carried_out(data: Mapping[str, Any], store: Path) -> str:
    """Carry an experiment out, unless that was done; return why it could not be, empty where it was."""
    name = data["name"]
    FOLDER.mkdir(exist_ok=True)
    text = yaml.safe_dump(dict(data), sort_keys=False)
    if completed(name, store) and _file(name).exists() and _file(name).read_text() == text:
        return ""
    _file(name).write_text(text)
    options = ["--no-report", "--wait", f"{WAIT_S}s", "--results", str(store)]
    argv = [sys.executable, "-m", "orchestrator.cli.main", "run", str(_file(name)), *options]
    try:
        call(argv, ok=(0, INVALID), within_s=WAIT_S + RUN_WITHIN_S, cwd=ROOT)
    except CommandError as error:
        told = [line.strip() for line in str(error).splitlines() if not line.strip().startswith("remedy:")]
        return told[-1]
    except subprocess.TimeoutExpired:
        return f"not ended after {WAIT_S + RUN_WITHIN_S:.0f} s"
    return "" if completed(name, store) else "not completed"


def compared(run: Run) -> list[Compared]:
    """Predict a run with its own salt, by what was measured of others, and return each job of each window beside it.

    OrchError says why it cannot be predicted, or its tables not be read.
    """
    path = completed(run.name, HELD_OUT)
    if path is None:
        raise ConfigError(f"{run.name}: no completed run")
    file = _file(run.name)
    experiment = loading.checked(file, [], local=False).experiment
    costs = inputs.costs(KNOWN, fitting.topology_of(experiment))
    (known,) = learned.find(KNOWN, [experiment], costs)
    salt = json.loads((path / "manifest.json").read_bytes())["salt"]
    how = How(salt=salt, computed=known.computed, beside=known.beside)
    windows = foreseeing.foresee(experiment, costs, file=str(file), how=how)
    by_grain: dict[Grain, list[ForeseenWindow]] = {}
    for grain in get_args(Grain):
        once = How(salt=salt, computed=known.computed, beside=known.beside, draws=1, grain=grain)
        by_grain[grain] = foreseeing.foresee(experiment, costs, file=str(file), how=once)
    rows = _of_first_ranks(tables.read(path / "tables", "iterations").to_pylist())
    found = []
    for place, window in enumerate(windows):
        for number, job in enumerate(window.jobs):
            measured = _measured(rows[window.window, job.job], job, real=job.job in known.computed)
            if measured is None:
                raise ConfigError(f"{run.name}: window {window.window} has no iterations of {job.job}")
            own = {grain: _predicted(other[place].jobs[number]) for grain, other in by_grain.items()}
            found.append(
                Compared(
                    kind=run.kind,
                    run=run.name,
                    window=window.window,
                    job=job.job if len(window.jobs) > 1 else "",
                    ranked=run.ranked,
                    grain=window.grain,
                    predicted=_predicted(job),
                    interval_s=job.mean.interval or (job.mean.value, job.mean.value),
                    measured=measured,
                    by_grain=own,
                )
            )
    return found


def repeated(run: Run) -> Iterator[Repeated]:
    """Yield each job of each window of a run beside its second measurement; none where that is missing."""
    path, other = (completed(run.name, store) for store in (HELD_OUT, AGAIN))
    if path is None or other is None:
        return
    first, second = (_of_first_ranks(tables.read(one / "tables", "iterations").to_pylist()) for one in (path, other))
    for (window, job), rows in first.items():
        if (window, job) in second:
            both = [[row["seconds"] for row in some] for some in (rows, second[window, job])]
            p50, p99 = (tuple(float(np.percentile(some, percent)) for some in both) for percent in (50, 99))
            yield Repeated(name=f"{run.name}, {window}, {job}", p50_s=p50, p99_s=p99)


def _of_first_ranks(rows: Iterable[Mapping[str, Any]]) -> Mapping[tuple[str, str], list[Mapping[str, Any]]]:
    """Return the measured iterations of rank 0 by window and job."""
    found: defaultdict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["window_name"] and row["rank"] == 0:
            found[row["window_name"], row["job"]].append(row)
    return found


def _predicted(job: ForeseenJob) -> Times:
    return Times(mean_s=job.mean.value, p50_s=job.p50.value, p99_s=job.p99.value, exposed_s=job.waiting_s)


def _measured(rows: Sequence[Mapping[str, Any]], job: ForeseenJob, *, real: bool) -> Times | None:
    """Return what was measured of a job; None of no iterations.

    Exposed communication is an iteration without its computing, of which emulated compute takes what the file says;
    with real compute it is the wait for the last gradient.
    """
    if not rows:
        return None
    seconds = np.array([row["seconds"] for row in rows])
    mean_s = float(seconds.mean())
    exposed_s = float(np.mean([row["wait_s"] for row in rows])) if real else mean_s - job.compute_s
    p50_s, p99_s = (float(np.percentile(seconds, percent)) for percent in (50, 99))
    return Times(mean_s=mean_s, p50_s=p50_s, p99_s=p99_s, exposed_s=exposed_s)
