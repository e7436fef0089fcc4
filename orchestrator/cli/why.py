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
    from collections.abc import Sequence

    from orchestrator.analysis.causes.explanation import Explanation
    from orchestrator.report.runs import Run
    from orchestrator.store.rundir import Entry
    from orchestrator.store.stores import Store

_MORE = """\
The time of an iteration is split along its critical path into parts that sum
to it, and what adds to it is named with its place, its share and the evidence:
a slow link, a full queue, other traffic, losses, delays, windows, slow or
stalled ranks, other work on processors. What the experiment was set to is no
evidence. Invalid runs are explained, too. Of several runs (a sweep, NAME@DATE,
ids) it says which causes recur, in how many of them."""


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
    why.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="a run, or several, by names as for `orch report`: of several, which causes recur",
    )
    why.add_argument("--iteration", type=int, metavar="N", help="explain this iteration of each job alone")
    why.add_argument("--against", metavar="RUN", help="say what changed since this run")
    why.add_argument(
        "--nccl",
        type=Path,
        metavar="FOLDER",
        help="also read what NCCL Inspector or PyTorch's flight recorder (as JSON) wrote of its collectives",
    )
    why.add_argument("--json", action="store_true", help="print everything as one JSON object")


def _why(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis.causes import changes, nccl, words
    from orchestrator.store import stores

    if arguments.iteration is not None and arguments.against is not None:
        raise ConfigError("--iteration: runs are compared whole; accepted: one of --iteration and --against")
    store = stores.opened(arguments.results)
    entries = stores.entries(store, arguments.runs)
    if len(entries) > 1:
        return _recurring(arguments, store, entries)
    collectives = None if arguments.nccl is None else nccl.read(arguments.nccl)
    after = _explained(arguments, store, entries[0])
    if arguments.against is None:
        if arguments.json:
            of_nccl = {} if collectives is None else {"nccl": asdict(collectives)}
            print(json.dumps({"explanations": [asdict(one) for one in after], **of_nccl}))
        else:
            told = [] if collectives is None else [nccl.text(collectives)]
            print("\n\n".join("\n".join(lines) for lines in (*map(words.text, after), *told)))
        return 0
    before = _explained(arguments, store, stores.one(store, arguments.against))
    found = changes.changed(before, after)
    if not found:
        raise ConfigError(f"--against {arguments.against}: no job of the same name in both runs")
    if arguments.json:
        print(json.dumps({"changes": [asdict(one) for one in found]}))
    else:
        print("\n\n".join("\n".join(words.change_text(one)) for one in found))
    return 0


def _recurring(arguments: argparse.Namespace, store: Store, entries: Sequence[Entry]) -> int:
    """Say which causes recur in several runs."""
    from orchestrator.analysis.causes import recurring

    for option in ("iteration", "against", "nccl"):
        if getattr(arguments, option) is not None:
            raise ConfigError(f"--{option}: {len(entries)} runs; accepted: one of them, such as {entries[-1].run}")
    runs = list(recurring.of_entries(store, entries))
    found = recurring.culprits(runs)
    if arguments.json:
        print(json.dumps({"runs": [asdict(one) for one in runs], "recurring": [asdict(one) for one in found]}))
    else:
        print("\n".join(recurring.text(runs, found)))
    return 0


def _explained(arguments: argparse.Namespace, store: Store, entry: Entry) -> list[Explanation]:
    """Return the explanations of a run's jobs; ConfigError where there is nothing to explain."""
    from orchestrator.analysis.causes import naming
    from orchestrator.report.runs import Run

    run = Run(store.brought(entry))
    found = list(naming.explanations(run, iteration=arguments.iteration))
    if not found and arguments.iteration is not None:
        raise ConfigError(
            f"--iteration {arguments.iteration}: no job of {run.id} measured it; accepted: {_measured(run)}"
        )
    if not found and arguments.nccl is None:
        raise ConfigError(f"{run.id}: no iteration of any job was logged by every rank, so there is nothing to explain")
    return found


def _measured(run: Run) -> str:
    """Return the measured iterations of a run's jobs, for people."""
    spans = (f"{span.first} to {span.last}" for window in run.windows for span in window.iterations.values())
    return ", ".join(dict.fromkeys(spans)) or "none"
