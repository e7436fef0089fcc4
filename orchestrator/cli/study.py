"""The commands `orch study` and `orch calibrate`: repeat a paper's measurements, and show both results."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.commands import Group
from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.screen import console

if TYPE_CHECKING:
    from orchestrator.execution.run_options import RunOptions
    from orchestrator.experiment.paperfile import Study
    from orchestrator.papers.answering import Paper
    from orchestrator.store.rundir import Entry

NO_TIMES: Mapping[str, float] = MappingProxyType({})

MEASURING = {
    "quick": "--quick",
    "sweeps": "--sweeps",
    "new": "--new",
    "overrides": "--set",
    "wait": "--wait",
    "local": "--local",
    "force": "--force",
    "seed": "--seed",
    "what": "--what",
}
OF_BUNDLES = ("quick", "sweeps", "overrides", "local")  # what a bundle says of how its runs are repeated


def register(group: Group) -> None:
    """Add `orch study` and `orch calibrate`."""
    study = group.add(
        "study",
        "measure what a paper measured, and show the results beside the paper's; without PAPER, list the papers",
        action=_study,
        example="orch study salamy --quick --wait 10min",
    )
    _study_options(study)

    calibrate = group.add(
        "calibrate",
        "fit the emulated compute times of a study's models to this machine; `orch study` does so first",
        action=_calibrate,
        example="orch calibrate salamy --quick",
    )
    _calibrate_options(calibrate)


def _study_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch study`."""
    parser.add_argument(
        "paper", nargs="?", metavar="PAPER", help="the paper, by name or folder, or a bundle (default: list all papers)"
    )
    parser.add_argument(
        "of",
        metavar="WHAT",
        nargs="*",
        help=f"measure nothing and show these results: {options.NAMES} (default: measure the study's sweeps)",
    )
    parser.add_argument("--quick", action="store_true", help="the short version of the study")
    parser.add_argument("--sweeps", metavar="NAME", help="other sweeps of the paper, such as cluster (default: full)")
    parser.add_argument("--what", action="store_true", help="measure nothing; print what would be measured")
    parser.add_argument("--new", action="store_true", help="start over instead of resuming the newest measurement")
    options.local(parser)
    options.overrides(parser)
    options.force(parser)
    options.wait(parser)
    options.quiet(parser)
    options.seed(parser)
    parser.add_argument("--bundle", type=Path, metavar="OUT.zip", help="pack the page with all that repeats it")
    parser.add_argument("--again", action="store_true", help="of a bundle: unpack its paper, and measure it here")
    options.results(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the page (study-PAPER.html, study-PAPER-quick.html)"
    )


