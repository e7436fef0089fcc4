"""The command that names causes: `orch why`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.commands import Group
from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.analysis.causes.explanation import Explanation
    from orchestrator.predict.counterfactual import Counterfactual
    from orchestrator.report.runs import Run

_MORE = """\
The time of an iteration is split along its critical path into parts that sum
to it, and what adds to it is named with its place, its share and the evidence:
a slow link, a full queue, other traffic, losses, delays, windows, slow or
stalled ranks, other work on processors. What the experiment was set to is no
evidence. Invalid runs are explained, too."""


def register(group: Group) -> None:
    """Add `orch why`."""
    why = group.add(
        "why",
        "say what made iterations slow, where, and how surely; or what changed from another run",
        action=_why,
        example="orch why last --against 20261127T101339714",
        more=_MORE,
    )
    options.results_to_read(why)
    why.add_argument("run", metavar="RUN", help=options.RUN)
    why.add_argument("--iteration", type=int, metavar="N", help="explain this iteration of each job alone")
    why.add_argument("--against", metavar="RUN", help="say what changed since this run")
    why.add_argument(
        "--without",
        action="store_true",
        help="also simulate the iterations without the first cause, and as they were, beside the measurement",
    )
    why.add_argument("--json", action="store_true", help="print everything as one JSON object")


def _why(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis.causes import changes, words

    if arguments.iteration is not None and arguments.against is not None:
        raise ConfigError("--iteration: runs are compared whole; accepted: one of --iteration and --against")
    if arguments.without and (arguments.iteration is not None or arguments.against is not None):
        raise ConfigError("--without: windows are simulated whole; accepted: without --iteration and --against")
    run, after = _explained(arguments, arguments.run)
    if arguments.against is None:
        less = _without(arguments, run, after) if arguments.without else []
        if arguments.json:
            told = {"explanations": [asdict(one) for one in after]}
            print(json.dumps(told | ({"without": [asdict(one) for one in less]} if less else {})))
        else:
            more = [[one.text] for one in less] or [[] for _ in after]
            print("\n\n".join("\n".join([*words.text(one), *own]) for one, own in zip(after, more, strict=True)))
        return 0
    found = changes.changed(_explained(arguments, arguments.against)[1], after)
    if not found:
        raise ConfigError(f"--against {arguments.against}: no job of the same name in both runs")
    if arguments.json:
        print(json.dumps({"changes": [asdict(one) for one in found]}))
    else:
        print("\n\n".join("\n".join(words.change_text(one)) for one in found))
    return 0


def _without(arguments: argparse.Namespace, run: Run, found: list[Explanation]) -> list[Counterfactual]:
    """Simulate each explained window without its first cause."""
    from orchestrator.predict import counterfactual

    results = Path(arguments.results)
    return [counterfactual.of_run(run.path, run.manifest, one, results=results) for one in found]


def _explained(arguments: argparse.Namespace, wanted: str) -> tuple[Run, list[Explanation]]:
    """Return a run and the explanations of its jobs; ConfigError where there is nothing to explain."""
    from orchestrator.analysis.causes import naming
    from orchestrator.report.runs import Run
    from orchestrator.store import stores

    store = stores.opened(arguments.results)
    run = Run(store.brought(stores.one(store, wanted)))
    found = list(naming.explanations(run, iteration=arguments.iteration))
    if not found and arguments.iteration is not None:
        raise ConfigError(
            f"--iteration {arguments.iteration}: no job of {run.id} measured it; accepted: {_measured(run)}"
        )
    if not found:
        raise ConfigError(f"{run.id}: no iteration of any job was logged by every rank, so there is nothing to explain")
    return run, found


def _measured(run: Run) -> str:
    """Return the measured iterations of a run's jobs, for people."""
    spans = (f"{span.first} to {span.last}" for window in run.windows for span in window.iterations.values())
    return ", ".join(dict.fromkeys(spans)) or "none"
