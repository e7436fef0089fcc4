"""Options that several commands take, each defined once."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.execution.observers.observing import Observer
    from orchestrator.store.listing import Filter

RUN = "a run's id or part of it, its folder, or 'last'"
TESTBED = "an inventory or experiment file; default: this machine"


def results(parser: argparse.ArgumentParser) -> None:
    """Where results are written, or changed: a folder."""
    parser.add_argument(
        "--results", type=_folder, default=Path("results"), metavar="DIR", help="the results folder (results)"
    )


def results_to_read(parser: argparse.ArgumentParser) -> None:
    """Where results are read: a folder, or the URL of a store elsewhere; a text in any case."""
    parser.add_argument(
        "--results",
        default="results",
        metavar="DIR",
        help="the results folder (results), or a URL such as s3://bucket/results",
    )


def _folder(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text}: not a folder; ls, show, report, query, export and history read URLs")
    return Path(text)


def experiment(parser: argparse.ArgumentParser, what: str) -> None:
    """A file to be carried out, and how it is changed and reported."""
    parser.add_argument("file", type=Path, metavar="FILE", help=what)
    local(parser)
    overrides(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output, last")


def local(
    parser: argparse.ArgumentParser, text: str = "run on hosts made on this machine, not on an inventory or Slurm"
) -> None:
    """Hosts of this machine in place of those that the file names."""
    parser.add_argument(
        "--local",
        "--dry-run",
        action="store_true",
        help=f"{text}: a real run, with rates and sizes divided by the scale, by either name of this option; what runs "
        "nothing is `orch plan`",
    )


def overrides(parser: argparse.ArgumentParser) -> None:
    """Values that replace those of the file."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="replace one value of the experiment, such as measure.iterations=50; may be repeated",
    )


def wait(parser: argparse.ArgumentParser) -> None:
    """Patience with a testbed that is in use."""
    parser.add_argument(
        "--wait",
        metavar="TIME",
        help="wait until a testbed in use is free, at most this long, such as 10min (default: do not wait)",
    )


def force(parser: argparse.ArgumentParser) -> None:
    """Measuring on machines that are too small."""
    parser.add_argument(
        "--force", action="store_true", help="start even if there are too few processors or too little memory"
    )


def metrics(parser: argparse.ArgumentParser) -> None:
    """Live metrics."""
    parser.add_argument(
        "--metrics",
        metavar="[ADDRESS:]PORT",
        help="serve live metrics for Prometheus on this port; without ADDRESS on the loopback address",
    )


def observed(arguments: argparse.Namespace) -> AbstractContextManager[Observer | None]:
    """What serves the metrics that the option of `metrics` asks for; nothing without it."""
    if arguments.metrics is None:
        return nullcontext()
    from orchestrator.execution.observers import metrics

    return metrics.served(arguments.metrics)


def filters(parser: argparse.ArgumentParser) -> None:
    """Which runs of the store are meant."""
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="only runs that meet this condition, such as load<=8gbit or model=vgg16; may be repeated",
    )
    parser.add_argument("--experiment", metavar="NAME", help="only runs of this experiment (or sweep)")
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="only runs begun since this time, such as 2026-11-20, 2026-11-20T18:00, or 12h or 7d (ago)",
    )
    parser.add_argument("--valid", action="store_true", help="only valid runs")


def filter_of(arguments: argparse.Namespace) -> Filter:
    """The filter that the options of `filters` make."""
    from orchestrator.store.listing import Filter

    return Filter(
        where=tuple(arguments.where), experiment=arguments.experiment, since=arguments.since, valid=arguments.valid
    )
