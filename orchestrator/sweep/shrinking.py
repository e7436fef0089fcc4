"""Shrink an effect to the smallest pair of settings that still shows it, by measuring smaller and smaller ones.

Delta debugging (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE Transactions on
Software Engineering 28(2), 2002) with a test that is noisy: whether a pair shows the effect is judged by the repeated
confidence intervals of `until: {effect: ...}`. Greedy: the step that saves most of hosts' time comes first, with the
smallest value of its dimension; where the effect is lost, the middle between that and what is kept follows.

Each step has its chance of a wrong end, and many steps are made. So the last pair is measured once more, by runs that
chose nothing, and the one before it where the effect is not seen again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.core.errors import ConfigError, Interrupted, LockedError, MissingRequirement, TestbedError
from orchestrator.core.exitcodes import Exit
from orchestrator.execution.run_options import RunOptions
from orchestrator.experiment import plan, scale_limits
from orchestrator.experiment.seeds import Draws
from orchestrator.experiment.sweepfile import Definition
from orchestrator.sweep import choicetext, pairs, reductions, run_sweep, sweeptext
from orchestrator.sweep.choosing import Standing
from orchestrator.sweep.ledger import Ledger
from orchestrator.sweep.pairs import LEAST, Effect, Pair, Took
from orchestrator.sweep.reductions import Step

Verdict = Literal["held", "lost", "not valid", "takes longer", "passed over"]

_LONGER = 1.1  # times what the pair before took, as hosts' time, that a smaller one may take all the same
_HOPELESS = 3  # measurements of a side in vain after which a pair is given up, if none of that side is valid


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is known of a pair's ratio, and the seconds of its runs, from opening to sealing; `why` none is valid."""

    standing: Standing
    seconds: float
    took: Took
    why: str = ""

    def shows(self, ratio: float) -> bool:
        """Return whether the ratio differs from 1 to the same side as this one."""
        estimate = self.standing.estimate
        return estimate.low > 1 if ratio > 1 else estimate.high < 1


Measuring = Callable[[Definition, float], Shown]  # a pair, for so many seconds of runs unless it ends before


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A step that was tried, and what came of it; `text` is of what was measured, or why it was not."""

    step: str
    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The smallest pair that was found, as a sweep; `again` is what it shows where it was measured once more.

    `seen` says whether the effect is in that, and `ended` why no smaller one was looked for.
    """

    effect: Effect
    pair: Pair
    definition: Definition
    tried: tuple[Tried, ...]
    ended: str
    spent_s: float
    again: Shown | None
    seen: bool

    @property
    def status(self) -> Exit:
        """The exit code: INCONCLUSIVE unless the effect was seen again."""
        return Exit.OK if self.seen else Exit.INCONCLUSIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weight:
    """What decides how long a pair takes: `iteration_s` by theory (seconds, sum of both sides), None if unknown."""

    hosts: int
    runs: int
    iterations: float  # of a window, or seconds of one that ends by time
    before: int
    iteration_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A pair that shows the effect: what it took, and in all, hosts' seconds; infinite where it was not measured."""

    step: str
    pair: Pair
    weight: _Weight
    took: Took
    count: int = LEAST
    host_s: float = math.inf


