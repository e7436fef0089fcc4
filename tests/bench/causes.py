"""How often `orch why` names a planted cause and its place, on settings drawn afresh, and whom it accuses else.

`python -m tests.bench.causes FOLDER SEED... [--only CAUSE,...] [--record TEXT]` measures what the folder lacks, so that
an interrupted command goes on, and scores all that is there; TEXT says what ran beside it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from orchestrator.analysis.causes import naming
from orchestrator.analysis.causes.explanation import Explanation, Finding
from orchestrator.report.runs import Run
from tests.bench import planted_causes, recording
from tests.bench.commands import INVALID, ORCH_WITHIN_S, ROOT, call
from tests.bench.figure import Figure, Settings, Table
from tests.bench.planted_causes import CAUSES, NOTHING, Planted

LEAST_COST = 0.05  # of the control's mean: what moves it by less counts apart
JOB = "training"  # that is explained
AMBIENT = "processor"  # of the machine that measures: it ranks where it was planted alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A measured run: what was planted, what was named (largest first), and its mean over that of its control."""

    planted: Planted
    seed: int
    named: tuple[Finding, ...]
    undecided: tuple[str, ...]
    mean_s: float
    cost: float  # share of the control's mean; 0 of a control

    @property
    def outcome(self) -> str:
        """Return first, second, cause alone, wrong, abstained; of a run with nothing planted nothing or accused."""
        hits = [self._hit(one) for one in self.named]
        if self.planted.cause == NOTHING:
            return "accused" if self.named else "nothing"
        if hits[:1] == [True]:
            return "first"
        if True in hits[:2]:
            return "second"
        if not self.named:
            return "abstained"
        return "cause alone" if self.named[0].cause == self.planted.cause else "wrong"

    def _hit(self, finding: Finding) -> bool:
        places = self.planted.places
        known = not finding.hosts or self.planted.cause == AMBIENT  # hosts share this machine's processors
        return finding.cause == self.planted.cause and (known or finding.hosts[0] in places)


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Plant every cause in settings of a seed of today, which the table tells."""
    seeds = [secrets.randbelow(10**6) for _ in range(settings.times(4, 1))]
    for _ in run(settings.scratch, seeds, CAUSES):
        pass
    yield from scored(cases(settings.scratch, seeds, CAUSES))


def run(folder: Path, seeds: Sequence[int], causes: Sequence[str]) -> Iterator[Path]:
    """Measure what the folder lacks of these causes and seeds, controls first; yield each run's folder."""
    for seed in seeds:
        for cause in dict.fromkeys((NOTHING, *causes)):
            place = folder / f"{cause}.{seed}"
            if not _measured(place):
                place.mkdir(parents=True, exist_ok=True)
                path = place / "experiment.yaml"
                path.write_text(yaml.safe_dump(planted_causes.draw(cause, seed).experiment, sort_keys=False))
                orch = [
                    sys.executable,
                    "-m",
                    "orchestrator.cli.main",
                    "run",
                    str(path),
                    "--no-report",
                    "--wait",
                    "30min",
                ]
                call(
                    [*orch, "--results", str(place / "results")], ok=(0, INVALID), within_s=3 * ORCH_WITHIN_S, cwd=ROOT
                )
            yield _measured(place)[-1]


def _measured(place: Path) -> list[Path]:
    return sorted(
        path.parent for path in place.glob("*/*/*/manifest.json") if not path.parent.name.endswith(".partial")
    )


def cases(folder: Path, seeds: Sequence[int], causes: Sequence[str]) -> Iterator[Case]:
    """Yield every case that the folder has, with its cost over the control of its seed, if that was measured."""
    for seed in seeds:
        control = _explained(folder / f"{NOTHING}.{seed}")
        for cause in causes:
            found = _explained(folder / f"{cause}.{seed}")
            if found is not None and control is not None:
                yield Case(
                    planted=planted_causes.draw(cause, seed),
                    seed=seed,
                    named=tuple(one for one in found.findings if cause == AMBIENT or one.cause != AMBIENT),
                    undecided=found.undecided,
                    mean_s=found.mean_s,
                    cost=found.mean_s / control.mean_s - 1,
                )


def _explained(place: Path) -> Explanation | None:
    for path in reversed(_measured(place)):
        for found in naming.explanations(Run(path)):
            if found.job == JOB:
                return found
    return None


def scored(found: Iterable[Case]) -> Iterator[Figure | Table]:
    """Yield shares, the confusion matrix and every case."""
    every = list(found)
    planted = [case for case in every if case.planted.cause != NOTHING]
    controls = [case for case in every if case.planted.cause == NOTHING]
    costly = [case for case in planted if case.cost >= LEAST_COST]
    for cases_, which in ((planted, "plants"), (costly, "plants after which iterations took 5 % longer, or more")):
        yield from _shares(cases_, which)
    if controls:
        accused = sum(case.outcome == "accused" for case in controls)
        yield Figure(
            what="accusations where nothing is planted", unit=f"of {len(controls)} runs", values=(float(accused),)
        )
    yield matrix(every)
    rows = tuple(_row(case) for case in every)
    columns = ("planted", "where", "how", "seed", "mean, ms", "cost", "named first", "second", "outcome")
    yield Table(title="Every run", columns=columns, rows=rows)


def _shares(found: Sequence[Case], which: str) -> Iterator[Figure]:
    """Yield how many of these plants were named."""
    counted = Counter(case.outcome for case in found)
    for what, hits in (
        ("cause and place first", counted["first"]),
        ("cause and place among the first two", counted["first"] + counted["second"]),
        ("another cause or place, and not the planted one", counted["wrong"] + counted["cause alone"]),
        ("nothing named", counted["abstained"]),
    ):
        if found:
            yield Figure(what=what, unit=f"of {len(found)} {which}", values=(float(hits),))


def matrix(found: Sequence[Case]) -> Table:
    """Return the confusion matrix: planted causes by what was named first."""
    named = list(dict.fromkeys([*CAUSES, *(one.named[0].cause for one in found if one.named)]))
    rows = []
    for cause in CAUSES:
        mine = [case for case in found if case.planted.cause == cause]
        first = Counter(case.named[0].cause if case.named else NOTHING for case in mine)
        right = sum(case.outcome in ("first", "nothing") for case in mine)
        rows.append((cause, len(mine), right, *(first[one] or "" for one in named)))
    return Table(title="Planted by named first", columns=("planted", "runs", "right place", *named), rows=tuple(rows))


def _row(case: Case) -> tuple[str | int, ...]:
    named = [f"{one.cause}: {one.place}, {one.share:.0%}" for one in case.named[:2]]
    first, second = (*named, "", "")[:2]
    cost = "" if case.planted.cause == NOTHING else f"{case.cost:+.0%}"
    where = ", ".join(case.planted.places)
    mean = f"{case.mean_s * 1e3:.1f}"
    return case.planted.cause, where, case.planted.how, case.seed, mean, cost, first, second, case.outcome


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.causes", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--only", type=lambda text: tuple(text.split(",")), default=CAUSES)
    parser.add_argument("--record", metavar="TEXT")
    parser.add_argument("--score", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    for path in () if arguments.score else run(arguments.folder, arguments.seeds, arguments.only):
        print(path, flush=True)
    found = list(scored(cases(arguments.folder, arguments.seeds, arguments.only)))
    for one in found:
        print(one.text() if isinstance(one, Figure) else json.dumps(one.as_data(), indent=1))
    if arguments.record:
        command = f"python -m tests.bench.causes FOLDER {' '.join(map(str, arguments.seeds))}"
        print(recording.record("causes", found, load=arguments.record, command=command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
