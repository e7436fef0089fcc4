"""The command `orch site`: a front page for the results store."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.commands import Group

if TYPE_CHECKING:
    from orchestrator.store.rundir import Listed

MORE = """\
The page opens from disk and needs no network. From now on it is written again
after each run that is sealed into the store. It lists runs, sweeps and
studies with their verdicts, shows the history of every point, and puts two
runs side by side."""


def register(group: Group) -> None:
    """Add `orch site`."""
    site = group.add(
        "site",
        "write index.html, a front page of all runs, and keep it up to date",
        action=_site,
        example="orch site --reports 20",
        more=MORE,
    )
    options.results(site)
    site.add_argument(
        "--reports",
        nargs="?",
        type=int,
        const=sys.maxsize,
        default=0,
        metavar="NUMBER",
        help="first make the missing reports of the newest NUMBER runs; without NUMBER, of all runs",
    )
    how = site.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="do not write it again after later runs")
    how.add_argument("--refresh", action="store_true", help="write it only if it is kept up to date, as runs do")


def _site(arguments: argparse.Namespace) -> int:
    from orchestrator.core.errors import ConfigError
    from orchestrator.report.site import page, refreshing
    from orchestrator.store import front_page

    if arguments.reports < 0:
        raise ConfigError(f"--reports {arguments.reports}: accepted: 1 or more")
    if arguments.refresh:
        refreshing.refresh(arguments.results)
        return 0
    failed = _reports(arguments.results, arguments.reports)
    print(page.write(arguments.results))
    front_page.keep_fresh(arguments.results, yes=not arguments.once)
    return 1 if failed else 0


def _reports(results: Path, newest: int) -> int:
    """Make the reports that these runs lack; gives how many could not be made."""
    if not newest:
        return 0
    from orchestrator.report.site.pages import Reports
    from orchestrator.store import index

    known = Reports(results)
    sealed = [entry for entry in index.entries(results) if entry.sealed and entry.manifest.windows]
    chosen = sorted(sealed, key=lambda entry: entry.manifest.began_ns, reverse=True)[:newest]
    return sum(not _made(entry) for entry in chosen if not known.of(entry))


def _made(entry: Listed) -> bool:
    from orchestrator.core.errors import OrchError
    from orchestrator.core.screen import console
    from orchestrator.report.page import report_name
    from orchestrator.report.run import html

    try:
        html.render([entry.path], entry.path.parent / report_name(entry.run))
    except OrchError as error:
        console.tell(f"orch: no report of {entry.run}: {error}", stream=sys.stderr)
        return False
    return True
