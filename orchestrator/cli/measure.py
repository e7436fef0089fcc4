"""The commands that measure: `orch plan`, `predict`, `run`, `sweep`, `study` and `calibrate`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.commands import Commands
from orchestrator.cli.measures import predict_cli, study_cli, sweep_cli
from orchestrator.cli.results import compare_cli
from orchestrator.core.errors import Interrupted, last_lines
from orchestrator.core.exitcodes import Exit
from orchestrator.core.screen import console

if TYPE_CHECKING:
    from orchestrator.execution.observers.progress import Progress
    from orchestrator.execution.runner import Outcome

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
    plan.add_argument("--verbose", action="store_true", help="list each process by itself, with environment and files")

    predict = group.add(
        "predict",
        "predict how long iterations take, part by part (computing, traffic, ...), beside measured runs",
        action=predict_cli.predict,
        example="orch predict exp.yaml --what-if link=25gbit,100gbit --what-if mapping=default,customized",
        more=predict_cli.MORE,
    )
    predict_cli.add_options(predict)

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
        action=sweep_cli.sweep,
        example="orch sweep load.yaml --local --where 'load<=8gbit'",
    )
    options.experiment(sweep, "a sweep file")
    _measuring(sweep)
    sweep_cli.add_options(sweep)

    study = group.add(
        "study",
        "measure what a paper measured, and show the results beside the paper's; without PAPER, list the papers",
        action=study_cli.study,
        example="orch study salamy --quick --wait 10min",
    )
    study_cli.add_options(study)

    calibrate = group.add(
        "calibrate",
        "fit the emulated compute times of a study's models to this machine; `orch study` does so first",
        action=study_cli.calibrate,
        example="orch calibrate salamy --quick",
    )
    study_cli.add_calibrate_options(calibrate)


def _measuring(parser: argparse.ArgumentParser) -> None:
    options.results(parser)
    options.wait(parser)
    options.metrics(parser)
    options.force(parser)


def _plan(arguments: argparse.Namespace) -> int:
    from orchestrator.core.errors import ConfigError
    from orchestrator.core.screen import layout
    from orchestrator.experiment import feasibility, opening, plan, plantext
    from orchestrator.experiment.studyfile import Study
    from orchestrator.experiment.sweepfile import Definition
    from orchestrator.testbed.inventory import Inventory

    found = opening.open_file(arguments.file, arguments.overrides, local=arguments.local)
    if isinstance(found, Inventory):
        message = f"{arguments.file}: is an inventory, without mistakes and with nothing to plan"
        raise ConfigError(message, hint=f"orch doctor {arguments.file} looks at its hosts")
    if isinstance(found, Study):
        return study_cli.plan(arguments, found)
    if isinstance(found, Definition):
        return sweep_cli.plan(arguments, found)
    experiment, document = found
    runs = plan.build(experiment)
    if arguments.json:
        variables = plan.variables_data(document.variables)
        print(json.dumps({"variables": variables, "runs": [plan.plan_data(run) for run in runs]}, indent=1))
    else:
        print(plantext.variables_text(document.variables, width=layout.columns()), end="")
        print(plantext.plan_text(runs, verbose=arguments.verbose, width=layout.columns()))
    if arguments.detect:
        from orchestrator.sweep import detecting

        change = compare_cli.share(arguments.detect, "--detect")
        planned = detecting.of_experiment(experiment.name, arguments.results, change)
        sweep_cli.tell_detection(planned, as_json=arguments.json)
    return feasibility.tell(runs[:1])


def _run(arguments: argparse.Namespace) -> int:
    """Carry out every run of an experiment file, have the report made, and print what came of it."""
    if arguments.sbatch is not None:
        return _submit(arguments)
    from orchestrator.core import exitcodes
    from orchestrator.execution import execute
    from orchestrator.experiment import loading, runtext
    from orchestrator.report.site import refreshing

    with options.observed(arguments) as observer:
        how = options.of_runs(arguments, observer)
        experiment, _ = loading.checked(arguments.file, arguments.overrides, local=arguments.local)
        outcomes = execute.carry_out(experiment, how)
        last = execute.last_tries(outcomes)
        shown = [outcome.path for outcome in outcomes if outcome.sealed and outcome.manifest.windows]
        page = None if arguments.no_report or not shown else _reported(shown, how.progress)
        if page is not None:
            refreshing.refresh_apart(how.results, how.progress)
        how.progress.done()
    text = runtext.outcomes_text([(o.path, o.manifest) for o in outcomes], page)
    console.tell(text, stream=sys.stderr if arguments.json else sys.stdout)
    if arguments.json:
        summaries = [
            {**runtext.run_summary(o.manifest, o.path, outcome=o.manifest.outcome), "counts": o in last}
            for o in outcomes
        ]
        about = {"experiment": experiment.name, "runs": summaries, "report": str(page) if page else None}
        console.tell(json.dumps(about))
    return exitcodes.gravest(map(_status, last))


def _reported(runs: Sequence[Path], progress: Progress) -> Path | None:
    """Have the report made by a process of its own, whose memory goes with it; a report that fails costs no results."""
    progress.phase("report")
    argv = [*options.ORCH, "report", *map(str, runs), "--results", str(runs[0].parents[1])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=REPORT_S, check=False)
    if done.returncode != 0:
        progress.say(f"  no report: {last_lines(done.stderr) or f'status {done.returncode}'}")
        return None
    return Path(done.stdout.splitlines()[-1])


def _status(outcome: Outcome) -> Exit:
    if outcome.error is not None:
        return Exit.INTERRUPTED if isinstance(outcome.error, Interrupted) else Exit.FAILED
    return Exit.OK if outcome.valid else Exit.INCONCLUSIVE


def _submit(arguments: argparse.Namespace) -> int:
    """Hand this command to sbatch, once its file is seen to be right as far as that shows without hosts."""
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
