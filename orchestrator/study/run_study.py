"""`orch study`: the sweeps of a study one after the other, each taken up where it stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from orchestrator.core.exitcodes import Exit, gravest
from orchestrator.execution.run_options import RunOptions
from orchestrator.experiment import feasibility, seeds
from orchestrator.experiment.paperfile import Study
from orchestrator.experiment.plan import RunPlan
from orchestrator.experiment.sweepfile import Definition
from orchestrator.store import sweeps
from orchestrator.sweep import choosing, run_sweep, sweepplan
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.run_sweep import SweepOutcome, Whole
from orchestrator.sweep.sweepplan import Estimate
from orchestrator.sweep.sweeptext import Outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutcome:
    """How far a study is; `status` is 0 when all of it is valid, else the command's exit status."""

    sweeps: tuple[SweepOutcome, ...]  # those that were begun
    done: int  # measurements, of all sweeps
    total: int
    status: int

    @property
    def runs_s(self) -> float:
        """Seconds from the opening to the sealing of the runs of this call."""
        return sum(one.runs_s for one in self.sweeps)

    @property
    def measured_s(self) -> float:
        """Of that, inside measured windows."""
        return sum(one.measured_s for one in self.sweeps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """How many measurements of a sweep are done, of how many, and how long the others may take."""

    done: int
    total: int
    left: Estimate


def carry_out(study: Study, options: RunOptions, *, new: bool = False) -> StudyOutcome:
    """Measure what is missing of a study.

    Which sweeps belong to it is settled before the first of them: cut off at any moment and called again, it goes on
    with these, also after `new`. What this machine cannot carry is told before anything is, unless forced.
    """
    results = options.results
    feasibility.look(first_runs(study)).refuse(force=options.force)
    salt = options.salt or seeds.drawn()
    for definition in study.sweeps:
        if new or run_sweep.newest(definition, results, salt=options.salt) is None:
            run_sweep.begun(definition, results, salt=salt)
    options.progress.say(_head_text(study, options))
    outcomes: list[SweepOutcome] = []
    for place, definition in enumerate(study.sweeps):
        outcome = run_sweep.carry_out(definition, options, whole=_whole(study, place, options))
        outcomes.append(outcome)
        if outcome.status == Exit.INTERRUPTED:
            break
    states = [_state(definition, options) for definition in study.sweeps]
    return StudyOutcome(
        sweeps=tuple(outcomes),
        done=sum(one.done for one in states),
        total=sum(one.total for one in states),
        status=gravest(one.status for one in outcomes),
    )


def first_runs(study: Study) -> Iterator[RunPlan]:
    """Give the plans of its runs that differ in more than their repetition."""
    for definition in study.sweeps:
        yield from sweepplan.first_runs(sweepplan.batches(definition, sweepplan.in_order(definition, repetitions=1)))


def _whole(study: Study, place: int, options: RunOptions) -> Whole:
    """Return what stands around the sweep at a place of the study, as long as that is measured."""
    states = [_state(definition, options) for definition in study.sweeps]
    others = states[:place] + states[place + 1 :]
    return Whole(
        name=study.name,
        done=sum(one.done for one in others),
        total=sum(one.total for one in others),
        after=sweepplan.together([one.left for one in states[place + 1 :]]),
    )


def _state(definition: Definition, options: RunOptions) -> _State:
    results = options.results
    ledger = Ledger(attempts=definition.file.attempts, quarantine=definition.file.quarantine)
    sweep = run_sweep.newest(definition, results, salt=options.salt)
    if sweep is None:
        raise AssertionError("a study has begun all of its sweeps")
    for entry in sweeps.runs(results, sweep):
        if entry.sealed:
            ledger.take(entry.path, entry.manifest)
    earlier = sweeps.measured_by(results, definition.file.name)
    points = frozenset(point.point for point in definition.points)
    so_far = choosing.asked(definition, ledger, sweep.salt, points=points)
    keys = choosing.likely(definition, sweep.salt, [*earlier, *ledger.found], so_far)
    batches = list(sweepplan.batches(definition, ledger.left(keys)))
    done = len(ledger.done.intersection(keys))
    return _State(done=done, total=len(keys), left=sweepplan.estimate(batches, earlier))


def _head_text(study: Study, options: RunOptions) -> str:
    states = [_state(definition, options) for definition in study.sweeps]
    left = sweepplan.together([one.left for one in states])
    outlook = Outlook(
        name=study.name,
        done=sum(one.done for one in states),
        total=sum(one.total for one in states),
        left=left,
        after=left,
        since=datetime.now().astimezone(),
    )
    return f"study {study.name}: {len(states)} sweeps, {outlook.text()}"
