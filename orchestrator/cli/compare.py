"""The commands that compare: `orch compare`, `baseline` and `history`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from orchestrator.cli import options
from orchestrator.cli.commands import Commands
from orchestrator.core.errors import ConfigError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.screen import console

if TYPE_CHECKING:
    from orchestrator.analysis.compare.comparing import Comparison
    from orchestrator.analysis.compare.regression import Rule

_MARGIN, _MARGIN_P99, _ALPHA, _NIGHT_SPREAD = "2%", "10%", "5%", "2%"
_ALARMS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files to which a comparison is written."""

    html: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None


def register(commands: Commands) -> None:
    """Add the commands of this group."""
    group = commands.group("compare")
    compare = group.add(
        "compare",
        "compare runs point by point: worse, better, same, or cannot tell; with intervals",
        action=_compare,
        example="orch compare main nightly@today --markdown verdict.md --junit verdict.xml",
    )
    compare.add_argument("a", metavar="A", help=f"the reference: {options.NAMES}")
    compare.add_argument("b", metavar="B", nargs="?", help="what is compared with A, in the same notation")
    compare.add_argument(
        "--settings", action="store_true", help="compare also points whose settings differ between A and B"
    )
    compare.add_argument(
        "--by",
        metavar="AXIS[=V,W]",
        help="compare two values of an axis of the sweep A, in place of A with B; the first is the reference",
    )
    options.results(compare)
    add_rule(compare)
    compare.add_argument("--html", type=Path, metavar="FILE", help="write a page with the history of every point")
    compare.add_argument("--markdown", type=Path, metavar="FILE", help="write Markdown")
    compare.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML, one test case per point")
    compare.add_argument("--json", action="store_true", help="print everything as one JSON object")

    _add_baseline(
        group.add(
            "baseline",
            "give runs a name, to compare later runs with them",
            example="orch baseline set main nightly@2026-11-20",
        )
    )

    history = group.add(
        "history",
        "find the nights on which a sweep or an experiment became faster or slower",
        action=_history,
        example="orch history nightly",
    )
    history.add_argument("name", metavar="NAME", help="a sweep or an experiment")
    options.results_to_read(history)
    history.add_argument(
        "--margin", default=_MARGIN, metavar="SHARE", help="smallest step of mean or median that counts (2%%)"
    )
    history.add_argument(
        "--margin-p99", default=_MARGIN_P99, metavar="SHARE", help="smallest step of the p99 that counts (10%%)"
    )
    history.add_argument("--alpha", default=_ALPHA, metavar="SHARE", help="probability of any false step (5%%)")
    history.add_argument("--json", action="store_true", help="print everything as one JSON object")


def add_rule(parser: argparse.ArgumentParser) -> None:
    """Add the options that define when a difference counts."""
    parser.add_argument(
        "--margin", default=_MARGIN, metavar="SHARE", help="smallest change of mean or median that counts (2%%)"
    )
    parser.add_argument(
        "--margin-p99", default=_MARGIN_P99, metavar="SHARE", help="smallest change of the p99 that counts (10%%)"
    )
    parser.add_argument(
        "--alpha",
        default=_ALPHA,
        metavar="SHARE",
        help="probability that equal runs of one night are called different, over all points (5%%)",
    )
    parser.add_argument(
        "--alarms-a-year",
        type=float,
        default=_ALARMS,
        metavar="NUMBER",
        help="nights of a year that may wrongly be called worse, over all points (1)",
    )
    parser.add_argument(
        "--night-spread",
        default=_NIGHT_SPREAD,
        metavar="SHARE",
        help="standard deviation between nights that is assumed, until nights of the baseline show less (2%%)",
    )


def _add_baseline(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="baseline", metavar="COMMAND", required=True)
    sub = commands.add_parser("set", help="give runs a name", description="Give runs a name.")
    sub.add_argument("name", metavar="NAME", help="the baseline's name, such as main")
    sub.add_argument("of", metavar="WHAT", nargs="+", help=f"its runs: {options.NAMES}; best of five nights or more")
    options.results(sub)
    sub.set_defaults(action=_set)
    sub = commands.add_parser("ls", help="list the baselines", description="List the baselines.")
    options.results(sub)
    sub.set_defaults(action=_list)


