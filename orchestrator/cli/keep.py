"""The commands that look after results: `orch export`, `store`, `prune`, `recover` and `reduce`."""

from __future__ import annotations

import argparse

from orchestrator.cli import options
from orchestrator.cli.commands import Commands
from orchestrator.cli.results import prune_cli, query_cli, store_cli


def register(commands: Commands) -> None:
    """Add the commands of this group."""
    group = commands.group("keep")
    query_cli.register_export(group)
    store_cli.register(group)
    prune = group.add(
        "prune",
        "compress or delete packet captures of old runs; everything else stays",
        action=prune_cli.prune,
        example="orch prune --compress-after 2d --drop-after 14d --keep 50gb",
    )
    prune_cli.add_options(prune)

    recover = group.add(
        "recover",
        "fetch what an unfinished run left on its hosts, and seal it",
        action=_recover,
        example="orch recover --testbed rack.yaml",
        more="Runs on this machine need no --testbed. Nothing in a run's folder says how its hosts are reached.",
    )
    options.results(recover)
    options.testbeds(recover, "the hosts of the runs are reached")
    recover.add_argument("runs", metavar="RUN", nargs="*", help="unfinished runs (default: all)")
    recover.add_argument(
        "--without",
        metavar="HOST",
        action="append",
        default=[],
        help="do without the files that this host has of a run, because the host will not come back",
    )
    recover.add_argument(
        "--force",
        action="store_true",
        help="recover a named run that another machine began; only if it has certainly ended there",
    )

    reduce = group.add(
        "reduce",
        "make the tables of sealed runs again from their files, and judge them by these",
        action=_reduce,
        example="orch reduce last",
    )
    options.results(reduce)
    reduce.add_argument("runs", metavar="RUN", nargs="+", help=options.RUN)


def _reduce(arguments: argparse.Namespace) -> int:
    from orchestrator.execution import reducing
    from orchestrator.report.site import refreshing

    status = reducing.reduce(arguments.results, arguments.runs)
    refreshing.refresh(arguments.results)
    return status


def _recover(arguments: argparse.Namespace) -> int:
    from orchestrator.execution import recovery
    from orchestrator.experiment import opening
    from orchestrator.report.site import refreshing

    named = opening.named_testbeds(arguments.testbeds)
    status = recovery.recover(
        arguments.results, arguments.runs, named=named, without=arguments.without, force=arguments.force
    )
    refreshing.refresh(arguments.results)
    return status
