"""The `orch prune` command: compresses or drops captures of sealed runs by age and size, and keeps everything else."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.core.errors import ConfigError, OrchError
from orchestrator.core.exitcodes import Exit

if TYPE_CHECKING:
    from orchestrator.experiment.testbeds import Named
    from orchestrator.store.manifests.records import Stayed
    from orchestrator.store.retention import Policy
    from orchestrator.store.rundir import Entry


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch prune`."""
    options.results(parser)
    parser.add_argument(
        "--compress-after", metavar="AGE", help="compress captures of runs that ended longer ago than this, such as 2d"
    )
    parser.add_argument(
        "--drop-after", metavar="AGE", help="delete captures of runs that ended longer ago than this, such as 14d"
    )
    parser.add_argument(
        "--keep", metavar="SIZE", help="delete the oldest captures until the rest fits into this size, such as 50gb"
    )
    options.testbeds(parser, "hosts are reached whose captures --drop-after removes there")
    parser.add_argument("--baselines-too", action="store_true", help="prune runs of baselines, too")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")


def prune(arguments: argparse.Namespace) -> int:
    """Compress and delete captures; gives the exit code."""
    from orchestrator.core.fields import Size
    from orchestrator.core.units import bytes_text
    from orchestrator.experiment import opening
    from orchestrator.store import baselines, retention, rundir

    policy = retention.Policy(
        compress_after_s=options.age(arguments.compress_after, "--compress-after", "2d, 36h"),
        drop_after_s=options.age(arguments.drop_after, "--drop-after", "14d, 36h"),
        keep_bytes=options.quantity(arguments.keep, "--keep", Size, "50gb"),
    )
    if policy == retention.Policy():
        raise ConfigError(
            "orch prune: no limit is given; accepted: at least one of --compress-after, --drop-after, --keep, such as "
            "--drop-after 14d (none has a default)"
        )
    named = opening.named_testbeds(arguments.testbeds)
    held = set() if arguments.baselines_too else set(baselines.held(arguments.results))
    entries, trouble = _sound(path for path in rundir.folders(arguments.results) if path.resolve() not in held)
    freed = 0
    actions = retention.plan(entries, policy, now_ns=time.time_ns())
    for entry in entries:
        run, mine = entry.path, [action for action in actions if action.run == entry.path]
        for action in mine:
            print(f"{action.what} {run.name}/{action.path}, {bytes_text(action.bytes)}: {action.why}")
        if arguments.dry_run:
            continue
        try:
            if mine or (entry.sealed and retention.leftovers(run, entry.manifest)):
                freed += retention.carry_out(run, mine)
        except (OrchError, OSError) as error:
            trouble += 1
            print(f"{run.name}: {error}", file=sys.stderr)
    dropped, failed = _drop_elsewhere(entries, policy, named, dry=arguments.dry_run)
    freed, trouble, pruned = freed + sum(one.bytes for one in dropped), trouble + failed, len(actions) + len(dropped)
    count = f"{pruned} captures" if pruned != 1 else "1 capture"
    print(f"{count} to prune; nothing was done" if arguments.dry_run else f"{count}, {bytes_text(freed)} freed")
    return Exit.FAILED if trouble else Exit.OK


def _drop_elsewhere(
    entries: Iterable[Entry], policy: Policy, named: Sequence[Named], *, dry: bool
) -> tuple[list[Stayed], int]:
    """Drop captures that hosts keep; which ones went (or would go, `dry`), and of how many hosts none could."""
    from orchestrator.core.units import bytes_text
    from orchestrator.hosts import dropping
    from orchestrator.store import retention

    gone, failed = [], 0
    for entry in entries:
        wanted = retention.elsewhere(entry, policy, now_ns=time.time_ns())
        for one in wanted:
            why = retention.age_text(policy)
            print(f"drop {entry.path.name}/{one.path}, {bytes_text(one.bytes)}, on {one.node}: {why}")
        if wanted and not dry:
            wanted, troubles = dropping.drop(entry, retention.age_text(policy), named)
            failed += len(troubles)
            for line in troubles:
                print(f"{entry.path.name}: {line}", file=sys.stderr)
        gone += wanted
    return gone, failed


def _sound(runs: Iterable[Path]) -> tuple[list[Entry], int]:
    """The runs that may be pruned, and how many may not, which are told."""
    from orchestrator.store import retention, rundir

    found, trouble = [], 0
    for path in runs:
        try:
            found.append(retention.checked(rundir.opened(path)))
        except OrchError as error:
            trouble += 1
            print(f"{path.name}: {error.message}; it is left alone", file=sys.stderr)
    return found, trouble