def _calibrate_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch calibrate`."""
    parser.add_argument("paper", metavar="PAPER", help="the paper, by name or folder")
    parser.add_argument("--quick", action="store_true", help="only the models of the short version of the study")
    parser.add_argument("--sweeps", metavar="NAME", help="only the models of other sweeps of the paper")
    parser.add_argument("--new", action="store_true", help="fit models again that are fitted already")
    options.overrides(parser)
    options.force(parser)
    options.wait(parser)
    options.quiet(parser)
    options.results(parser)
    parser.set_defaults(local=False)


def _study(arguments: argparse.Namespace) -> int:
    """List papers, print a study's plan, measure its missing points, or render given runs; return the exit code."""
    if arguments.paper is None:
        return _listed(arguments)
    if arguments.paper.endswith(".zip"):
        return _of_bundle(arguments)
    if arguments.again:
        raise ConfigError(f"--again: {arguments.paper} is no bundle; accepted: a file that ends in .zip")
    if arguments.bundle is not None and arguments.what:
        raise ConfigError("--bundle, --what: nothing is measured; accepted: one of the two")
    if not arguments.of:
        return _said(arguments) if arguments.what else _measured(arguments)
    for name, option in MEASURING.items():
        if getattr(arguments, name) and not (arguments.bundle and name in OF_BUNDLES):
            raise ConfigError(
                f"{option}: nothing is measured when WHAT ({arguments.of[0]}) is named; accepted: one of the two"
            )
    _page(arguments, arguments.of, arguments.output or Path(f"study-{Path(arguments.paper).resolve().name}.html"))
    return 0


def _bundled(arguments: argparse.Namespace, paper: Paper, entries: Sequence[Entry]) -> None:
    """Write the bundle of a page."""
    from orchestrator.papers import bundle

    options = [word for value in arguments.overrides for word in ("--set", value)]
    options += ["--local"] if arguments.local else []
    options += ["--seed", arguments.seed] if arguments.seed else []
    print(bundle.write(paper, entries, arguments.bundle, version=_version(arguments), options=options))


def _of_bundle(arguments: argparse.Namespace) -> int:
    """Unpack a bundle and show its page, and measure it again when asked to; return the exit code."""
    from orchestrator.papers import bundle

    path = Path(arguments.paper)
    if arguments.of or arguments.bundle or (arguments.what and not arguments.again):
        raise ConfigError(f"{path}: is a bundle; accepted: alone, which shows it, or with --again, which measures it")
    about = bundle.about(path)
    into = (arguments.output if not arguments.again else None) or Path(path.stem)
    folder = bundle.unpacked(path, into)
    console.tell(f"{about.title}: {about.headline}\n{folder / bundle.PAGE}")
    if not arguments.again:
        console.tell(f"to measure it again: orch study {path} --again, or as {folder / bundle.README} says")
        return 0
    arguments.paper = str(folder / bundle.PAPER)
    arguments.sweeps, arguments.quick = about.version, False
    arguments.local = arguments.local or "--local" in about.options
    recorded = [value for option, value in itertools.pairwise(about.options) if option == "--set"]
    arguments.overrides = [*recorded, *arguments.overrides]
    salts = [value for option, value in itertools.pairwise(about.options) if option == "--seed"]
    arguments.seed = arguments.seed or next(iter(salts), None)
    return _measured(arguments)


def _version(arguments: argparse.Namespace) -> str:
    from orchestrator.experiment.paperfile import FULL, QUICK

    if arguments.sweeps and arguments.quick:
        raise ConfigError("--sweeps, --quick: accepted: one of the two")
    return arguments.sweeps or (QUICK if arguments.quick else FULL)


def _listed(arguments: argparse.Namespace) -> int:
    from orchestrator.experiment import paperfile
    from orchestrator.study import studytext

    for name, option in MEASURING.items():
        if getattr(arguments, name):
            raise ConfigError(f"{option}: no paper is named; accepted: {', '.join(paperfile.names())}")
    console.tell(studytext.listing(map(paperfile.read, map(paperfile.find, paperfile.names()))))
    return 0


def _said(arguments: argparse.Namespace) -> int:
    return _what(_loaded(arguments), arguments.results)


def _what(found: Study, results: Path) -> int:
    from orchestrator.experiment import feasibility
    from orchestrator.study import run_study, studytext

    console.tell(studytext.what_text(found, results))
    return feasibility.tell(run_study.first_runs(found))


def plan(arguments: argparse.Namespace, found: Study) -> int:
    """Print a summary of what a study would measure; return the exit code."""
    for name, option in (("json", "--json"), ("detect", "--detect"), ("verbose", "--verbose"), ("seed", "--seed")):
        if getattr(arguments, name):
            raise ConfigError(f"{option}: {arguments.file} is a paper; accepted: `orch plan` of one of its sweeps")
    return _what(found, arguments.results)


def _loaded(arguments: argparse.Namespace, compute_s: Mapping[str, float] = NO_TIMES) -> Study:
    """Read a version of a paper's sweeps, with these compute times; mistakes in its figures are told as well."""
    from orchestrator.experiment import paperfile
    from orchestrator.papers import reading

    document = paperfile.opened(paperfile.find(arguments.paper))
    reading.of_document(document)
    return paperfile.study(
        document, arguments.overrides, version=_version(arguments), local=arguments.local, compute_s=compute_s
    )


def _calibrate(arguments: argparse.Namespace) -> int:
    """Fit the compute of a study's models to this machine; return the exit code."""
    from orchestrator.study import calibrating

    found = _loaded(arguments)
    if found.calibration is None:
        raise ConfigError(
            f"study {found.name}: nothing to calibrate: no `calibrate` in its file, or its models have compute times"
        )
    how = options.of_runs(arguments)
    run = calibrating.runner(how)
    fitted = calibrating.carry_out(found.calibration, run=run, progress=how.progress, new=arguments.new)
    for model, one in fitted.items():
        console.tell(calibrating.text(model, one))
    console.tell(f"kept in {calibrating.path_of(found.calibration)}")
    return 0


def _calibrated(arguments: argparse.Namespace, how: RunOptions) -> Study:
    """Return the study with compute times of this machine, which are fitted first where they are missing."""
    from orchestrator.study import calibrating

    found = _loaded(arguments)
    if found.calibration is None:
        return found
    missing = found.calibration.iteration_s.keys() - calibrating.fitted_here(found.calibration).keys()
    if missing:
        how.progress.say(f"study {found.name}: compute of {', '.join(sorted(missing))} is fitted to this machine first")
    fitted = calibrating.carry_out(found.calibration, run=calibrating.runner(how), progress=how.progress)
    return _loaded(arguments, {model: one.compute_s for model, one in fitted.items()})


def _measured(arguments: argparse.Namespace) -> int:
    """Measure the missing points of a study, and write its page; return the exit code."""
    from orchestrator.study import run_study
    from orchestrator.sweep import sweeptext

    how = options.of_runs(arguments)
    found = _calibrated(arguments, how)
    outcome = run_study.carry_out(found, how, new=arguments.new)
    for one in outcome.sweeps:
        console.tell_verdicts(sweeptext.summary_text(one.sweep, one.ledger, one.keys))
    if outcome.runs_s:
        console.tell(sweeptext.cost_text(outcome.runs_s, outcome.measured_s))
    if outcome.status == Exit.INTERRUPTED:
        console.tell(
            sweeptext.resume_text(f"study {found.name}", outcome.done, outcome.total, new=arguments.new),
            stream=sys.stderr,
        )
        return outcome.status
    try:
        _page(arguments, [one.sweep.id for one in outcome.sweeps], arguments.output or Path(f"study-{found.name}.html"))
    except StoreError as error:
        console.tell(f"orch: {error}", stream=sys.stderr)
        return Exit.FAILED
    if outcome.status == Exit.OK and arguments.bundle is None:
        ids = [one.sweep.id for one in outcome.sweeps]
        packed = [arguments.paper, *ids, "--bundle", f"{found.name}.zip"]
        options.tell_next(arguments, ["study", *packed], "packs the page with all that repeats it")
    return outcome.status


def _page(arguments: argparse.Namespace, of: list[str], output: Path) -> None:
    from orchestrator.analysis.compare import selection
    from orchestrator.experiment import paperfile
    from orchestrator.papers import page, reading

    paper = reading.paper(paperfile.find(arguments.paper))
    chosen = selection.choose(arguments.results, ",".join(of))
    shown = page.render(paper, chosen.entries, output)
    console.tell(f"{shown.path}\n  {shown.headline}")
    for line in chosen.left_out:
        print(f"  not counted: {line}")
    if arguments.bundle is not None:
        _bundled(arguments, paper, chosen.entries)
