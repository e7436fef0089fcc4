"""Options that several commands take, each defined once."""

from __future__ import annotations

import argparse
import io
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigError
from orchestrator.core.paths import safepath
from orchestrator.core.screen import console

if TYPE_CHECKING:
    from orchestrator.execution.observers.observing import Observer
    from orchestrator.execution.run_options import RunOptions
    from orchestrator.store.listing import Filter

_DAYS = re.compile(r"([0-9]+(?:\.[0-9]+)?) *d")
RUN = "a run's id or part of it, its folder, or 'last'; a name as for `orch report` where that has one run"
RUNS = (
    "runs' ids, or parts of them, folders, or 'last'; a sweep (its newest instance), an experiment (its newest day),"
    " a baseline, or NAME@DATE (UTC)"
)
NAMES = "a run, its folder, a sweep, an experiment, a baseline, NAME@DATE (UTC), or several separated by commas"
WRITTEN = (
    "output",
    "plot",
    "parquet",
    "report",
    "html",
    "markdown",
    "junit",
    "metrics_file",
    "bundle",
    "anonymous",
)  # options that name files to write
ORCH = (sys.executable, "-m", "orchestrator.cli.main")  # the command line of a further `orch`
TESTBED = "an inventory or experiment file; default: this machine"


def make_folders(arguments: argparse.Namespace) -> None:
    """Make the folders of the files that a command is to write; ConfigError where that cannot be done."""
    for name in WRITTEN:
        path = getattr(arguments, name, None)
        if isinstance(path, Path):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                option = "--" + name.replace("_", "-")
                raise ConfigError(
                    f"{option} {path}: its folder cannot be made: {error.filename}: {error.strerror}"
                ) from None


def results(parser: argparse.ArgumentParser) -> None:
    """Add the option of the folder where results are written, or changed."""
    parser.add_argument(
        "--results", type=_folder, default="results", metavar="DIR", help="the results folder (results)"
    )


def results_to_read(parser: argparse.ArgumentParser) -> None:
    """Add the option of where results are read: a folder, or the URL of a store elsewhere, as text."""
    parser.add_argument(
        "--results",
        type=_readable,
        default="results",
        metavar="DIR",
        help="the results folder (results), or a URL such as s3://bucket/results",
    )


def _folder(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text}: not a folder; ls, show, report, query, export and history read URLs")
    return Path(_readable(text))


def _readable(text: str) -> str:
    """Return a path or URL as it is given, if it can be encoded as text: else argparse names the option."""
    if not safepath.is_text(text):
        raise argparse.ArgumentTypeError(f"{text}: the path to it is not text in UTF-8; rename it")
    return text


def _file(text: str) -> Path:
    return Path(_readable(text))


