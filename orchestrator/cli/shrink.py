"""The command `orch shrink`: the smallest file that shows an effect which sealed runs show."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from orchestrator.cli import options
from orchestrator.cli.commands import Group
from orchestrator.core.errors import ConfigError
from orchestrator.core.screen import console

_BUDGET = "30min"
_MORE = """\
The effect is the largest between B and A, or between two values of an axis of
the sweep A. Fewer hosts, ranks, iterations, collectors, sources of traffic and
conditions, smaller models and both sides in one run are tried one after the
other, what saves most first. Each pair is measured in turns (A B, B A) until
its 95 % interval leaves out "no change", or the effect is excluded. What holds
is kept; the last pair is measured once more and written, with what was tried.
The same command goes on with what is sealed."""


def register(group: Group) -> None:
    """Add `orch shrink`."""
    parser = group.add(
        "shrink",
        "find the smallest experiment that still shows an effect, and write its file",
        action=_shrink,
        example="orch shrink load --by traffic.0.iperf.load=0gbit,8gbit --budget 30min -o small.yaml",
        more=_MORE,
    )
    parser.add_argument("a", metavar="A", help=f"the reference: {options.NAMES}")
    parser.add_argument("b", metavar="B", nargs="?", help="what differs from A, in the same notation")
    parser.add_argument(
        "--by",
        metavar="AXIS[=V,W]",
        help="two values of an axis of the sweep A, in place of A and B (default: what its `until` compares, or its "
        "only axis)",
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="only the effect at points that meet this condition, such as model=vgg16; may be repeated",
    )
    parser.add_argument(
        "--budget", default=_BUDGET, metavar="TIME", help=f"most time that all runs of it may take ({_BUDGET})"
    )
    parser.add_argument("--what", action="store_true", help="measure nothing; print the effect and the first steps")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the sweep file (NAME-small.yaml)")
    options.testbeds(parser, "hosts that are not on this machine are reached")
    options.results(parser)
    options.wait(parser)
    options.quiet(parser)
    options.force(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output, last")


def _shrink(arguments: argparse.Namespace) -> int:
    """Shrink an effect, write its file and print what was tried; return the exit code."""
    from orchestrator.core import where
    from orchestrator.core.fields import Duration
    from orchestrator.experiment import opening
    from orchestrator.report.site import refreshing
    from orchestrator.sweep import pairs, shrinking, shrinktext

    if arguments.by and arguments.b:
        raise ConfigError("--by: stands beside B; accepted: one of both")
    budget_s = options.quantity(arguments.budget, "--budget", Duration, _BUDGET)
    if not budget_s:
        raise ConfigError(f"--budget: {arguments.budget!r}: accepted: more than no time, such as {_BUDGET}")
    effect = pairs.effect(
        arguments.results,
        arguments.a,
        arguments.b,
        by=arguments.by,
        conditions=where.parse(arguments.where),
        named=opening.named_testbeds(arguments.testbeds),
    )
    how = options.of_runs(arguments)
    search = shrinking.Shrinking(effect, shrinking.by_runs(how), budget_s, how.progress.say)
    if arguments.what:
        console.tell(shrinktext.outlook_text(effect, search))
        return 0
    output = arguments.output or Path(f"{shrinking.final_name(effect)}.yaml")
    how.progress.say(shrinktext.effect_text(effect))
    found = search.carry_out()
    how.progress.done()
    shrinktext.write(found, output)
    refreshing.refresh(arguments.results)
    out = sys.stderr if arguments.json else sys.stdout
    console.tell_verdicts(f"{shrinktext.result_text(found)}\n{output}", stream=out)
    if arguments.json:
        console.tell(json.dumps(shrinktext.data(found, output)))
    options.tell_next(arguments, ["sweep", str(output)], "shows the effect again")
    return found.status
