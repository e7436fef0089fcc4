"""How often `orch why` names a planted cause and its place, on settings drawn afresh, and whom it accuses else.

`python -m tests.bench.causes FOLDER SEED... [--only CAUSE,...] [--pairs N] [--record TEXT]` measures what the folder
lacks, so that an interrupted command goes on, and scores all that is there; TEXT says what ran beside it. N pairs of
causes are drawn from each seed; "a+b" is a pair that CAUSE may name, too.
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from orchestrator.analysis.causes import naming
from orchestrator.analysis.causes.explanation import Explanation, Finding
from orchestrator.report.runs import Run
from tests.bench import planted_causes, recording
from tests.bench.commands import INVALID, ORCH_WITHIN_S, ROOT, call
from tests.bench.figure import Figure, Settings, Table
from tests.bench.planted_causes import CAUSES, COLLISION, FABRIC, NOTHING, Planted

LEAST_COST = 0.05  # of the control's mean: what moves it by less counts apart
JOB = "training"  # that is explained
AMBIENT = "processor"  # of the machine that measures: it ranks where it was planted alone
CALLED = {"uplink-rate": "link-rate"}  # plants that are named as others are
MET = 0.25  # of the time that flows of a leaf must collide, as its counters have it, to count as a collision
QUEUED_S = 1e-4  # mean wait at an uplink, below which flows that collide there cost nothing
PAIRS = 2  # of a seed


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
        """Return first, second, cause alone, wrong, abstained; of a run with nothing planted nothing or accused.

        Of two causes: both, where both are named with their places, one, wrong, or abstained.
        """
        if self.planted.cause == NOTHING:
            return "accused" if self.named else "nothing"
        if not self.named:
            return "abstained"
        hits = [any(_hit(one, truth) for truth in self.planted.truths) for one in self.named]
        if len(self.planted.truths) > 1:
            right = sum(any(_hit(one, truth) for one in self.named) for truth in self.planted.truths)
            return ("wrong", "one", "both")[right]
        if hits[0]:
            return "first"
        if True in hits[:2]:
            return "second"
        cause = self.planted.cause
        return "cause alone" if self.named[0].cause == CALLED.get(cause, cause) else "wrong"

    @property
    def accused(self) -> tuple[Finding, ...]:
        """Return what is named besides what was planted."""
        return tuple(one for one in self.named if not any(_hit(one, truth) for truth in self.planted.truths))


def _hit(finding: Finding, truth: tuple[str, tuple[str, ...]]) -> bool:
    cause, places = truth
    known = not finding.hosts or cause == AMBIENT  # hosts share this machine's processors
    return finding.cause == CALLED.get(cause, cause) and (known or finding.hosts[0] in places)


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Plant every cause in settings of a seed of today, which the table tells."""
    seeds = [secrets.randbelow(10**6) for _ in range(settings.times(4, 1))]
    causes = {seed: (*CAUSES, *planted_causes.pairs(seed, PAIRS)) for seed in seeds}
    for _ in run(settings.scratch, causes):
        pass
    yield from scored(cases(settings.scratch, causes))


def run(folder: Path, causes: Mapping[int, Sequence[str]]) -> Iterator[Path]:
    """Measure what the folder lacks of the causes of each seed, controls first; yield each run's folder."""
    for seed, wanted in causes.items():
        for cause in dict.fromkeys((NOTHING, *wanted)):
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
                for group in Path("/sys/fs/cgroup/blkio").glob("orch-planted-*"):  # of slow disks
                    group.rmdir()
            yield _measured(place)[-1]


def _measured(place: Path) -> list[Path]:
    return sorted(
        path.parent for path in place.glob("*/*/*/manifest.json") if not path.parent.name.endswith(".partial")
    )


def cases(folder: Path, causes: Mapping[int, Sequence[str]]) -> Iterator[Case]:
    """Yield every case that the folder has, with its cost over the control of its seed, if that was measured.

    Of fabrics there is no control, since flows of any run may collide: their cost is not known.
    """
    for seed, wanted in causes.items():
        control = _explained(folder / f"{NOTHING}.{seed}")
        for cause in wanted:
            found = _explained(folder / f"{cause}.{seed}")
            if found is not None and control is not None:
                planted = planted_causes.draw(cause, seed)
                if cause == COLLISION:
                    planted = _collided(folder / f"{cause}.{seed}", planted)
                yield Case(
                    planted=planted,
                    seed=seed,
                    named=tuple(one for one in found.findings if cause == AMBIENT or one.cause != AMBIENT or one.hosts),
                    undecided=found.undecided,
                    mean_s=found.mean_s,
                    cost=math.nan if cause in FABRIC else found.mean_s / control.mean_s - 1,
                )


