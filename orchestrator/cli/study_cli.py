"""The `orch study` command: measures the curves of a paper, and shows them beside the paper's own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from orchestrator.cli import options
from orchestrator.cli.compare_cli import NAMES
from orchestrator.core import console
from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.core.exitcodes import Exit

MEASURING = {
    "quick": "--quick",
    "new": "--new",
    "overrides": "--set",
    "wait": "--wait",
    "local": "--local",
    "file": "--file",
    "force": "--force",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch study`."""
    parser.add_argument("study", choices=("salamy",), help="the paper: Salamy, MIT, 2022")
    parser.add_argument(
        "of",
        metavar="WHAT",
        nargs="*",
        help=f"measure nothing and show this: {NAMES} (default: measure the study's sweeps)",
    )
    parser.add_argument("--quick", action="store_true", help="the short version of the study")
    parser.add_argument("--new", action="store_true", help="start over instead of resuming the newest")
    options.local(parser)
    options.overrides(parser)
    options.force(parser)
    options.wait(parser)
    parser.add_argument("--file", type=Path, metavar="FILE", help="another study file (playbooks/studies/STUDY.yaml)")
    options.results(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the page (study-salamy.html, study-salamy-quick.html)"
    )


def study(arguments: argparse.Namespace) -> int:
    """Measure what is missing of a study and render its page, or render given runs; gives the exit code."""
    if not arguments.of:
        return _measured(arguments)
    for name, option in MEASURING.items():
        if getattr(arguments, name):
            raise ConfigError(
                f"{option}: nothing is measured when WHAT ({arguments.of[0]}) is named; accepted: one of the two"
            )
    _page(arguments.of, arguments.results, arguments.output or Path(f"study-{arguments.study}.html"))
    return 0


def _measured(arguments: argparse.Namespace) -> int:
    """Measure what is missing of a study, and write its page; gives the exit code."""
    from orchestrator.experiment import studyfile
    from orchestrator.run import execute
    from orchestrator.run.observers.progress import Progress
    from orchestrator.study import run_study
    from orchestrator.sweep import sweeptext

    wait_s = execute.patience(arguments.wait)
    path = arguments.file or studyfile.find(arguments.study)
    found = studyfile.load(path, arguments.overrides, quick=arguments.quick, local=arguments.local)
    outcome = run_study.carry_out(
        found, results=arguments.results, new=arguments.new, wait_s=wait_s, progress=Progress(), force=arguments.force
    )
    for one in outcome.sweeps:
        console.tell(sweeptext.summary_text(one.sweep, one.ledger, one.keys))
    if outcome.runs_s:
        console.tell(sweeptext.cost_text(outcome.runs_s, outcome.measured_s))
    if outcome.status == Exit.INTERRUPTED:
        console.tell(
            sweeptext.resume_text(f"study {found.name}", outcome.done, outcome.total, new=arguments.new),
            stream=sys.stderr,
        )
        return outcome.status
    try:
        _page(
            [one.sweep.id for one in outcome.sweeps],
            arguments.results,
            arguments.output or Path(f"study-{found.name}.html"),
        )
    except StoreError as error:
        console.tell(f"orch: {error}", stream=sys.stderr)
        return Exit.FAILED
    return outcome.status


def _page(of: list[str], results: Path, output: Path) -> None:
    from orchestrator.analysis.compare import selection
    from orchestrator.report.study import study_page

    chosen = selection.choose(results, ",".join(of))
    print(study_page.render(chosen.entries, output))
    for line in chosen.left_out:
        print(f"  not counted: {line}")
