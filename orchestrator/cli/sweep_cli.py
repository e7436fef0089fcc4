"""The `orch sweep` command."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from pathlib import Path

from orchestrator.cli import compare_cli
from orchestrator.core import console
from orchestrator.core.errors import Interrupted


def options(parser: argparse.ArgumentParser) -> None:
    """Add what `orch sweep` takes beside the options of experiments."""
    parser.add_argument(
        "--new", action="store_true", help="begin anew, rather than take up the newest of this very file"
    )
    parser.add_argument("--where", action="append", default=[], metavar="CONDITION",
                        help="only points like this, such as load<=8gbit; may be repeated")  # fmt: skip
    parser.add_argument("--metrics-file", type=Path, metavar="FILE",
                        help="write what was found for the text-file collector of a node exporter")  # fmt: skip
    compare_cli.sweep_options(parser)
    parser.set_defaults(action=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out a sweep and tell what it found; gives the exit status."""
    from orchestrator.core import where
    from orchestrator.experiment import sweepfile
    from orchestrator.run import execute
    from orchestrator.run.observers import metrics
    from orchestrator.run.observers.progress import Progress
    from orchestrator.store import sweeps
    from orchestrator.sweep import run_sweep, sweeptext

    if arguments.baseline:
        compare_cli.require_baseline(arguments.results, arguments.baseline)

    wait_s = execute.patience(arguments.wait)
    conditions = where.parse(arguments.where)
    definition = sweepfile.load(arguments.file, arguments.overrides, dry_run=arguments.dry_run)
    with metrics.served(arguments.metrics) if arguments.metrics else nullcontext() as observer:
        outcome = run_sweep.carry_out(
            definition,
            results=arguments.results,
            new=arguments.new,
            wait_s=wait_s,
            conditions=conditions,
            progress=Progress(),
            force=arguments.force,
            observer=observer,
        )
    if arguments.metrics_file is not None:
        found = sweeps.chosen(outcome.ledger.found)
        metrics.write_results(arguments.metrics_file, outcome.sweep, found, status=outcome.status)
    told = sweeptext.summary_text(outcome.sweep, outcome.ledger, outcome.keys)
    out = sys.stderr if arguments.json else sys.stdout
    console.tell(told, stream=out)
    if outcome.runs_s:
        share = outcome.measured_s / outcome.runs_s
        took = f"the runs took {sweeptext.time_text(outcome.runs_s)}, {share:.1%} of it measured windows"
        console.tell(took, stream=out)
    if arguments.json:
        data = sweeptext.summary_data(outcome.sweep, outcome.ledger, outcome.keys)
        console.tell(json.dumps({**data, "runs_s": outcome.runs_s, "measured_s": outcome.measured_s}))
    if arguments.baseline and outcome.status != Interrupted.exit_code:
        swept = outcome.sweep
        return compare_cli.judge_sweep(arguments, sweep=swept.id, folder=swept.path, status=outcome.status)
    return outcome.status


def plan(path: Path, *, overrides: list[str], dry_run: bool, results: Path, as_json: bool) -> int:
    """Tell every run of a sweep, and how long it may take by what the store knows."""
    from orchestrator.experiment import beforehand, sweepfile
    from orchestrator.sweep import run_sweep, sweepplan, sweeptext

    definition = sweepfile.load(path, overrides, dry_run=dry_run)
    found = list(sweepplan.batches(definition, sweepplan.in_order(definition)))
    estimate = sweepplan.estimate(found, run_sweep.earlier_windows(results, definition.file.name))
    if as_json:
        print(json.dumps(sweeptext.plan_data(definition, found, estimate), indent=1))
    else:
        print(sweeptext.plan_text(definition, found, estimate))
    return beforehand.tell(sweepplan.first_runs(found))