def _collided(place: Path, planted: Planted) -> Planted:
    """Return what leaves counted of a run in which flows may have collided: their full uplinks, or nothing."""
    run = Run(_measured(place)[-1])
    met = {row["leaf"] for row in run.table("collisions").to_pylist() if row["share"] >= MET}
    full = [
        row["link"]
        for row in run.table("fabric_links").to_pylist()
        if row["node"] in met and "-spine" in row["link"] and row["waiting_s"] >= QUEUED_S
    ]
    return replace(planted, truths=((COLLISION, tuple(full)),) if full else ((NOTHING, ()),))


def _explained(place: Path) -> Explanation | None:
    for path in reversed(_measured(place)):
        for found in naming.explanations(Run(path)):
            if found.job == JOB:
                return found
    return None


def scored(found: Iterable[Case]) -> Iterator[Figure | Table]:
    """Yield shares, the confusion matrix and every case."""
    every = list(found)
    planted = [case for case in every if len(case.planted.truths) == 1 and case.planted.cause != NOTHING]
    pairs = [case for case in every if len(case.planted.truths) > 1]
    controls = [case for case in every if case.planted.cause == NOTHING]
    costly = [case for case in planted if case.cost >= LEAST_COST]
    for cases_, which in ((planted, "plants"), (costly, "plants after which iterations took 5 % longer, or more")):
        yield from _shares(cases_, which)
    yield from _pair_shares(pairs)
    accused = sum(bool(case.accused) for case in planted)
    yield Figure(what="somebody else accused, too", unit=f"of {len(planted)} plants", values=(float(accused),))
    if controls:
        accused = sum(case.outcome == "accused" for case in controls)
        yield Figure(
            what="accusations where nothing is planted", unit=f"of {len(controls)} runs", values=(float(accused),)
        )
    yield matrix(every)
    rows = tuple(_row(case) for case in every)
    columns = ("planted", "where", "how", "seed", "mean, ms", "cost", "named first", "also", "outcome")
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


def _pair_shares(found: Sequence[Case]) -> Iterator[Figure]:
    """Yield of how many pairs both causes, or one, were named."""
    counted = Counter(case.outcome for case in found)
    for what, hits in (
        ("both causes named with their places", counted["both"]),
        ("one of both", counted["one"]),
        ("neither", counted["wrong"] + counted["abstained"]),
        ("somebody else accused, too", sum(bool(case.accused) for case in found)),
    ):
        if found:
            yield Figure(what=what, unit=f"of {len(found)} pairs", values=(float(hits),))


def matrix(found: Sequence[Case]) -> Table:
    """Return the confusion matrix: planted causes by what was named first."""
    named = list(dict.fromkeys([*CAUSES, *(one.named[0].cause for one in found if one.named)]))
    named = [cause for cause in named if cause not in CALLED]
    rows = []
    for cause in CAUSES:
        mine = [case for case in found if case.planted.cause == cause]
        first = Counter(case.named[0].cause if case.named else NOTHING for case in mine)
        right = sum(case.outcome in ("first", "nothing") for case in mine)
        rows.append((cause, len(mine), right, *(first[one] or "" for one in named)))
    return Table(title="Planted by named first", columns=("planted", "runs", "right place", *named), rows=tuple(rows))


def _row(case: Case) -> tuple[str | int, ...]:
    named = [f"{one.cause}: {one.place}, {one.share:.0%}" for one in case.named]
    first, others = (*named, "")[0], "; ".join(named[1:])
    cost = "" if case.planted.cause == NOTHING or math.isnan(case.cost) else f"{case.cost:+.0%}"
    where = ", ".join(case.planted.places)
    mean = f"{case.mean_s * 1e3:.1f}"
    return case.planted.cause, where, case.planted.how, case.seed, mean, cost, first, others, case.outcome


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.causes", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--only", type=lambda text: tuple(text.split(",")), default=CAUSES)
    parser.add_argument("--pairs", type=int, default=0, metavar="N")
    parser.add_argument("--record", metavar="TEXT")
    parser.add_argument("--score", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    causes = {seed: (*arguments.only, *planted_causes.pairs(seed, arguments.pairs)) for seed in arguments.seeds}
    for path in () if arguments.score else run(arguments.folder, causes):
        print(path, flush=True)
    found = list(scored(cases(arguments.folder, causes)))
    for one in found:
        print(one.text() if isinstance(one, Figure) else json.dumps(one.as_data(), indent=1))
    if arguments.record:
        command = f"python -m tests.bench.causes FOLDER {' '.join(map(str, arguments.seeds))} --pairs {arguments.pairs}"
        print(recording.record("causes", found, load=arguments.record, command=command))
    return 0


if __name__ == "__main__":
    sys.exit(main())
