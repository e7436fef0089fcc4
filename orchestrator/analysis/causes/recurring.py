"""Find the causes that recur: which host or port several runs, and several nights, name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.analysis.causes import stored, words
from orchestrator.analysis.causes.explanation import Finding
from orchestrator.store import stores

if TYPE_CHECKING:
    from orchestrator.store.rundir import Listed

MOST = 10  # culprits that are written


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a run named: its id, the night that it is of, and its findings; None where it has no table `causes`."""

    run: str
    night: str
    findings: tuple[Finding, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A cause at one place in several runs: which runs and nights named it, and which of them named it first.

    `shares` are of the iteration time, one a run, in the order of `runs`: the largest of its windows and jobs.
    """

    cause: str
    hosts: tuple[str, ...]
    what: str
    runs: tuple[str, ...]
    nights: tuple[str, ...]
    first: int
    shares: tuple[float, ...]


def of_entries(store: stores.Store, entries: Iterable[Listed]) -> Iterator[Named]:
    """Yield what the runs of a store named, in order of time; StoreError where a table cannot be read."""
    for entry in sorted(entries, key=lambda one: one.run):
        folder = store.brought(entry, want=lambda path: path == f"tables/{stored.FILE}")
        found = tuple(one for _, one in stored.of_run(folder)) if stored.has(folder) else None
        yield Named(run=entry.run, night=stores.day_of(entry), findings=found)


def culprits(runs: Sequence[Named]) -> list[Culprit]:
    """Return the causes that runs name, those of most runs first; a run counts once, whatever its windows."""
    found: dict[tuple[str, tuple[str, ...]], dict[str, list[Finding]]] = {}
    leading: dict[str, Finding] = {}
    for run in runs:
        for finding in run.findings or ():
            found.setdefault((finding.cause, finding.hosts), {}).setdefault(run.run, []).append(finding)
        if run.findings:
            leading[run.run] = max(run.findings, key=lambda one: one.share)
    night_of = {run.run: run.night for run in runs}
    every = []
    for (cause, hosts), by_run in found.items():
        largest = {run: max(several, key=lambda one: one.share) for run, several in by_run.items()}
        every.append(
            Culprit(
                cause=cause,
                hosts=hosts,
                what=words.what(max(largest.values(), key=lambda one: one.share)),
                runs=tuple(largest),
                nights=tuple(sorted({night_of[run] for run in largest})),
                first=sum((leading[run].cause, leading[run].hosts) == (cause, hosts) for run in largest),
                shares=tuple(one.share for one in largest.values()),
            )
        )
    return sorted(every, key=lambda one: (-len(one.runs), -one.first, -max(one.shares)))


def text(runs: Sequence[Named], found: Sequence[Culprit]) -> list[str]:
    """Return what recurs in a few lines: how many runs, then a line a culprit, those of most runs first."""
    known = [run for run in runs if run.findings is not None]
    quiet = sum(not run.findings for run in known)
    nights = {run.night for run in known}
    lines = [f"{len(known)} runs of {_counted(len(nights), 'night')}, in {quiet} of which nothing stands out"]
    if len(known) < len(runs):
        lines[0] += f"; {len(runs) - len(known)} more have no table of causes (`orch reduce` makes it)"
    for one in found[:MOST]:
        when = f", {one.nights[0]} to {one.nights[-1]}" if len(one.nights) > 1 else ""
        of_nights = f" ({len(one.nights)} of {len(nights)} nights{when})" if len(nights) > 1 else ""
        lines.append(
            f"{len(one.runs)} of {len(known)} runs{of_nights}: {one.what}: {stored.span(one.shares)} of the time, "
            f"largest in {one.first}"
        )
    if len(found) > MOST:
        lines.append(f"and {len(found) - MOST} more")
    return lines


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
