"""The `orch study` command: measured curves beside a paper's."""

from __future__ import annotations

import argparse
from pathlib import Path

from orchestrator.compare_cli import NAMES


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch study`."""
    parser.add_argument("study", choices=("salamy",), help="the paper: Salamy, MIT, 2022")
    parser.add_argument("of", metavar="WHAT", nargs="+", help=f"what was measured: {NAMES}")
    parser.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="the results store (results)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where the page goes (study-salamy.html)")
    parser.set_defaults(action=_study)


def _study(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis import curves, selection
    from orchestrator.report import study

    chosen = selection.choose(arguments.results, ",".join(arguments.of))
    output = arguments.output or Path(f"study-{arguments.study}.html")
    print(study.render(curves.measured(chosen.entries), output))
    for line in chosen.left_out:
        print(f"  not counted: {line}")
    return 0
