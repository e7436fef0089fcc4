"""The `orch sweep` command, and what `orch plan` prints of a sweep."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.results import compare_cli
from orchestrator.core.exitcodes import Exit
from orchestrator.core.screen import console

if TYPE_CHECKING:
    from orchestrator.experiment.sweepfile import Definition
    from orchestrator.sweep.detecting import Detection


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what `orch sweep` takes beside the options of experiments."""
    parser.add_argument(
        "--new", action="store_true", help="start over instead of resuming the newest sweep of this file"
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="measure only points that meet this condition, such as load<=8gbit; may be repeated",
    )
    parser.add_argument(
        "--metrics-file",
        type=Path,
        metavar="FILE",
        help="write the results for the text-file collector of a node exporter",
    )
    parser.add_argument("--baseline", metavar="NAME", help="compare the finished sweep with this baseline")
    compare_cli.add_rule(parser)


def sweep(arguments: argparse.Namespace) -> int:
    """Carry out a sweep and print its results; gives the exit code."""
    from orchestrator.core import where
    from orchestrator.core.errors import OrchError
    from orchestrator.execution.observers import metrics
    from orchestrator.experiment import sweepfile
    from orchestrator.report.site import refreshing
    from orchestrator.store import sweeps
    from orchestrator.sweep import run_sweep, sweeptext

    if arguments.baseline:
        compare_cli.rule_of(arguments)
        compare_cli.require_baseline(arguments.results, arguments.baseline)
    how = options.of_runs(arguments)
    conditions = where.parse(arguments.where)
    definition = sweepfile.load(arguments.file, arguments.overrides, local=arguments.local)
    with options.observed(arguments) as observer:
        how = replace(how, observer=observer)
        outcome = run_sweep.carry_out(definition, how, new=arguments.new, conditions=conditions)
    out = sys.stderr if arguments.json else sys.stdout  # JSON stands alone on standard output
    console.tell(sweeptext.summary_text(outcome.sweep, outcome.ledger, outcome.keys), stream=out)
    if outcome.runs_s:
        console.tell(sweeptext.cost_text(outcome.runs_s, outcome.measured_s), stream=out)
    if arguments.json:
        data = sweeptext.summary_data(outcome.sweep, outcome.ledger, outcome.keys)
        console.tell(json.dumps({**data, "runs_s": outcome.runs_s, "measured_s": outcome.measured_s}))
    if outcome.status == Exit.INTERRUPTED:
        console.tell(
            sweeptext.resume_text(f"sweep {outcome.sweep.id}", outcome.done, len(outcome.keys), new=arguments.new),
            stream=sys.stderr,
        )
    status = outcome.status
    try:
        if arguments.baseline and status != Exit.INTERRUPTED:
            status = compare_cli.judge_sweep(
                arguments.results,
                arguments.baseline,
                outcome.sweep.id,
                rule=compare_cli.rule_of(arguments),
                folder=outcome.sweep.path,
                status=status,
                out=out,
            )
    except OrchError as error:
        status = error.exit_code
        raise
    finally:
        refreshing.refresh(arguments.results)
        if arguments.metrics_file is not None:
            found = sweeps.chosen(outcome.ledger.found)
            metrics.write_results(arguments.metrics_file, outcome.sweep, found, status=status)
    return status


def plan(arguments: argparse.Namespace, definition: Definition) -> int:
    """Print every run of a sweep, and how long it may take by what the store knows; gives the exit code."""
    from orchestrator.experiment import feasibility
    from orchestrator.sweep import run_sweep, sweepplan, sweeptext

    found = list(sweepplan.batches(definition, sweepplan.in_order(definition)))
    estimate = sweepplan.estimate(found, run_sweep.earlier_windows(arguments.results, definition.file.name))
    if arguments.json:
        print(json.dumps(sweeptext.plan_data(definition, found, estimate), indent=1))
    else:
        print(sweeptext.plan_text(definition, found, estimate))
    if arguments.detect:
        from orchestrator.sweep import detecting

        change = compare_cli.share(arguments.detect, "--detect")
        planned = detecting.of_sweep(definition, arguments.results, change, estimate=estimate)
        tell_detection(planned, as_json=arguments.json)
    return feasibility.tell(sweepplan.first_runs(found))


def tell_detection(planned: Detection, *, as_json: bool) -> None:
    """Print below a plan what finds a change; beside one in JSON on standard error."""
    print(f"\n{planned.text()}", file=sys.stderr if as_json else sys.stdout)
