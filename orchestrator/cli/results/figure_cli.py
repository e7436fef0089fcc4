"""The command `orch figure`: one quantity over one axis, drawn and as tables, for a paper."""

from __future__ import annotations

import argparse
from pathlib import Path

from orchestrator.cli import options
from orchestrator.cli.commands import Group

_OF_FLOWS = ("completion-times", "slowdown")
MORE = """\
WHAT is iteration-time (the median), mean-iteration-time, p99-iteration-time or
sent-bytes, each --over an axis: load, a setting by the end of its path, such
as ddp.batch, or a variable that is an axis of the sweep; or completion-times
or slowdown of cross traffic, by the size of flows. Runs that were set
differently in anything but the axes are refused; the error says in what."""


def register(group: Group) -> None:
    """Add `orch figure`."""
    from orchestrator.cli.results.compare_cli import NAMES

    figure = group.add(
        "figure",
        "draw one quantity over one axis with intervals over runs, and write its table",
        action=_figure,
        example="orch figure iteration-time load --over load --series traffic -o figures/load",
        more=MORE,
    )
    figure.add_argument("what", metavar="WHAT", help="the quantity")
    figure.add_argument("of", metavar="OF", help=f"the runs: {NAMES}")
    figure.add_argument("--over", metavar="AXIS", help="the x axis (default: load)")
    figure.add_argument("--series", metavar="AXIS", default="", help="a curve for each value of this setting")
    figure.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="only windows that meet this condition, such as load<=8gbit or model=vgg16; may be repeated",
    )
    figure.add_argument(
        "-o", "--output", type=Path, metavar="STEM", help="STEM.svg, .pdf, .csv and .tex (default: WHAT)"
    )
    options.results(figure)


def _figure(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis.compare import selection
    from orchestrator.core import where
    from orchestrator.core.errors import ConfigError
    from orchestrator.report.figure import curves, drawing, flow_times

    conditions = where.parse(arguments.where)
    found: curves.Figure | flow_times.FlowTimes
    if arguments.what in _OF_FLOWS:
        if arguments.over:
            raise ConfigError(f"--over: {arguments.what} is drawn over the size of flows; accepted: --series AXIS")
        found = flow_times.flow_times(
            selection.choose(arguments.results, arguments.of),
            slowdown=arguments.what == "slowdown",
            series=arguments.series,
            conditions=conditions,
        )
    else:
        wanted = curves.quantity_named(arguments.what)
        found = curves.figure(
            selection.choose(arguments.results, arguments.of),
            wanted,
            over=arguments.over or "load",
            series=arguments.series,
            conditions=conditions,
        )
    stem = arguments.output or Path(arguments.what)
    for path in drawing.write(found, stem):
        print(path)
    for line in found.common.left_out:
        print(f"  not counted: {line}")
    return 0
