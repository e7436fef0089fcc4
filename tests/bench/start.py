"""How long a user waits for commands that only look: help, plan, list, show, report, a small capture."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

from orchestrator.analysis.capture import flowtable
from tests.bench import packets
from tests.bench.commands import ROOT, call, orch_argv
from tests.bench.figure import Figure, Settings

PLAN = "playbooks/experiments/quickstart.yaml"
RUNS = ROOT / "tests/data/store"  # sealed by earlier versions
INTERPRETER = "python -c pass"
_PACKETS = 1_000


def measure(settings: Settings) -> Iterator[Figure]:
    """Wall time from start to exit, the commands in turn; one unmeasured round first, to fill the page cache."""
    flowtable.warm()  # compiled, if it was not
    results = settings.scratch / "results"
    shutil.copytree(RUNS, results)
    capture = packets.write(settings.scratch / "small.pcap", _PACKETS, flows=50)
    there = ("--results", str(results))
    commands = {
        "orch --help": (orch_argv("--help"), 0.3),
        f"orch plan {PLAN.rpartition('/')[2]}": (orch_argv("plan", PLAN), 0.6),
        f"orch ls of {sum(1 for _ in RUNS.iterdir())} runs": (orch_argv("ls", *there), 0.1),
        "orch report last": (orch_argv("report", "last", *there, "--output", str(settings.scratch / "page")), 2.0),
        f"orch capture of {_PACKETS:,} packets": (orch_argv("capture", str(capture)), 0.4),
        INTERPRETER: ([sys.executable, "-c", "pass"], None),
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(settings.times(15, 5) + 1):
        for name, (argv, _) in commands.items():
            seconds = call(argv, cwd=ROOT).seconds
            if turn:
                taken[name].append(seconds)
    for name, (_, goal_s) in commands.items():
        if goal_s is None:
            continue
        yield Figure(what=name, unit="s", values=tuple(taken[name]), against="goal", reference=(goal_s,))
        yield Figure(
            what=name, unit="s", values=tuple(taken[name]), against=INTERPRETER, reference=tuple(taken[INTERPRETER])
        )
    shutil.rmtree(results)
