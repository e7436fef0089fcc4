"""How long a user waits for `orch --help` and `orch plan`, beside an interpreter that does nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.bench.commands import ROOT, call, orch_argv
from tests.bench.figure import Figure, Settings

PLAN = "playbooks/experiments/quickstart.yaml"


def measure(settings: Settings) -> Iterator[Figure]:
    """Wall time from start to exit, the three commands in turn; one unmeasured round first, to fill the page cache."""
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "help": orch_argv("--help"),
        "plan": orch_argv("plan", PLAN),
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(settings.times(15, 5) + 1):
        for name, argv in commands.items():
            seconds = call(argv, cwd=ROOT).seconds
            if turn:
                taken[name].append(seconds)
    for name, goal_s in (("help", 0.3), ("plan", 0.6)):
        label = "orch --help" if name == "help" else f"orch plan {PLAN.rpartition('/')[2]}"
        yield Figure(what=label, unit="s", values=tuple(taken[name]), against="goal", reference=(goal_s,))
        yield Figure(
            what=label, unit="s", values=tuple(taken[name]), against="python -c pass", reference=tuple(taken["python"])
        )
