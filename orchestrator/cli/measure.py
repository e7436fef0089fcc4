"""The commands that measure: `orch plan`, `run` and `sweep`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from orchestrator.cli import compare, options, predict, shrink, study
from orchestrator.cli.commands import Commands
from orchestrator.core.errors import last_lines
from orchestrator.core.exitcodes import Exit
from orchestrator.core.screen import console

if TYPE_CHECKING:
    from orchestrator.execution.observers.progress import Progress
    from orchestrator.experiment.sweepfile import Definition
    from orchestrator.sweep.detecting import Detection
    from orchestrator.sweep.run_sweep import SweepOutcome

REPORT_S = 600.0


def register(commands: Commands) -> None:
    """Add the commands of this group."""
    group = commands.group("measure")
    plan = group.add(
        "plan",
        "list every run, process and file of an experiment, a sweep or a study; nothing is started",
        action=_plan,
        example="orch plan exp.yaml --local --json | jq '.runs[0].jobs[0].launches[].argv'",
    )
    options.experiment(plan, "a file of an experiment, a sweep or a study")
    options.results(plan)
    plan.add_argument(
        "--detect",
        metavar="SHARE",
        help="print how many nights and repetitions detect a change of this size, such as 2%%",
    )
    options.seed(plan, "plan the runs that this salt gives")
    plan.add_argument("--verbose", action="store_true", help="list each process by itself, with environment and files")

    predict.register(group)

    run = group.add(
        "run",
        "measure an experiment and seal its results",
        action=_run,
        example="orch run quickstart.yaml --local --set measure.iterations=50",
    )
    options.experiment(run, "an experiment file")
    _measuring(run)
    run.add_argument("--no-report", action="store_true", help="seal the results without a report")
    run.add_argument(
        "--sbatch",
        nargs=argparse.REMAINDER,
        metavar="OPTION",
        help="submit this command to Slurm as a batch job; all that follows are options of sbatch, such as --nodes 4",
    )

    sweep = group.add(
        "sweep",
        "measure an experiment at every combination of some values; the same command again resumes it",
        action=_sweep,
        example="orch sweep load.yaml --local --where 'load<=8gbit'",
    )
    options.experiment(sweep, "a sweep file")
    _measuring(sweep)
    _sweep_options(sweep)

    study.register(group)
    shrink.register(group)


def _measuring(parser: argparse.ArgumentParser) -> None:
    options.results(parser)
    options.wait(parser)
    options.metrics(parser)
    options.quiet(parser)
    options.force(parser)
    options.seed(parser)


def _plan(arguments: argparse.Namespace) -> int:
    from orchestrator.core.errors import ConfigError
    from orchestrator.core.screen import layout
    from orchestrator.experiment import feasibility, opening, plan, plantext, seeds
    from orchestrator.experiment.paperfile import Study
    from orchestrator.experiment.sweepfile import Definition
    from orchestrator.testbed.inventory import Inventory

    found = opening.open_file(arguments.file, arguments.overrides, local=arguments.local)
    if isinstance(found, Inventory):
        message = f"{arguments.file}: is an inventory, without mistakes and with nothing to plan"
        raise ConfigError(message, hint=f"orch doctor {arguments.file} looks at its hosts")
    if isinstance(found, Study):
        return study.plan(arguments, found)
    if isinstance(found, Definition):
        return _plan_sweep(arguments, found)
    experiment, document = found
    runs = plan.build(experiment, seeds.given(arguments.seed) or seeds.PLANNED)
    if arguments.json:
        variables = plan.variables_data(document.variables)
        print(json.dumps({"variables": variables, "runs": [plan.plan_data(run) for run in runs]}, indent=1))
    else:
        print(plantext.variables_text(document.variables, width=layout.columns()), end="")
        print(plantext.plan_text(runs, verbose=arguments.verbose, width=layout.columns()))
        if (until := experiment.until) is not None:
            from orchestrator.sweep import choicetext

            print(f"run {choicetext.count_text(until)}, {choicetext.aim(until)}")
    if arguments.detect:
        from orchestrator.sweep import detecting

        change = compare.share(arguments.detect, "--detect")
        planned = detecting.of_experiment(experiment.name, arguments.results, change)
        _tell_detection(planned, as_json=arguments.json)
    return feasibility.tell(runs[:1])


def _run(arguments: argparse.Namespace) -> int:
    """Carry out every run of an experiment file, make the report, and print the results."""
    if arguments.sbatch is not None:
        return _submit(arguments)
    from orchestrator.core import exitcodes
    from orchestrator.execution import execute
    from orchestrator.experiment import loading, runtext
    from orchestrator.report.site import refreshing
    from orchestrator.sweep import repeating

    with options.observed(arguments) as observer:
        how = options.of_runs(arguments, observer)
        experiment, _ = loading.checked(arguments.file, arguments.overrides, local=arguments.local)
        outcomes = execute.carry_out(experiment, how, enough=repeating.rule(experiment, how))
        last = execute.last_tries(outcomes)
        shown = [outcome.path for outcome in outcomes if outcome.sealed and outcome.manifest.windows]
        page = None if arguments.no_report or not shown else _reported(shown, how.progress)
        if page is not None:
            refreshing.refresh_apart(how.results, how.progress)
        how.progress.done()
    text = runtext.outcomes_text([(o.path, o.manifest) for o in outcomes], page)
    console.tell_verdicts(text, stream=sys.stderr if arguments.json else sys.stdout)
    if arguments.json:
        summaries = [
            {**runtext.run_summary(o.manifest, o.path, outcome=o.manifest.outcome), "counts": o in last}
            for o in outcomes
        ]
        about = {"experiment": experiment.name, "runs": summaries, "report": str(page) if page else None}
        console.tell(json.dumps(about))
    status = exitcodes.gravest(one.status for one in last)
    if status == Exit.OK:
        options.tell_next(arguments, ["why", last[-1].manifest.run], "what makes its iterations slow")
    return status


def _reported(runs: Sequence[Path], progress: Progress) -> Path | None:
    """Make the report in a process of its own, whose memory is freed with it; a report that fails costs no results."""
    progress.phase("report")
    argv = [*options.ORCH, "report", *map(str, runs), "--results", str(runs[0].parents[1])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=REPORT_S, check=False)
    if done.returncode != 0:
        progress.say(f"  no report: {last_lines(done.stderr) or f'status {done.returncode}'}")
        return None
    return Path(done.stdout.splitlines()[-1])


def _submit(arguments: argparse.Namespace) -> int:
    """Submit this command by sbatch, after checking its file as far as possible without hosts."""
    from orchestrator.core.errors import ConfigError
    from orchestrator.experiment import loading
    from orchestrator.testbed.slurm.job import submit

    experiment, document = loading.load_experiment(arguments.file, arguments.overrides)
    if experiment.testbed.slurm is None:
        message = "its hosts are not those of an allocation; accepted: `testbed: {slurm: {network: 10.0.0.0/16}}`"
        raise ConfigError(f"{document.place(('testbed',))}: testbed: --sbatch: {message}")
    words = sys.argv[1 : next(place for place, word in enumerate(sys.argv) if word.startswith("--sb"))]
    job = submit([*options.ORCH, *words], arguments.sbatch, name=f"orch-{experiment.name}")
    print(f"submitted as job {job.id}; its output: {job.output}")
    return job.status


def _sweep_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch sweep`, beside those of experiments."""
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
    compare.add_rule(parser)


