"""Repeat the runs of an experiment until the level of every window is known."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.execution import execute
from orchestrator.execution.run_options import RunOptions
from orchestrator.execution.runner import Outcome
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.until import Until
from orchestrator.sweep import choicetext, choosing
from orchestrator.sweep.choosing import Standing


def rule(experiment: Experiment, options: RunOptions) -> execute.Enough | None:
    """Return the rule by which an experiment's runs end, which tells what is known; None where their number is set."""
    until = experiment.until
    if until is None:
        return None
    names = [window.name for window in experiment.all_windows()]

    def enough(outcomes: Sequence[Outcome]) -> bool:
        if len(execute.last_tries(outcomes)) < until.least:
            return False
        found = {name: standing(outcomes, name, until) for name in names}
        for name, one in found.items():
            options.progress.say(f"  {name}: {choicetext.progress_text(one, until)}")
        return all(one.ended for one in found.values())

    return enough


def standing(outcomes: Sequence[Outcome], window: str, until: Until) -> Standing:
    """Return what is known of a window's level after these runs, of which those count in which it is valid."""
    windows = (one for outcome in execute.last_tries(outcomes) for one in outcome.manifest.windows)
    logs = [choosing.logs_of(one, until.of) for one in windows if one.name == window and one.valid]
    return choosing.of_level([one for one in logs if one], until)
