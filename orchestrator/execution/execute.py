"""`orch run`: every run of an experiment file in turn, the report, and what is printed at the end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from orchestrator.core import exitcodes
from orchestrator.core.errors import ConfigError, Interrupted, LockedError, last_lines
from orchestrator.core.exitcodes import Exit
from orchestrator.core.fields import Duration
from orchestrator.core.screen import console
from orchestrator.execution import runner
from orchestrator.execution.observers.observing import Observer
from orchestrator.execution.observers.progress import Progress
from orchestrator.experiment import feasibility, loading, plan, runtext, testbeds
from orchestrator.experiment.experiment import Experiment
from orchestrator.store import front_page
from orchestrator.store.manifests.records import OfSweep

T = TypeVar("T")

REPORT_S = 600.0
FRONT_PAGE_S = 60.0


def run_file(
    path: Path,
    *,
    local: bool,
    overrides: Sequence[str],
    results: Path,
    wait: str | None,
    as_json: bool,
    report: bool,
    force: bool = False,
    observer: Observer | None = None,
) -> int:
    """Carry out every run of an experiment file, though a machine be too small if `force`; gives the exit code."""
    wait_s = patience(wait)
    experiment, _ = loading.checked(path, overrides, local=local)
    progress = Progress()
    outcomes = carry_out(experiment, results=results, wait_s=wait_s, force=force, progress=progress, observer=observer)
    last = counting(outcomes)
    shown = [outcome for outcome in outcomes if outcome.sealed and outcome.manifest.windows]
    page = _report(shown, progress) if report and shown else None
    if page is not None:
        refresh_front_page(results, progress)
    progress.done()
    text = runtext.outcomes_text([(o.path, o.manifest) for o in outcomes], page)
    console.tell(text, stream=sys.stderr if as_json else sys.stdout)
    if as_json:
        summaries = [
            {**runtext.run_summary(o.manifest, o.path, outcome=o.manifest.outcome), "counts": o in last}
            for o in outcomes
        ]
        about = {"experiment": experiment.name, "runs": summaries, "report": str(page) if page else None}
        console.tell(json.dumps(about))
    return exitcodes.gravest(map(_code, last))


def carry_out(
    experiment: Experiment,
    *,
    results: Path,
    wait_s: float,
    progress: Progress,
    force: bool = False,
    observer: Observer | None = None,
) -> list[runner.Outcome]:
    """Carry out every run of an experiment until one is interrupted; what went wrong with one is told on the way.

    A run that is not valid for what may pass is tried again, `attempts` times in all; each try is an outcome.
    """
    outcomes: list[runner.Outcome] = []
    runs = plan.build(experiment)
    forced = feasibility.settle(runs[:1], force=force, say=progress.say)
    tries = [(run, attempt) for run in runs for attempt in range(1, experiment.attempts + 1)]
    for run, attempt in tries:
        if attempt > 1 and not outcomes[-1].manifest.disturbed:
            continue
        label = f"run {run.repetition} of {experiment.repetitions}"
        if attempt > 1:
            label += f" again, since it was disturbed (try {attempt} of {experiment.attempts})"
        outcome = run_planned(
            experiment,
            run,
            results=results,
            wait_s=wait_s,
            progress=progress,
            label=label,
            forced=forced,
            force=force,
            observer=observer,
        )
        progress.done()
        outcomes.append(outcome)
        if outcome.error is not None:
            console.tell(f"orch: {outcome.error}\n  results: {outcome.path}", stream=sys.stderr)
        if isinstance(outcome.error, Interrupted):
            break
    return outcomes


def counting(outcomes: Sequence[runner.Outcome]) -> list[runner.Outcome]:
    """The last try of each run."""
    return list({outcome.manifest.repetition: outcome for outcome in outcomes}.values())


def run_planned(
    experiment: Experiment,
    run: plan.RunPlan,
    *,
    results: Path,
    wait_s: float,
    progress: Progress,
    label: str,
    sweep: OfSweep | None = None,
    forced: Sequence[str] = (),
    force: bool = False,
    observer: Observer | None = None,
) -> runner.Outcome:
    """Carry out one run, waiting for a testbed that somebody else holds.

    Its manifest says which `sweep` it is of, and what speaks against its hosts where it is `forced` on them; `force`
    takes hosts that are too small.
    """

    def attempt() -> runner.Outcome:
        run_id = runner.id_for(run)
        return runner.run(
            run,
            testbeds.place(experiment.testbed).made(run_id),
            run_id=run_id,
            results=results,
            resolved=loading.resolved_text(experiment),
            progress=progress,
            label=label,
            sweep=sweep,
            forced=forced,
            force=force,
            observer=observer,
        )

    outcome = patiently(attempt, wait_s=wait_s, retry_s=testbeds.place(experiment.testbed).retry_s, progress=progress)
    refresh_front_page(results, progress)
    return outcome


def refresh_front_page(results: Path, progress: Progress) -> None:
    """Have the store's front page written again, where the store keeps it fresh; if that fails, the run does not."""
    if front_page.kept_fresh(results):
        try:
            done = _orch("site", "--refresh", "--results", str(results), within_s=FRONT_PAGE_S)
        except subprocess.TimeoutExpired:
            progress.say(f"  no front page: not written in {FRONT_PAGE_S:.0f} s")
            return
        if done.returncode != 0 or done.stderr:
            progress.say(f"  no front page: {last_lines(done.stderr)}")


def patiently(attempt: Callable[[], T], *, wait_s: float, retry_s: float, progress: Progress) -> T:
    """Try again while somebody else holds the testbed, for so long."""
    give_up = time.monotonic() + wait_s
    announced = False
    while True:
        try:
            return attempt()
        except LockedError as error:
            if time.monotonic() >= give_up:
                raise
            if not announced:
                progress.say(f"  waiting: {error.message}")
                announced = True
        time.sleep(retry_s)


def _report(outcomes: Sequence[runner.Outcome], progress: Progress) -> Path | None:
    """Have the report made by a process of its own, whose memory goes with it; a report that fails costs no results."""
    progress.phase("report")
    results = outcomes[0].path.parents[1]
    done = _orch("report", *(str(o.path) for o in outcomes), "--results", str(results), within_s=REPORT_S)
    if done.returncode != 0:
        progress.say(f"  no report: {last_lines(done.stderr) or f'status {done.returncode}'}")
        return None
    return Path(done.stdout.splitlines()[-1])


def _orch(*arguments: str, within_s: float) -> subprocess.CompletedProcess[str]:
    """A command of ours in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )


def _code(outcome: runner.Outcome) -> Exit:
    if outcome.error is not None:
        return Exit.INTERRUPTED if isinstance(outcome.error, Interrupted) else Exit.FAILED
    return Exit.OK if outcome.valid else Exit.INCONCLUSIVE


def patience(text: str | None) -> float:
    """Seconds that `--wait` asks for; none when it is left out."""
    if text is None:
        return 0.0
    try:
        return float(TypeAdapter(Duration).validate_python(text))
    except ValidationError as error:
        raise ConfigError(f"--wait {text}: {error.errors()[0]['ctx']['error']}") from None
