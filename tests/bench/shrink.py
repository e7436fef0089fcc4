"""Whether `orch shrink` makes a planted +5 % small: a file that shows it within three minutes, in 8 of 10 tries.

Three causes are planted, each measured once as a sweep of seven hosts and a minute a pair. Every try shrinks a copy of
one of these sweeps, by runs of its own. All lies in `results/bench-shrink`: a later call goes on from there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.commands import INVALID, ROOT, SWEEP_WITHIN_S, call, orch_argv, orch_sweep, slow_testbed, training
from tests.bench.figure import Figure, Settings, Table

STORE = ROOT / "results" / "bench-shrink"
TRIES, GOAL_TRIES, GOAL_S = 10, 8, 180.0
BUDGET = "30min"
# By `orch predict`, each makes an iteration of 158 ms about 5 % longer.
PLANTS: dict[str, dict[str, list[str]]] = {
    "computing": {"workload.ddp.compute_time": ["147ms", "155ms"]},
    "link": {"conditions.1.rate.rate": ["25gbit", "12gbit"]},
    "traffic": {"traffic.0.iperf.load": ["2gbit", "13.5gbit"]},
}
_COLUMNS = ("try", "planted", "steps tried", "held", "runs (s)", "file (s)", "it shows", "shown within three minutes")


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Return how many tries end in a file that shows the effect in time; `--quick` makes one."""
    rows = [_row(number) for number in range(1, settings.times(TRIES, 1) + 1)]
    good = sum(row[-1] == "yes" for row in rows)
    yield Figure(
        what="files that show the planted effect within three minutes",
        unit=f"of {len(rows)}",
        values=(float(good),),
        note=f"goal {GOAL_TRIES} of {TRIES} at least",
    )
    yield Figure(
        what="what such a file takes",
        unit="s",
        values=tuple(row[5] for row in rows if row[5] is not None),
        against="goal",
        reference=(GOAL_S,),
    )
    yield Figure(what="runs of a whole try", unit="s", values=tuple(row[4] for row in rows))
    yield Table(title="Tries", columns=_COLUMNS, rows=tuple(rows))


def _row(number: int) -> tuple[Any, ...]:
    """Shrink a plant, in turns; return what came of it."""
    plant = list(PLANTS)[(number - 1) % len(PLANTS)]
    results = STORE / f"try-{number}"
    if not results.exists():
        shutil.copytree(_planted(plant), results)
    file = results.with_suffix(".yaml")
    argv = [
        "shrink",
        plant,
        "--results",
        str(results),
        "--budget",
        BUDGET,
        "-o",
        str(file),
        "--wait",
        "30min",
        "--json",
    ]
    done = call(orch_argv(*argv), ok=(0, INVALID), within_s=SWEEP_WITHIN_S, cwd=ROOT)
    found = json.loads(done.stdout.splitlines()[-1])
    again, took_s = found["again"], found["again_s"]
    shows = (
        "not measured"
        if again is None
        else f"{again['value'] - 1:+.1%} ({again['low'] - 1:+.1%} to {again['high'] - 1:+.1%})"
    )
    held = [one["step"] for one in found["tried"] if one["verdict"] == "held"]
    good = found["seen"] and took_s <= GOAL_S
    tried = sum(one["verdict"] != "passed over" for one in found["tried"])
    return number, plant, tried, "; ".join(held), found["runs_s"], took_s, shows, "yes" if good else "no"


def _planted(plant: str) -> Path:
    """Measure what is missing of the sweep of a plant; return its results folder."""
    results = STORE / plant
    orch_sweep(_sweep(plant), results)
    return results


def _sweep(plant: str) -> dict[str, Any]:
    """Six repetitions of both sides, in turns; beside them is what the effect does not need."""
    experiment = training(
        7,
        name=None,
        testbed=slow_testbed(7),
        conditions=[{"congestion-control": "cubic"}, {"rate": {"where": "nic", "host": "h3", "rate": "25gbit"}}],
        workload={
            "ddp": {
                "model": "resnet50",
                "compute": "emulated",
                "compute_time": "147ms",
                "hosts": ["h1", "h2", "h3", "h4"],
            }
        },
        traffic=[
            {"iperf": {"from": "h1", "to": "h5", "load": "2gbit", "streams": 4}},
            {"websearch": {"from": "h6", "to": "h7", "load": "4gbit"}},
        ],
        measure={"warmup": 3, "iterations": 15, "at_most": "120s"},
        validity={"load": "as-achieved", "load_course": "ignore", "launch_late": "100ms"},
    )
    return {
        "name": plant,
        "experiment": experiment,
        "axes": PLANTS[plant],
        "repetitions": 6,
        "attempts": 4,
        "order": "alternate",
    }
