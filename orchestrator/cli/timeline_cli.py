"""`orch timeline`: writes what happened in a run, and when, as a trace that Perfetto opens."""

from __future__ import annotations

import argparse
from pathlib import Path


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch timeline`."""
    parser.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="the results store (results)"
    )
    parser.add_argument("run", metavar="RUN", help="a run's id or part of it, its folder, or 'last'")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="where it goes (default: timeline-RUN.json.gz beside the run)"
    )
    parser.set_defaults(action=_timeline)


def _timeline(arguments: argparse.Namespace) -> int:
    from orchestrator.report.run import timeline
    from orchestrator.report.runs import Run
    from orchestrator.store import rundir

    entry = rundir.find(arguments.results, arguments.run)
    output = arguments.output or entry.path.parent / f"timeline-{entry.run}.json.gz"
    print(timeline.write(Run(entry.path), output))
    return 0
