"""The `orch study` command: measures the curves of a paper, and shows them beside the paper's own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from orchestrator.cli.compare_cli import NAMES
from orchestrator.core import console
from orchestrator.core.errors import ConfigError, Interrupted, StoreError

MEASURING = {"quick": "--quick", "new": "--new", "overrides": "--set", "wait": "--wait", "dry_run": "--dry-run",
             "file": "--file", "force": "--force"}  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch study`."""
    parser.add_argument("study", choices=("salamy",), help="the paper: Salamy, MIT, 2022")
    parser.add_argument(
        "of", metavar="WHAT", nargs="*", help=f"measure nothing, show this: {NAMES}; default: the study's own sweeps"
    )
    parser.add_argument("--quick", action="store_true", help="the short version of the study")
    parser.add_argument("--new", action="store_true", help="begin anew, rather than go on with the newest one")
    parser.add_argument("--dry-run", action="store_true", help="on containers of this machine instead of the inventory")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="replace one value of every experiment in it; may be repeated")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="start even where processors or memory are too few")
    parser.add_argument("--wait", metavar="TIME", help="wait so long for a testbed that somebody else holds (10min)")
    parser.add_argument("--file", type=Path, metavar="FILE", help="another study file (playbooks/studies/STUDY.yaml)")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="the results store (results)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE",
                        help="where the page goes (study-salamy.html, study-salamy-quick.html)")  # fmt: skip
    parser.set_defaults(action=_study)


def _study(arguments: argparse.Namespace) -> int:
    if not arguments.of:
        return _measured(arguments)
    for name, option in MEASURING.items():
        if getattr(arguments, name):
            raise ConfigError(
                f"{option}: with {arguments.of[0]} named, nothing is measured; accepted: one or the other"
            )
    _page(arguments.of, arguments.results, arguments.output or Path(f"study-{arguments.study}.html"))
    return 0


def _measured(arguments: argparse.Namespace) -> int:
    """Measure what is missing of a study, and write its page; gives the exit status."""
    from orchestrator.experiment import studyfile
    from orchestrator.run import execute
    from orchestrator.run.observers.progress import Progress
    from orchestrator.study import run_study
    from orchestrator.sweep import run_sweep, sweeptext

    wait_s = execute.patience(arguments.wait)
    path = arguments.file or studyfile.find(arguments.study)
    found = studyfile.load(path, arguments.overrides, quick=arguments.quick, dry_run=arguments.dry_run)
    outcome = run_study.carry_out(
        found, results=arguments.results, new=arguments.new, wait_s=wait_s, progress=Progress(), force=arguments.force
    )
    for one in outcome.sweeps:
        console.tell(sweeptext.summary_text(one.sweep, one.ledger, one.keys))
    if outcome.runs_s:
        share = outcome.measured_s / outcome.runs_s
        console.tell(f"the runs took {sweeptext.time_text(outcome.runs_s)}, {share:.1%} of it measured windows")
    if outcome.status == Interrupted.exit_code:
        console.tell("interrupted: the same command goes on from here", stream=sys.stderr)
        return outcome.status
    try:
        _page([one.sweep.id for one in outcome.sweeps], arguments.results,
              arguments.output or Path(f"study-{found.name}.html"))  # fmt: skip
    except StoreError as error:
        console.tell(f"orch: {error}", stream=sys.stderr)
        return run_sweep.FAILED
    return outcome.status


def _page(of: list[str], results: Path, output: Path) -> None:
    from orchestrator.analysis.compare import selection
    from orchestrator.report.study import study_page

    chosen = selection.choose(results, ",".join(of))
    print(study_page.render(chosen.entries, output))
    for line in chosen.left_out:
        print(f"  not counted: {line}")