def require_baseline(results: Path, name: str) -> None:
    """Raise StoreError, before a night is measured, where there is no baseline to judge it by."""
    from orchestrator.store import baselines

    baselines.entries(results, name)


def judge_sweep(results: Path, baseline: str, sweep: str, *, rule: Rule, folder: Path, status: int, out: TextIO) -> int:
    """Compare a sweep with a baseline, print the summary, write it to the sweep's folder; return the exit code.

    `status` is how the sweep itself ended. A worse point outranks it; where the sweep was well, the verdict decides.
    """
    from orchestrator.report import comparison_texts as shown

    page, table, cases = (folder / name for name in ("verdict.html", "summary.md", "junit.xml"))
    found = judge(results, baseline, sweep, rule=rule, files=Files(html=page, markdown=table, junit=cases))
    shown.write(folder / "verdict.json", json.dumps(shown.data(found), indent=1) + "\n")
    console.print_verdicts(shown.text(found), stream=out)
    print(f"\nverdict: {page}, and beside it junit.xml, summary.md, verdict.json", file=out)
    return found.status if found.status == Exit.WORSE or status == Exit.OK else status


def judge(results: Path, a: str, b: str, *, rule: Rule, files: Files) -> Comparison:
    """Compare two names and write the comparison to files."""
    from orchestrator.analysis.compare import comparing

    found = comparing.compare(results, a, b, rule=rule)
    _write(found, files)
    return found


def _write(found: Comparison, files: Files) -> None:
    from orchestrator.report import comparison_texts as shown

    if files.markdown:
        shown.write(files.markdown, shown.markdown(found))
    if files.junit:
        shown.write(files.junit, shown.junit(found))
    if files.html:
        from orchestrator.report import compare_page

        compare_page.render(found, files.html)


