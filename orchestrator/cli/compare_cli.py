"""The `orch compare`, `orch baseline` and `orch history` commands: whether it got slower, against what, since when."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.analysis.compare.comparing import Comparison
    from orchestrator.analysis.compare.regression import Rule

NAMES = "a run, its folder, a sweep, an experiment, a baseline, NAME@DATE (UTC), or several with commas between"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch compare`."""
    parser.add_argument("a", metavar="A", help=f"the reference: {NAMES}")
    parser.add_argument("b", metavar="B", help="what is judged, named likewise")
    _results(parser)
    rule_options(parser)
    output_options(parser)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.set_defaults(action=_compare)


def rule_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say when a difference counts."""
    parser.add_argument("--margin", default="2%", metavar="SHARE", help="smallest change of the median (2%%)")
    parser.add_argument("--margin-p99", default="10%", metavar="SHARE", help="smallest change of the p99 (10%%)")
    parser.add_argument("--alpha", default="5%", metavar="SHARE",
                        help="chance that equal runs raise any alarm, over all points (5%%)")  # fmt: skip


def output_options(parser: argparse.ArgumentParser) -> None:
    """Add the files that a comparison can be written to."""
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the history of every point")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write Markdown")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML, a test case a point")


def baseline_options(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of `orch baseline`."""
    commands = parser.add_subparsers(dest="baseline", metavar="COMMAND", required=True)
    sub = commands.add_parser("set", help="remember runs under a name", description="Remember runs under a name.")
    sub.add_argument("name", metavar="NAME", help="the baseline's name, such as main")
    sub.add_argument("of", metavar="WHAT", nargs="+", help=f"what it holds: {NAMES}; several nights make it steadier")
    _results(sub)
    sub.set_defaults(action=_set)
    sub = commands.add_parser("ls", help="list the baselines", description="List the baselines.")
    _results(sub)
    sub.set_defaults(action=_list)


def history_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch history`."""
    parser.add_argument("name", metavar="NAME", help="a sweep or an experiment")
    _results(parser)
    parser.add_argument("--margin", default="2%", metavar="SHARE", help="smallest step of the median (2%%)")
    parser.add_argument("--alpha", default="5%", metavar="SHARE", help="chance of any false step (5%%)")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.set_defaults(action=_history)


def sweep_options(parser: argparse.ArgumentParser) -> None:
    """Add what a sweep that is to be judged takes."""
    parser.add_argument("--baseline", metavar="NAME", help="compare with this baseline when all is measured")
    rule_options(parser)


def require_baseline(results: Path, name: str) -> None:
    """Raise StoreError where a night could not be judged, before it is measured."""
    from orchestrator.analysis.compare import selection

    selection.of_baseline(results, name)


def judge_sweep(arguments: argparse.Namespace, *, sweep: str, folder: Path, status: int) -> int:
    """Compare a sweep with `arguments.baseline`, print the summary, and leave it in the sweep's folder in every form.

    `status` is how the sweep itself ended. A worse point outranks it; where the sweep was well, the verdict decides.
    """
    from orchestrator.analysis.compare import comparing
    from orchestrator.report.compare import comparison as shown

    files = {name: folder / name for name in ("verdict.html", "summary.md", "junit.xml", "verdict.json")}
    arguments.html, arguments.markdown, arguments.junit = (files[name] for name in list(files)[:3])
    found = judge(arguments.results, arguments.baseline, sweep, arguments)
    shown.write(files["verdict.json"], json.dumps(shown.data(found), indent=1) + "\n")
    out = sys.stderr if getattr(arguments, "json", False) else sys.stdout  # where JSON is asked for, it comes alone
    print(shown.text(found), file=out)
    beside = ", ".join(sorted(set(files) - {"verdict.html"}))
    print(f"\nverdict: {files['verdict.html']}, and beside it {beside}", file=out)
    return found.status if found.status == comparing.WORSE or not status else status


def judge(results: Path, a: str, b: str, arguments: argparse.Namespace) -> Comparison:
    """Compare by the rule of the command line and write the files that it asks for."""
    from orchestrator.analysis.compare import comparing
    from orchestrator.report.compare import comparison as shown

    rule = _rule(arguments)
    found = comparing.compare(results, a, b, rule=rule)
    if arguments.markdown:
        shown.write(arguments.markdown, shown.markdown(found))
    if arguments.junit:
        shown.write(arguments.junit, shown.junit(found))
    if arguments.html:
        from orchestrator.report.compare import page

        page.render(found, arguments.html)
    return found


def _results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="the results store (results)"
    )


def _compare(arguments: argparse.Namespace) -> int:
    from orchestrator.report.compare import comparison as shown

    found = judge(arguments.results, arguments.a, arguments.b, arguments)
    print(json.dumps(shown.data(found), indent=1) if arguments.json else shown.text(found))
    return found.status


def _rule(arguments: argparse.Namespace) -> Rule:
    from orchestrator.analysis.compare.regression import Rule

    return Rule(
        alpha=_share(arguments.alpha, "--alpha"),
        margin={
            "p50": _share(arguments.margin, "--margin"),
            "p99": _share(getattr(arguments, "margin_p99", "10%"), "--margin-p99"),
        },
    )


def _share(text: str, option: str) -> float:
    from pydantic import TypeAdapter, ValidationError

    from orchestrator.core.units import Share

    try:
        value = float(TypeAdapter(Share).validate_python(text))
    except ValidationError:
        value = math.nan
    if not 0 < value < 1:
        raise ConfigError(f"{option}: {text!r} is no share; accepted: more than 0% and less than 100%, such as 5%")
    return value


def _set(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis.compare import selection

    path = selection.set_baseline(arguments.results, arguments.name, arguments.of)
    chosen = selection.choose(arguments.results, arguments.name)
    runs = {one.run for found in chosen.points.values() for one in found}
    print(f"baseline {arguments.name}: {len(chosen.points)} points from {len(runs)} runs, in {path}")
    for line in chosen.left_out:
        print(f"  not counted: {line}")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis.compare import selection
    from orchestrator.analysis.compare.comparing import day_text
    from orchestrator.experiment import describe

    found = selection.baselines(arguments.results)
    rows = [
        (str(b["name"]), day_text(b.get("set_ns", 0)), str(len(b["runs"])), ", ".join(b.get("of", []))) for b in found
    ]
    print(describe.table(("baseline", "set", "runs", "of"), rows) if rows else f"no baselines in {arguments.results}")
    return 0


def _history(arguments: argparse.Namespace) -> int:
    import dataclasses

    from orchestrator.analysis.compare import comparing, selection
    from orchestrator.core.errors import StoreError
    from orchestrator.report.compare.comparison import finite

    nights = selection.nights(arguments.results, arguments.name)
    if not nights:
        raise StoreError(f"{arguments.name}: no night of it in {arguments.results}", hint="orch ls")
    found = comparing.histories(nights, rule=_rule(arguments))
    if arguments.json:
        print(json.dumps(finite([dataclasses.asdict(history) for history in found]), indent=1))
        return 0
    print(f"{arguments.name}: {len(nights)} nights, {found[0].days[0]} to {found[0].days[-1]}, {len(found)} points")
    print("\n".join(comparing.step_lines(found)) or "no step")
    return 0
