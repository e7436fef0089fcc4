"""What changed between two runs: by how much iterations take longer, and in which parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.analysis.causes.explanation import Explanation, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class PartChange:
    """A part of the iteration time in both runs, seconds an iteration."""

    name: str
    before_s: float
    after_s: float

    @property
    def more_s(self) -> float:
        """Seconds that it takes more than before."""
        return self.after_s - self.before_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A job in two runs: mean iteration times, the bound below which nothing can be told, and the parts that changed.

    `bound_s` is the half width of the 95 % interval of the difference of both means, from the iterations of each run;
    it does not hold what differs from run to run, of which one run of each knows nothing. `causes` are findings whose
    cost grew by more than the bound.
    """

    before: Explanation
    after: Explanation
    bound_s: float
    parts: tuple[PartChange, ...]
    causes: tuple[Finding, ...]

    @property
    def more_s(self) -> float:
        """Seconds by which an iteration takes longer than before."""
        return self.after.mean_s - self.before.mean_s

    @property
    def changed(self) -> bool:
        """Whether both differ by more than the noise of the two runs."""
        return abs(self.more_s) > self.bound_s


def changed(before: Sequence[Explanation], after: Sequence[Explanation]) -> list[Change]:
    """Return what changed of each job, in windows by their order, from the runs `before` to the run `after`."""
    known = {(one.job, place): one for place, one in enumerate(before)}
    return [_change(known[one.job, place], one) for place, one in enumerate(after) if (one.job, place) in known]


def _change(before: Explanation, after: Explanation) -> Change:
    bound = float((before.noise * before.mean_s) ** 2 + (after.noise * after.mean_s) ** 2) ** 0.5
    old, new = ({part.name: part.seconds for part in one.parts} for one in (before, after))
    parts = [
        PartChange(name=name, before_s=old.get(name, 0.0), after_s=new.get(name, 0.0))
        for name in dict.fromkeys((*new, *old))
    ]
    was = {(one.cause, one.hosts): one.seconds for one in before.findings}
    grown = [one for one in after.findings if one.seconds - was.get((one.cause, one.hosts), 0.0) > bound]
    return Change(
        before=before,
        after=after,
        bound_s=bound,
        parts=tuple(sorted(parts, key=lambda part: -abs(part.more_s))),
        causes=tuple(grown),
    )