def testbeds(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option of testbeds by which runs' hosts are reached again; a run's folder is never used for that."""
    parser.add_argument(
        "--testbed",
        type=Path,
        metavar="FILE",
        action="append",
        default=[],
        dest="testbeds",
        help=f"the inventory, experiment or sweep file by which {what}; may be repeated",
    )


def experiment(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the argument of a file to carry out, and options that change it and its report."""
    parser.add_argument("file", type=_file, metavar="FILE", help=what)
    local(parser)
    overrides(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output, last")


def local(
    parser: argparse.ArgumentParser, text: str = "run on hosts made on this machine, not on an inventory or Slurm"
) -> None:
    """Add the option that puts local hosts in place of those that the file names."""
    parser.add_argument(
        "--local",
        "--dry-run",
        action="store_true",
        help=f"{text}: a real run, with rates and sizes divided by the scale, by either name of this option; what runs "
        "nothing is `orch plan`",
    )


def overrides(parser: argparse.ArgumentParser) -> None:
    """Add the option of values that replace those of the file."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="replace one value of the experiment, such as measure.iterations=50; may be repeated",
    )


def age(text: str | None, option: str, example: str) -> float | None:
    """Return the age that an option gives, which may be in days, in seconds; None where it is left out."""
    from orchestrator.core.fields import Duration

    if text is not None and (days := _DAYS.fullmatch(text)):
        return float(days[1]) * 86400.0
    return quantity(text, option, Duration, example)


def quantity(text: str | None, option: str, kind: Any, example: str) -> float | None:
    """Return the quantity that an option gives with a unit, in SI units.

    Return None where it is left out; ConfigError for no such quantity.
    """
    from pydantic import TypeAdapter, ValidationError

    if text is None:
        return None
    try:
        return float(TypeAdapter(kind).validate_python(text))
    except ValidationError:
        raise ConfigError(f"{option}: {text!r}: accepted: a number and its unit, such as {example}") from None


def wait(parser: argparse.ArgumentParser) -> None:
    """Add the option of how long to wait for a testbed that is in use."""
    parser.add_argument(
        "--wait",
        metavar="TIME",
        help="wait until a testbed in use is free, at most this long, such as 10min (default: do not wait)",
    )


def force(parser: argparse.ArgumentParser) -> None:
    """Add the option to measure on machines that are too small."""
    parser.add_argument(
        "--force", action="store_true", help="start even if there are too few processors or too little memory"
    )


def seed(
    parser: argparse.ArgumentParser, text: str = "repeat the random numbers of a run: its salt, which `orch show` tells"
) -> None:
    """Add the option of the salt from which all random numbers of runs follow."""
    parser.add_argument("--seed", metavar="SALT", help=f"{text}; any other word does, too (default: a new one)")


def quiet(parser: argparse.ArgumentParser) -> None:
    """Add the option to print results alone."""
    parser.add_argument("--quiet", action="store_true", help="print the results and what fails, without progress")


def tell_next(arguments: argparse.Namespace, command: Sequence[str], why: str) -> None:
    """Print on standard error the command that goes on from here, and why; not where results alone are asked for."""
    if getattr(arguments, "quiet", False) or getattr(arguments, "json", False):
        return
    of_results = () if str(arguments.results) == "results" else ("--results", str(arguments.results))
    console.tell(f"next: {shlex.join(['orch', *command, *of_results])}  ({why})", stream=sys.stderr)


def metrics(parser: argparse.ArgumentParser) -> None:
    """Add the option of live metrics."""
    parser.add_argument(
        "--metrics",
        metavar="[ADDRESS:]PORT",
        help="serve live metrics for Prometheus on this port; without ADDRESS on the loopback address",
    )


def of_runs(arguments: argparse.Namespace, observer: Observer | None = None) -> RunOptions:
    """Return the run options from the arguments of `results`, `wait`, `force`, and of `seed` and `quiet` if given."""
    from orchestrator.execution.observers.progress import Progress
    from orchestrator.execution.run_options import RunOptions, wait_seconds
    from orchestrator.experiment import seeds
    from orchestrator.report.site import refreshing

    return RunOptions(
        results=arguments.results,
        wait_s=wait_seconds(arguments.wait),
        force=arguments.force,
        salt=seeds.given(getattr(arguments, "seed", None)),
        progress=Progress(io.StringIO() if getattr(arguments, "quiet", False) else None),
        observer=observer,
        after_run=refreshing.refresh_apart,
    )


def observed(arguments: argparse.Namespace) -> AbstractContextManager[Observer | None]:
    """Serve the metrics that the option of `metrics` asks for; nothing without it."""
    if arguments.metrics is None:
        return nullcontext()
    from orchestrator.execution.observers import metrics

    return metrics.served(arguments.metrics)


def filters(parser: argparse.ArgumentParser) -> None:
    """Add the options that select runs of the store."""
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
    """Return the filter that the options of `filters` make."""
    from orchestrator.store.listing import Filter

    return Filter(
        where=tuple(arguments.where), experiment=arguments.experiment, since=arguments.since, valid=arguments.valid
    )
