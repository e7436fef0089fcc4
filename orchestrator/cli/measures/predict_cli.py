"""The `orch predict` command: how long an iteration takes, before it is measured, and beside what was measured."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from orchestrator.cli import options

MORE = """\
Works for ddp (emulated compute) and ptd, without cross traffic. Compute times
come from the file; costs of communication come from runs of `collective` in the
results folder, or are assumed. Each is listed with its source. KEY of
--what-if is an option of the workload (mapping, bucket, batch, ...), or
  link         the rate of all links, such as 100gbit
  accelerator  peak rate and the share of it that is used, such as 71tflops@30%;
               they give the compute time
  ptd          p x t x d with the same samples, such as 2x2x2, or all that fit
or a path as for --set."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch predict`."""
    options.experiment(parser, "an experiment file")
    options.results(parser)
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="KEY=VALUE[,VALUE...]",
        dest="what_if",
        help="predict with these values, too; if repeated, with every combination of them",
    )
    parser.add_argument(
        "--inputs",
        action="append",
        default=[],
        metavar="RUN",
        help="fit the costs of communication to this run of `collective` (default: all of them on a testbed like this)",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="also draw the predictions, as FILE.svg and FILE.pdf"
    )


def predict(arguments: argparse.Namespace) -> int:
    """Predict every setting, look for runs of them, and print both."""
    from orchestrator.predict import inputs, measured_runs, predicting, predicttext, whatif
    from orchestrator.predict.predicttext import PredictedSetting

    axes = whatif.axes(arguments.what_if)
    wanted = whatif.settings(arguments.file, arguments.overrides, axes, local=arguments.local)
    subjects = [predicting.subject(one.experiment, file=str(arguments.file)) for one in wanted]
    costs = inputs.costs(arguments.results, subjects[0].topology, named=arguments.inputs)
    measured = measured_runs.find(arguments.results, subjects)
    found = [
        PredictedSetting(
            label=setting.label,
            prediction=predicting.predict(subject, costs),
            measured=measured.get(measured_runs.key(subject)),
        )
        for setting, subject in zip(wanted, subjects, strict=True)
    ]
    if arguments.json:
        print(json.dumps(predicttext.data(found, costs), indent=1))
    else:
        print(predicttext.text(found, costs))
    if arguments.output is not None:
        from orchestrator.report import predicted_settings

        print(predicted_settings.write(found, arguments.output))
    return 0