def _compare(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis.compare import comparing
    from orchestrator.core.screen import layout
    from orchestrator.report import comparison_texts as shown

    files = Files(html=arguments.html, markdown=arguments.markdown, junit=arguments.junit)
    if bool(arguments.by) == bool(arguments.b):
        raise ConfigError("nothing to compare A with; accepted: B, or --by AXIS")
    rule = rule_of(arguments)
    if arguments.by:
        axis, _, values = arguments.by.partition("=")
        found = comparing.compare_axis(
            arguments.results, arguments.a, axis, list(filter(None, values.split(","))), rule=rule
        )
    else:
        found = comparing.compare(arguments.results, arguments.a, arguments.b, rule=rule, settings=arguments.settings)
    _write(found, files)
    if arguments.json:
        print(json.dumps(shown.data(found), indent=1))
    else:
        console.print_verdicts(shown.text(found, width=layout.columns()))
    _tell_next(arguments, found)
    return found.status


def _tell_next(arguments: argparse.Namespace, found: Comparison) -> None:
    """Print what to do where a point changed: shrink the effect of a setting, else explain the last run."""
    if not found.of("worse") and not found.of("better"):
        return
    if arguments.by:
        options.tell_next(arguments, ["shrink", arguments.a, "--by", arguments.by], "the smallest file that shows it")
    elif arguments.settings:
        options.tell_next(arguments, ["shrink", arguments.a, arguments.b], "the smallest file that shows it")
    else:
        options.tell_next(arguments, ["why", found.b.entries[-1].run], "what makes its iterations slow")


def rule_of(arguments: argparse.Namespace) -> Rule:
    """Return the rule that the options of `add_rule` make."""
    return _rule(
        alpha=arguments.alpha,
        margin=arguments.margin,
        margin_p99=arguments.margin_p99,
        alarms_a_year=arguments.alarms_a_year,
        night_spread=arguments.night_spread,
    )


def _rule(
    *,
    alpha: str,
    margin: str,
    margin_p99: str = _MARGIN_P99,
    alarms_a_year: float = _ALARMS,
    night_spread: str = _NIGHT_SPREAD,
) -> Rule:
    from orchestrator.analysis.compare.regression import NIGHTS_A_YEAR, Rule

    if not 0 < alarms_a_year < NIGHTS_A_YEAR / 4:
        raise ConfigError(f"--alarms-a-year: {alarms_a_year:g} is not possible; accepted: more than 0, up to 90")
    return Rule(
        alpha=share(alpha, "--alpha"),
        margin={
            "mean": share(margin, "--margin"),
            "p50": share(margin, "--margin"),
            "p99": share(margin_p99, "--margin-p99"),
        },
        alarms_a_year=alarms_a_year,
        night_spread=share(night_spread, "--night-spread"),
    )


def share(text: str, option: str) -> float:
    """Return the value of an option such as 5% as a fraction; ConfigError where it is not between 0 and 1."""
    from pydantic import TypeAdapter, ValidationError

    from orchestrator.core.fields import Share

    try:
        value = float(TypeAdapter(Share).validate_python(text))
    except ValidationError:
        value = math.nan
    if not 0 < value < 1:
        raise ConfigError(f"{option}: {text!r} is not a share; accepted: more than 0% and less than 100%, such as 5%")
    return value


def _set(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis.compare import selection
    from orchestrator.report.site import refreshing

    path = selection.set_baseline(arguments.results, arguments.name, arguments.of)
    chosen = selection.choose(arguments.results, arguments.name)
    runs = {one.run for found in chosen.points.values() for one in found}
    print(f"baseline {arguments.name}: {len(chosen.points)} points from {len(runs)} runs, in {path}")
    for line in chosen.left_out:
        print(f"  not counted: {line}")
    refreshing.refresh(arguments.results)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from orchestrator.analysis.compare.point_histories import day_text
    from orchestrator.core.screen import layout
    from orchestrator.store import baselines

    rows = [
        (found.name, day_text(found.set_ns), str(len(found.runs)), ", ".join(found.of))
        for found in baselines.every(arguments.results)
    ]
    print(layout.table(("baseline", "set", "runs", "of"), rows) if rows else f"no baselines in {arguments.results}")
    return 0


def _nights_text(days: Sequence[str]) -> str:
    """Write how many nights there are, and the UTC days on which the first and the last of them began."""
    count = f"{len(days)} night{'' if len(days) == 1 else 's'}"
    if days[0] == days[-1]:
        return f"{count} begun on {days[0]}"
    return f"{count}, {days[0]} to {days[-1]}"


def _history(arguments: argparse.Namespace) -> int:
    import dataclasses

    from orchestrator.analysis.causes import recurring
    from orchestrator.analysis.compare import comparing, point_histories, repeated_draws
    from orchestrator.core.errors import StoreError
    from orchestrator.report.comparison_texts import finite
    from orchestrator.store import stores

    store = stores.opened(arguments.results)
    measured = point_histories.nights(store, arguments.name)
    if not measured:
        raise StoreError(f"no night of {arguments.name} in {arguments.results}", hint="orch ls")
    rule = _rule(alpha=arguments.alpha, margin=arguments.margin, margin_p99=arguments.margin_p99)
    found = point_histories.histories(measured, rule=rule)
    for line in repeated_draws.lines(stores.of_name(store, arguments.name)):
        print(f"warning: {line}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(finite([dataclasses.asdict(history) for history in found]), indent=1))
        return 0
    print(f"{arguments.name}: {_nights_text(found[0].days)}, {len(found)} points")
    print("\n".join(comparing.history_lines(found)))
    named = list(recurring.of_entries(store, stores.of_name(store, arguments.name)))
    if culprits := recurring.culprits(named):
        print("\nCauses that recur:\n" + "\n".join(f"  {line}" for line in recurring.text(named, culprits)))
    return 0