@dataclass(slots=True)
class Shrinking:
    """Looks for the smallest pair; all of it follows from what `measure` gives, so that it goes on where it ended."""

    effect: Effect
    measure: Measuring
    budget_s: float
    say: Callable[[str], None]
    tried: list[Tried] = field(default_factory=list)
    spent_s: float = 0.0
    _kept: list[_Kept] = field(default_factory=list)
    _lost: dict[str, set[str]] = field(default_factory=dict)  # by dimension, values at which the effect is lost
    _trials: dict[str, tuple[Definition, _Weight]] = field(default_factory=dict)  # by the digest of the pair
    _out: set[tuple[str, str]] = field(default_factory=set)  # dimension and value of what cannot be planned

    def carry_out(self) -> Shrunk:
        """Make the pair smaller until no step is left or the budget is, and measure the last one once more."""
        self._kept = [self._whole()]
        ended = "no smaller step is left"
        while (found := self._next()) is not None:
            step, definition, weight = found
            least_s = LEAST * _seconds(weight, self._kept[-1])
            if self.spent_s + least_s + self._again_s() > self.budget_s:
                ended = f"the budget of {sweeptext.time_text(self.budget_s)} holds no further step"
                break
            self._try(step, definition, weight)
        return self._measured_again(ended)

    def _whole(self) -> _Kept:
        """Return the pair that the effect comes from."""
        _, weight = self._trial(self.effect.pair)
        return _Kept(step="", pair=self.effect.pair, weight=weight, took=self.effect.took)

    def planned(self, pair: Pair, name: str) -> Definition:
        """Return the sweep of a pair; ConfigError where it cannot be planned."""
        return pairs.definition(pairs.as_sweep(pair, name, of=self.effect.of, excluded=self.effect.excluded))

    def _trial(self, pair: Pair) -> tuple[Definition, _Weight]:
        """Return the sweep of a pair that is tried, and its weight; ConfigError where it cannot be planned."""
        digest = pairs.digest(pair)
        if digest not in self._trials:
            # A name of its own, so that none is a night of another.
            definition = self.planned(pair, f"{self.effect.name[:25]}-shrink-{digest[:6]}")
            self._trials[digest] = definition, _weight(definition)
        return self._trials[digest]

    def outlook(self) -> list[tuple[str, float | None]]:
        """Return the first step of each dimension with the seconds of a pair then; None of one that cannot be planned.

        Nothing is measured. Those that would be tried first come first.
        """
        start = self._whole()
        found: list[tuple[float, str, float | None]] = [(-math.inf, "as it is", _seconds(start.weight, start))]
        for ladder in reductions.ladders(start.pair).values():
            try:
                _, smaller = self._trial(ladder[0].pair)
            except ConfigError:
                found.append((math.inf, ladder[0].text, None))
                continue
            seconds = _seconds(smaller, start)
            found.append((smaller.hosts * seconds, ladder[0].text, seconds))
        return [(text, seconds) for _, text, seconds in sorted(found, key=lambda one: one[0])]

    def _next(self) -> tuple[Step, Definition, _Weight] | None:
        """Return the step that saves most of hosts' time, of those that can be planned."""
        kept = self._kept[-1]
        best: tuple[float, Step, Definition, _Weight] | None = None
        for dimension, ladder in reductions.ladders(kept.pair).items():
            found = self._planned_of(dimension, ladder)
            if found is None:
                continue
            step, definition, weight = found
            cost = weight.hosts * _seconds(weight, kept)
            if best is None or cost < best[0]:
                best = (cost, step, definition, weight)
        return None if best is None else best[1:]

    def _planned_of(self, dimension: str, ladder: Sequence[Step]) -> tuple[Step, Definition, _Weight] | None:
        """Return the next step of a dimension that can be planned: the smallest, once that is lost the middle."""
        lost = self._lost.get(dimension, set())
        last = max((place for place, step in enumerate(ladder) if step.value in lost), default=-1)
        left = [step for step in ladder[last + 1 :] if (dimension, step.value) not in self._out]
        while left:
            step = left[len(left) // 2 if lost else 0]
            try:
                return (step, *self._trial(step.pair))
            except ConfigError as error:
                self._pass_over(step, error)
                left.remove(step)
        return None

    def _try(self, step: Step, definition: Definition, weight: _Weight) -> None:
        """Measure a smaller pair, and keep it where it shows the effect in less time of hosts."""
        kept = self._kept[-1]
        pair_s = _seconds(weight, kept)
        left_s = self.budget_s - self.spent_s - self._again_s() - pair_s  # the last one may begin at its end
        allowed_s = min(left_s, _LONGER * kept.host_s / weight.hosts)
        self.say(f"{step.text}: about {sweeptext.time_text(pair_s)} a pair")
        try:
            shown = self.measure(definition, allowed_s)
        except LockedError:
            raise
        except (MissingRequirement, TestbedError) as error:
            self._pass_over(step, error)
            return
        self.spent_s += shown.seconds
        host_s = weight.hosts * shown.seconds
        verdict: Verdict = "held"
        if not shown.standing.count:
            verdict = "not valid"
        elif not shown.shows(self.effect.ratio):
            verdict = "lost"
        elif host_s > _LONGER * kept.host_s:
            verdict = "takes longer"
        self._tell(step.text, verdict, shown_text(shown, definition))
        if verdict == "held":
            count = shown.standing.count
            self._kept.append(
                _Kept(step=step.text, pair=step.pair, weight=weight, took=shown.took, count=count, host_s=host_s)
            )
        else:
            self._lost.setdefault(step.dimension, set()).add(step.value)

    def _pass_over(self, step: Step, error: ConfigError | MissingRequirement | TestbedError) -> None:
        self._out.add((step.dimension, step.value))
        self._tell(step.text, "passed over", error.message.partition("\n")[0].removeprefix(f"{pairs.PLACE}:1:1: "))

    def _tell(self, step: str, verdict: Verdict, text: str) -> None:
        self.tried.append(Tried(step=step, verdict=verdict, text=text))
        self.say(f"  {verdict}: {text}")

    def _again_s(self) -> float:
        """Return about how long it takes to measure the pair that is kept once more."""
        kept = self._kept[-1]
        return kept.count * _seconds(kept.weight, kept)

    def _measured_again(self, ended: str) -> Shrunk:
        """Measure the smallest pair once more, and larger ones for as long as the effect is not seen again."""
        shown: Shown | None = None
        while True:
            kept = self._kept[-1]
            definition = self.planned(kept.pair, final_name(self.effect))
            pair_s, left_s = _seconds(kept.weight, kept), self.budget_s - self.spent_s
            if LEAST * pair_s > left_s:
                return self._shrunk(kept.pair, definition, ended, shown=None, seen=False)
            self.say("the smallest pair once more, by runs that chose nothing")
            shown = self.measure(definition, left_s - pair_s)
            self.spent_s += shown.seconds
            seen = shown.shows(self.effect.ratio)
            if seen or len(self._kept) == 1:
                return self._shrunk(kept.pair, definition, ended, shown=shown, seen=seen)
            self._tell(f"{kept.step}, once more", "lost", shown_text(shown, definition))
            self._kept.pop()

    def _shrunk(self, pair: Pair, definition: Definition, ended: str, *, shown: Shown | None, seen: bool) -> Shrunk:
        return Shrunk(
            effect=self.effect,
            pair=pair,
            definition=definition,
            tried=tuple(self.tried),
            ended=ended,
            spent_s=self.spent_s,
            again=shown,
            seen=seen,
        )


def shown_text(shown: Shown, definition: Definition) -> str:
    """Return what a pair shows: "mean +4.8 % (+2.1 % to +7.6 %) after 5 repetitions, 96 s"."""
    until = definition.until
    if until is None:
        raise AssertionError("a pair is measured until something is known")
    if not shown.standing.count:
        return f"no repetition is valid{': ' + shown.why if shown.why else ''}"
    return f"{choicetext.progress_text(shown.standing, until)}, {sweeptext.time_text(shown.seconds)}"


def final_name(effect: Effect) -> str:
    """Return the name of the sweep of the smallest pair."""
    return f"{effect.name[:34]}-small"


def _weight(definition: Definition) -> _Weight:
    """Return what decides how long a pair takes; ConfigError where one side cannot be planned."""
    planned = [plan.single(point.experiment, 1, Draws()) for point in definition.points]
    measure = definition.points[0].experiment.measure
    times = [scale_limits.iteration_s(one, one.windows[0].name) for one in planned]
    known = [one for one in times if one is not None]
    return _Weight(
        hosts=max(len(one.nodes()) for one in planned),
        runs=1 if definition.file.mode == "windows" else len(planned),
        iterations=measure.iterations or measure.at_most or 1.0,
        before=measure.before if measure.iterations else 0,
        iteration_s=sum(known) if len(known) == len(times) and measure.iterations else None,
    )


def _seconds(weight: _Weight, kept: _Kept) -> float:
    """Return about how long a pair of this weight takes, by what one of another weight took."""
    old, took = kept.weight, kept.took
    each_s = took.window_s / old.iterations
    fixed_s = max(0.0, took.beside_s - 2 / old.runs * old.before * each_s)
    if weight.iteration_s is not None and old.iteration_s:
        each_s *= weight.iteration_s / old.iteration_s
    return weight.runs * fixed_s + 2 * (weight.before + weight.iterations) * each_s


# By runs


def by_runs(options: RunOptions) -> Measuring:
    """Return the function that measures a pair as a sweep, which goes on with what is sealed of it.

    It raises Interrupted, and what keeps runs from starting on this machine.
    """

    def measure(definition: Definition, within_s: float) -> Shown:
        def given_up(ledger: Ledger) -> bool:
            in_vain = [_in_vain(ledger, point.point) for point in definition.points]
            return ledger.spent_s >= within_s or max(in_vain) >= _HOPELESS

        outcome = run_sweep.carry_out(definition, options, given_up=given_up)
        if outcome.status == Exit.INTERRUPTED:
            raise Interrupted("shrinking is interrupted: the same command goes on with it")
        return shown_of(outcome.ledger, outcome.standings[0])

    return measure


def _in_vain(ledger: Ledger, point: str) -> int:
    """Return how often a point was measured in vain where no measurement of it is valid; else 0."""
    valid = any(key[0] == point for key in ledger.done)
    return 0 if valid else sum(tries for key, tries in ledger.tries.items() if key[0] == point)


def shown_of(ledger: Ledger, standing: Standing) -> Shown:
    """Return what the sealed runs of a pair show."""
    windows = [(one.manifest, one.window.seconds) for one in ledger.found]
    return Shown(
        standing=standing,
        seconds=ledger.spent_s,
        took=pairs.took(windows) if windows else Took(window_s=0.0, beside_s=0.0),
        why=next(iter(ledger.why.values()), "").partition("\n")[0],
    )
