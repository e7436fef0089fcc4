"""Carry out the runs of an experiment one after the other: repetitions, further attempts, waiting for the testbed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestrator.core.errors import Interrupted, LockedError
from orchestrator.core.screen import alike, console
from orchestrator.execution import runner
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import Attempt, RunOptions
from orchestrator.experiment import feasibility, loading, plan, seeds, testbeds
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.seeds import Draws
from orchestrator.store.manifests.records import Manifest

T = TypeVar("T")
Enough = Callable[[Sequence[runner.Outcome]], bool]  # whether what was measured is enough, after each run


def carry_out(experiment: Experiment, options: RunOptions, *, enough: Enough | None = None) -> list[runner.Outcome]:
    """Carry out every run of an experiment until one is interrupted; what went wrong with one is told on the way.

    Where the experiment goes on `until` something is known, `enough` says whether it is.

    A run that is not valid for what may pass, or of which a window was given up (`lost: again`), is tried again; each
    try is an outcome. A further try has the same random numbers, so that no draw is left out for how it turned out.
    """
    outcomes: list[runner.Outcome] = []
    until, salt = experiment.until, options.salt or seeds.drawn()
    most = experiment.repetitions if until is None else until.most
    first = plan.single(experiment, 1, Draws(salt=salt))
    forced = feasibility.settle([first], force=options.force, say=options.progress.say)
    most_tries = experiment.most_tries
    tries = ((repetition, number) for repetition in range(1, most + 1) for number in range(1, most_tries + 1))
    for repetition, number in tries:
        why = _why_again(outcomes[-1].manifest) if number > 1 else ""
        if number > 1 and not why:
            continue
        if number == 1 and enough is not None and enough(outcomes):
            break
        run = plan.single(experiment, repetition, Draws(salt=salt))
        label = f"run {repetition} of {'at most ' if enough is not None else ''}{most}"
        if number > 1:
            label += f" again, since {why} (try {number} of {most_tries})"
        outcome = run_planned(experiment, run, options, Attempt(label=label, forced=forced))
        options.progress.done()
        outcomes.append(outcome)
        if outcome.error is not None:
            console.tell(f"orch: {outcome.error}\n  results: {outcome.path}", stream=sys.stderr)
        if isinstance(outcome.error, Interrupted):
            break
    return outcomes


def _why_again(manifest: Manifest) -> str:
    """Return why a run is tried again; empty for one that is not."""
    if manifest.outcome == "completed" and (lost := [window.name for window in manifest.windows if window.lost]):
        return f"{alike.names(lost)} was lost"
    return "it was disturbed" if manifest.disturbed else ""


def last_tries(outcomes: Sequence[runner.Outcome]) -> list[runner.Outcome]:
    """Return the last try of each run, which is the one that counts."""
    return list({outcome.manifest.repetition: outcome for outcome in outcomes}.values())


def run_planned(experiment: Experiment, run: plan.RunPlan, options: RunOptions, attempt: Attempt) -> runner.Outcome:
    """Carry out one run, waiting for a testbed that somebody else holds."""

    def carry_out_one() -> runner.Outcome:
        run_id = runner.id_for(run)
        return runner.run(
            run,
            testbeds.place(experiment.testbed).made(run_id),
            options,
            attempt,
            run_id=run_id,
            resolved=loading.resolved_text(experiment),
        )

    retry_s = testbeds.place(experiment.testbed).retry_s
    outcome = patiently(carry_out_one, wait_s=options.wait_s, retry_s=retry_s, progress=options.progress)
    if options.after_run is not None:
        options.after_run(options.results, options.progress)
    return outcome


def patiently(attempt: Callable[[], T], *, wait_s: float, retry_s: float, progress: Progress) -> T:
    """Try again while somebody else holds the testbed, for so long; LockedError after that."""
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
