"""The command that measures our claims on a testbed: `orch verify`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from orchestrator.cli import options
from orchestrator.cli.commands import Group
from orchestrator.core.screen import console

_MORE = """\
Every claim that hardware could break is measured on the testbed and is held,
broken or not judged: agents, clocks, loads at 10, 50 and 90 % of the link,
captures and the meter against counters, drivers' counters by name, undo after
kill -9, bytes of each framework that is installed, overhead of collectors,
NCCL, RDMA and GPUs where they are. No run begins after 25 minutes. --anonymous
writes a file without names, addresses, users and paths, which can be given to
others."""


def register(group: Group) -> None:
    """Add `orch verify`."""
    verify = group.add(
        "verify",
        "measure on a testbed each claim that hardware could break, and say which hold",
        action=_verify,
        example="orch verify rack.yaml --wait 10min --anonymous rack.json",
        more=_MORE,
    )
    verify.add_argument(
        "testbed",
        nargs="?",
        default="local",
        metavar="TESTBED",
        help="an inventory, an experiment whose testbed it is, or local: hosts made on this machine (local)",
    )
    verify.add_argument("--quick", action="store_true", help="shorter windows, fewer runs, and few frameworks")
    verify.add_argument(
        "--only", action="append", default=[], metavar="CLAIM", help="only this claim, by name; may be repeated"
    )
    verify.add_argument("--what", action="store_true", help="measure nothing; print the claims and what breaks each")
    verify.add_argument("--anonymous", type=Path, metavar="FILE", help="write the result as JSON without any name")
    verify.add_argument("-o", "--output", type=Path, metavar="FILE", help="the page (verify-TESTBED.html)")
    options.results(verify)
    options.wait(verify)
    options.force(verify)


def _verify(arguments: argparse.Namespace) -> int:
    from orchestrator.verify import anonymous, page, verifying

    if arguments.what:
        for claim in verifying.chosen(arguments.only):
            console.tell(f"{claim.name}: {claim.says}\n    broken by {claim.breaks}")
        return 0
    how = options.of_runs(arguments)
    found = verifying.verify(arguments.testbed, how, quick=arguments.quick, only=arguments.only)
    how.progress.done()
    console.tell(page.text(found))
    console.tell(str(page.write(found, arguments.output or Path(f"verify-{Path(arguments.testbed).stem}.html"))))
    if arguments.anonymous is not None:
        anonymous.write(found, arguments.anonymous)
        console.tell(str(arguments.anonymous), stream=sys.stderr)
    return found.status