def _sweep(arguments: argparse.Namespace) -> int:
    """Carry out a sweep and print its results; return the exit code."""
    from orchestrator.core import where
    from orchestrator.core.errors import OrchError
    from orchestrator.execution.observers import metrics
    from orchestrator.experiment import sweepfile
    from orchestrator.report.site import refreshing
    from orchestrator.store import sweeps
    from orchestrator.sweep import choicetext, run_sweep, sweeptext

    if arguments.baseline:
        compare.rule_of(arguments)
        compare.require_baseline(arguments.results, arguments.baseline)
    how = options.of_runs(arguments)
    conditions = where.parse(arguments.where)
    definition = sweepfile.load(arguments.file, arguments.overrides, local=arguments.local)
    with options.observed(arguments) as observer:
        how = replace(how, observer=observer)
        outcome = run_sweep.carry_out(definition, how, new=arguments.new, conditions=conditions)
    out = sys.stderr if arguments.json else sys.stdout  # JSON stands alone on standard output
    console.tell_verdicts(sweeptext.summary_text(outcome.sweep, outcome.ledger, outcome.keys), stream=out)
    _tell_choices(definition, outcome, out)
    if outcome.runs_s:
        console.tell(sweeptext.cost_text(outcome.runs_s, outcome.measured_s), stream=out)
    if arguments.json:
        data = sweeptext.summary_data(outcome.sweep, outcome.ledger, outcome.keys)
        known = [choicetext.data(standing) for standing in outcome.standings]
        bends = [choicetext.bend_data(bend) for bend in outcome.bends]
        took = {"runs_s": outcome.runs_s, "measured_s": outcome.measured_s}
        console.tell(json.dumps({**data, "known": known, "bends": bends, **took}))
    if outcome.status == Exit.INTERRUPTED:
        console.tell(
            sweeptext.resume_text(f"sweep {outcome.sweep.id}", outcome.done, len(outcome.keys), new=arguments.new),
            stream=sys.stderr,
        )
    status = outcome.status
    try:
        if arguments.baseline and status != Exit.INTERRUPTED:
            status = compare.judge_sweep(
                arguments.results,
                arguments.baseline,
                outcome.sweep.id,
                rule=compare.rule_of(arguments),
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
    if outcome.status == Exit.OK and not arguments.baseline:
        options.tell_next(arguments, ["report", outcome.sweep.id], "its curves and tables on a page")
    return status


def _tell_choices(definition: Definition, outcome: SweepOutcome, out: TextIO) -> None:
    """Print why a sweep measured what it did, and write the page that says so."""
    from orchestrator.report import choices_page
    from orchestrator.sweep import choicetext

    for bend in outcome.bends:
        console.tell("\n".join([choicetext.bend(definition, bend), *choicetext.chosen(definition, bend)]), stream=out)
    for standing in outcome.standings:
        console.tell(choicetext.line(definition, standing), stream=out)
    if (page := choices_page.write(definition, outcome)) is not None:
        console.tell(str(page), stream=out)


def _plan_sweep(arguments: argparse.Namespace, definition: Definition) -> int:
    """Print every run of a sweep, and its estimated duration by earlier runs of the store; return the exit code."""
    from orchestrator.experiment import feasibility, seeds
    from orchestrator.sweep import run_sweep, sweepplan, sweeptext

    salt = seeds.given(arguments.seed) or seeds.PLANNED
    found = run_sweep.outlined(definition, arguments.results, salt)
    if arguments.json:
        print(json.dumps(sweeptext.plan_data(definition, found, salt), indent=1))
    else:
        print(sweeptext.plan_text(definition, found, salt))
    if arguments.detect:
        from orchestrator.sweep import detecting

        change = compare.share(arguments.detect, "--detect")
        planned = detecting.of_sweep(definition, arguments.results, change, estimate=found.fewest or found.estimate)
        _tell_detection(planned, as_json=arguments.json)
    return feasibility.tell(sweepplan.first_runs(found.batches))


def _tell_detection(planned: Detection, *, as_json: bool) -> None:
    """Print the detectable changes below a plan; beside a plan in JSON on standard error."""
    print(f"\n{planned.text()}", file=sys.stderr if as_json else sys.stdout)
