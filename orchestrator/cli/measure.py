"""The commands that measure: `orch plan`, `predict`, `run`, `sweep`, `study` and `calibrate`."""

from __future__ import annotations

import argparse
import json
import sys

from orchestrator.cli import options
from orchestrator.cli.commands import Commands
from orchestrator.cli.measures import predict_cli, study_cli, sweep_cli
from orchestrator.cli.results import compare_cli


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
    from orchestrator.experiment import loading
    from orchestrator.experiment.plans import beforehand, plan, plandata
    from orchestrator.experiment.series.studyfile import Study
    from orchestrator.experiment.series.sweepfile import Definition
    from orchestrator.experiment.words import plantext
    from orchestrator.testbed.inventory import Inventory

    found = loading.opened(arguments.file, arguments.overrides, local=arguments.local)
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
        variables = plandata.variables_data(document.variables)
        print(json.dumps({"variables": variables, "runs": [plandata.plan_data(run) for run in runs]}, indent=1))
    else:
        print(plantext.variables_text(document.variables, width=layout.columns()), end="")
        print(plantext.plan_text(runs, verbose=arguments.verbose, width=layout.columns()))
    if arguments.detect:
        from orchestrator.sweep import detecting

        change = compare_cli.share(arguments.detect, "--detect")
        planned = detecting.of_experiment(experiment.name, arguments.results, change)
        sweep_cli.tell_detection(planned, as_json=arguments.json)
    return beforehand.tell(runs[:1])


def _run(arguments: argparse.Namespace) -> int:
    from orchestrator.execution import execute

    if arguments.sbatch is not None:
        return _submit(arguments)
    with options.observed(arguments) as observer:
        return execute.run_file(
            arguments.file,
            local=arguments.local,
            overrides=arguments.overrides,
            results=arguments.results,
            wait=arguments.wait,
            as_json=arguments.json,
            report=not arguments.no_report,
            force=arguments.force,
            observer=observer,
        )


def _submit(arguments: argparse.Namespace) -> int:
    """Hand this command to sbatch, once its file is seen to be right as far as that shows without hosts."""
    from orchestrator.core.errors import ConfigError
    from orchestrator.experiment import config
    from orchestrator.testbed.slurm.job import submit

    experiment, document = config.load_experiment(arguments.file, arguments.overrides)
    if experiment.testbed.slurm is None:
        message = "its hosts are not those of an allocation; accepted: `testbed: {slurm: {network: 10.0.0.0/16}}`"
        raise ConfigError(f"{document.place(('testbed',))}: testbed: --sbatch: {message}")
    words = sys.argv[1 : next(place for place, word in enumerate(sys.argv) if word.startswith("--sb"))]
    job = submit(words, arguments.sbatch, name=f"orch-{experiment.name}")
    print(f"submitted as job {job.id}; its output: {job.output}")
    return job.status
