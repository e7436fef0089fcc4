"""`orch sweep`: every point of a matrix in turn, taken up where it stopped, until nothing is missing or worth a try."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from orchestrator.core import lock, secret_looks
from orchestrator.core.errors import ConfigError, Interrupted, OrchError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.where import Condition
from orchestrator.execution import execute, provenance, recovery
from orchestrator.execution.run_options import Attempt, RunOptions
from orchestrator.execution.session import holder
from orchestrator.experiment import feasibility, plan, seeds
from orchestrator.experiment.sweepfile import Definition
from orchestrator.experiment.testbeds import Named
from orchestrator.store import rundir, sweeps
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.summaries import OfSweep
from orchestrator.store.sweeps import Key, Sweep
from orchestrator.sweep import choicetext, choosing, sweepplan, sweeptext
from orchestrator.sweep.choosing import Asked, Bend, Standing
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.sweepplan import Batch, Estimate
from orchestrator.sweep.sweeptext import Outlined, Outlook


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """How far a sweep is: `status` is 0 when all that was asked for is valid, else the command's exit status."""

    sweep: Sweep
    status: int
    ledger: Ledger
    keys: tuple[Key, ...]  # what was asked for
    standings: tuple[Standing, ...]  # what is known, where it was measured until something was
    bends: tuple[Bend, ...]  # where each curve bends, where that was looked for
    runs_s: float  # what the runs took, from opening to sealing
    measured_s: float  # of that, inside measured windows

    @property
    def done(self) -> int:
        """Measurements that are done, of what was asked for."""
        return len(self.ledger.done.intersection(self.keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """What a sweep is a part of: measurements elsewhere in it, done and in all, and how long what follows may take."""

    name: str
    done: int
    total: int
    after: Estimate


@dataclass(slots=True)
class _Sweeping:
    """A sweep while it is carried out."""

    definition: Definition
    sweep: Sweep
    ledger: Ledger
    points: frozenset[str]  # those that are measured
    options: RunOptions
    earlier: list[sweeps.MeasuredWindow]
    whole: Whole | None
    forced: tuple[str, ...]  # what speaks against this machine
    outlook: Outlook | None = None  # since the run that goes on began
    told: set[tuple[str, ...] | str] = field(default_factory=set)  # points and lines
    runs_s: float = 0.0
    measured_s: float = 0.0

    def brief(self, windows: int) -> str:
        """How far all is, for the live line, when so many windows of this run are measured."""
        return self.outlook.brief(windows, datetime.now().astimezone()) if self.outlook else ""

    def outcome(self, status: int) -> SweepOutcome:
        asked = self.asked()
        return SweepOutcome(
            sweep=self.sweep,
            status=status,
            ledger=self.ledger,
            keys=asked.keys,
            standings=asked.standings,
            bends=asked.bends,
            runs_s=self.runs_s,
            measured_s=self.measured_s,
        )

    def asked(self) -> Asked:
        """Return what is asked for after all that was measured, and tell each point that needs no more."""
        out = self.out()
        asked = choosing.asked(self.definition, self.ledger, self.sweep.salt, points=self.points, out=out)
        for bend in asked.bends:
            text = choicetext.bend(self.definition, bend)
            if text not in self.told:
                self.told.add(text)
                self.options.progress.say(f"  {text}")
        for one in asked.standings:
            if one.ended and one.points not in self.told:
                self.told.add(one.points)
                self.options.progress.say(f"  {choicetext.line(self.definition, one)}")
        return asked

    def out(self) -> frozenset[str]:
        """Return the points that need a host which is left out."""
        hosts = set(self.ledger.quarantined)
        if not hosts:
            return frozenset()
        return frozenset(
            point.point for point in self.definition.points if hosts & set(plan.single(point.experiment, 1).nodes())
        )

    def recover(self) -> None:
        """Seal what an earlier controller left: its windows may count, and its hosts are tidied up."""
        unsealed = [entry for entry in sweeps.runs(self.options.results, self.sweep) if not entry.sealed]
        named = [Named(choice, "this sweep") for choice in self.definition.testbeds]
        for entry in unsealed:
            if entry.alive:
                self.options.progress.say(f"  left alone: {entry.run} of this sweep goes on elsewhere")
                continue
            try:
                recovery.seal(rundir.opened(entry.path), named)
                self.options.progress.say(f"  sealed {entry.run}, which was cut off")
            except OrchError as error:
                self.options.progress.say(f"  {entry.run} was cut off and cannot be sealed: {error.message}")

    def next_batch(self) -> Batch | None:
        """Return the next run: least tried, in the order of the design, without quarantined hosts."""
        return next(sweepplan.batches(self.definition, self.open_keys()), None)

    def open_keys(self) -> list[Key]:
        """Return what is worth a further try, and can have one."""
        out = self.out()
        return [key for key in self.ledger.left(self.asked().keys) if key[0] not in out]

    def measure(self, batch: Batch) -> Interrupted | None:
        """Carry out one run and enter it; gives the interrupt that ended it, if one did."""
        run = batch.planned(self.sweep.salt)
        sweep = OfSweep(
            id=self.sweep.id,
            name=self.sweep.name,
            definition=self.sweep.plan.definition,
            mode=self.definition.file.mode,
            points=batch.about(),
        )
        self.outlook = self.look_ahead()
        label = f"[{self.outlook.name}: {self.outlook.text()}] {sweeptext.batch_text(batch)}"
        outcome = execute.run_planned(
            batch.experiment, run, self.options, Attempt(label=label, sweep=sweep, forced=self.forced)
        )
        self.options.progress.done()
        self.ledger.take(outcome.path, outcome.manifest)
        self.runs_s += outcome.manifest.phases["total"]
        self.measured_s += sum(window.seconds * outcome.manifest.dilation for window in outcome.manifest.windows)
        for line in sweeptext.run_lines(outcome.path, outcome.manifest):
            self.options.progress.say(line)
        if isinstance(outcome.error, Interrupted):
            return outcome.error
        self.quarantine(run.nodes(), outcome.error, outcome.manifest)
        return None

    def quarantine(self, nodes: Sequence[str], error: Exception | None, manifest: Manifest) -> None:
        failed = manifest.failed_node if error is not None else None
        why = error.message if isinstance(error, OrchError) else str(error)
        out = self.ledger.watch_hosts(nodes, failed=failed, why=why)
        if out is not None:
            self.options.progress.say(
                f"  {out} is left out from now on: {self.definition.file.quarantine} runs in a row failed because of it"
            )

    def look_ahead(self) -> Outlook:
        """How far all is, as the next run begins; of measurements that depend on others those that are likely."""
        asked, out = self.asked(), self.out()
        known = [*self.earlier, *self.ledger.found]
        keys = choosing.likely(self.definition, self.sweep.salt, known, asked)
        open_keys = [key for key in self.ledger.left(keys) if key[0] not in out]
        batches = list(sweepplan.batches(self.definition, open_keys))
        left, after = (sweepplan.estimate(part, known) for part in (batches, batches[1:]))
        if (budget_s := self.definition.file.budget) is not None:
            left, after = (sweepplan.at_most(part, budget_s - self.ledger.spent_s) for part in (left, after))
        done, total, name = len(self.ledger.done.intersection(keys)), len(keys), self.sweep.name
        if (whole := self.whole) is not None:
            done, total, name = done + whole.done, total + whole.total, whole.name
            left, after = (sweepplan.together([part, whole.after]) for part in (left, after))
        return Outlook(name=name, done=done, total=total, left=left, after=after, since=datetime.now().astimezone())

    def status(self) -> int:
        asked = self.asked()
        missing = [key for key in asked.keys if key not in self.ledger.done]
        if not missing or (asked.bends and all(choosing.is_found(one) for one in asked.bends)):
            return 0
        failed = any(key in self.ledger.failed or not self.ledger.tries[key] for key in missing)
        return Exit.FAILED if failed else Exit.INCONCLUSIVE


def newest(definition: Definition, results: Path, *, salt: str | None = None) -> Sweep | None:
    """Return the newest sweep of this very definition (of this salt, where one is given); None where there is none."""
    known = sweeps.sweeps(results, definition.file.name)
    same = [sweep for sweep in known if sweep.plan.definition == definition.digest and salt in (None, sweep.salt)]
    return same[-1] if same else None


def begun(definition: Definition, results: Path, *, salt: str) -> Sweep:
    """Begin a sweep, whose random numbers follow from the salt for as long as it takes."""
    began_ns = time.time_ns()
    return sweeps.create(
        results,
        sweeps.Plan(
            id=sweeps.new_id(definition.digest, began_ns),
            name=definition.file.name,
            began_ns=began_ns,
            definition=definition.digest,
            mode=definition.file.mode,
            axes=tuple(definition.axes),
            repetitions=definition.repetitions,
            salt=salt,
            argv=tuple(secret_looks.masked_all(sys.argv)),
            git=provenance.git_state(Path(__file__).parent),
            versions=provenance.versions(),
            sweep=definition.as_data(),
            points=tuple(
                sweeps.PlannedPoint(point=point.point, values=dict(point.values)) for point in definition.points
            ),
            rechecked=tuple(sweepplan.rechecked(definition)),
        ),
    )


def chosen_points(definition: Definition, conditions: Sequence[Condition]) -> frozenset[str]:
    """Return the points of a sweep that keep to all conditions.

    ConfigError for one that no axis is about.
    """
    for condition in conditions:
        if not condition.of(dict.fromkeys(definition.axes)):
            raise ConfigError(f"--where: no axis {condition.key}; accepted: {', '.join(definition.axes)}")
    wanted = {
        point.point for point in definition.points if all(condition.holds(point.values) for condition in conditions)
    }
    if not wanted:
        raise ConfigError("--where: no point matches; `orch plan` lists the points")
    if definition.sides and not any(wanted >= set(pair) for pair in definition.sides):
        raise ConfigError("--where: leaves no two points that `until` compares; accepted: one that leaves both sides")
    return frozenset(wanted)


def carry_out(
    definition: Definition,
    options: RunOptions,
    *,
    new: bool = False,
    conditions: Sequence[Condition] = (),
    whole: Whole | None = None,
    given_up: Callable[[Ledger], bool] = lambda _ledger: False,
) -> SweepOutcome:
    """Measure what is missing of a sweep at the points that keep to all conditions, or all of it when `new`.

    Every run is sealed as it ends, so that the sweep may be cut off at any moment. `given_up` is asked before each run
    whether, after what was measured, the rest is not worth its time.
    """
    results, progress = options.results, options.progress
    points = chosen_points(definition, conditions)
    first = [key for key in sweepplan.in_order(definition, repetitions=1) if key[0] in points]
    forced = settle(definition, first, options)
    resumed = None if new else newest(definition, results, salt=options.salt)
    sweep = resumed or begun(definition, results, salt=options.salt or seeds.drawn())
    ledger = Ledger(attempts=definition.file.attempts, quarantine=definition.file.quarantine)
    earlier = sweeps.measured_by(results, sweep.name)
    sweeping = _Sweeping(definition, sweep, ledger, points, options, earlier, whole, forced)
    with lock.within(sweep.path.parent, f"sweep-{sweep.id}", holder(sweep.id)):
        sweeping.recover()
        for entry in sweeps.runs(results, sweep):
            if entry.sealed:
                ledger.take(entry.path, entry.manifest)
        keys = choosing.asked(definition, ledger, sweep.salt, points=points).keys
        progress.say(sweeptext.head_text(sweep, ledger, keys))
        progress.part_of(sweeping.brief)
        while not given_up(ledger) and (batch := sweeping.next_batch()) is not None:
            interrupted = sweeping.measure(batch)
            if interrupted is not None:
                return sweeping.outcome(interrupted.exit_code)
    return sweeping.outcome(sweeping.status())


def outlined(definition: Definition, results: Path, salt: str) -> Outlined:
    """Return what a sweep of this salt will measure, or is likely to, by what earlier ones of its name show."""
    points = frozenset(point.point for point in definition.points)
    earlier, until = sweeps.measured_by(results, definition.file.name), definition.until
    keys, spread = choosing.expected(definition, salt, earlier, points=points)
    batches = list(sweepplan.batches(definition, keys))
    estimate = sweepplan.estimate(batches, earlier)
    if until is None:
        return Outlined(batches=batches, estimate=estimate, how=choicetext.searching_for(definition))

    def at(repetitions: int) -> Estimate:
        order = sweepplan.in_order(definition, salt, repetitions=repetitions)
        return sweepplan.estimate(list(sweepplan.batches(definition, order)), earlier)

    fewest, most = at(until.least), at(until.most)
    if (budget_s := definition.file.budget) is not None:
        estimate, most = (sweepplan.at_most(one, budget_s, least=fewest) for one in (estimate, most))
    how = choicetext.outlook(definition, spread)
    return Outlined(batches=batches, estimate=estimate, fewest=fewest, most=most, how=how)


def settle(definition: Definition, keys: Sequence[Key], options: RunOptions) -> tuple[str, ...]:
    """Raise what keeps runs of a sweep from starting on this machine; return what speaks against it all the same."""
    runs = sweepplan.first_runs(sweepplan.batches(definition, keys))
    return feasibility.settle(runs, force=options.force, say=options.progress.say)
