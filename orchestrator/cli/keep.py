"""The commands that maintain results: `orch export`, `store`, `prune`, `recover` and `reduce`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import options, query
from orchestrator.cli.commands import Commands, Group
from orchestrator.core.errors import ConfigError, OrchError
from orchestrator.core.exitcodes import Exit

if TYPE_CHECKING:
    from orchestrator.experiment.testbeds import Named
    from orchestrator.store.compact.compacting import Compacted
    from orchestrator.store.manifests.records import Stayed
    from orchestrator.store.retention import Policy
    from orchestrator.store.rundir import Entry


def register(commands: Commands) -> None:
    """Add the commands of this group."""
    group = commands.group("keep")
    query.register_export(group)
    _register_store(group)
    prune = group.add(
        "prune",
        "compress or delete packet captures of old runs; everything else stays",
        action=_prune,
        example="orch prune --compress-after 2d --drop-after 14d --keep 50gb",
    )
    _prune_options(prune)

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


def _register_store(group: Group) -> None:
    """Add `orch store`."""
    store = group.add(
        "store",
        "compact the tables of all runs into few files, for questions about many runs, or push them to a bucket",
        example="orch store compact",
    )
    commands = store.add_subparsers(dest="store", metavar="COMMAND", required=True)
    text = "bring compacted tables, beside the run folders, up to date"
    compact = commands.add_parser("compact", help=text, description=f"{text[0].upper()}{text[1:]}.")
    options.results(compact)
    compact.set_defaults(action=_compact)

    text = "compact the store, then send what is new to a bucket: runs, compacted tables, and last the catalogue"
    push = commands.add_parser("push", help=text, description=f"{text[0].upper()}{text[1:]}.")
    options.results(push)
    push.add_argument("url", metavar="URL", help="where to, such as s3://bucket/results")
    push.add_argument("--without-captures", action="store_true", help="leave packet captures here")
    push.add_argument("--verify", action="store_true", help="read all that lies there, and send again what is damaged")
    push.set_defaults(action=_push)

    text = "read all files of a store and hold them against every digest that was recorded"
    verify = commands.add_parser("verify", help=text, description=f"{text[0].upper()}{text[1:]}.")
    options.results_to_read(verify)
    verify.add_argument("runs", metavar="RUN", nargs="*", help="only these runs (default: the whole store)")
    verify.add_argument("--without-captures", action="store_true", help="do not read packet captures")
    verify.set_defaults(action=_verify)


def _push(arguments: argparse.Namespace) -> int:
    from orchestrator.core.units import bytes_text
    from orchestrator.store.elsewhere import pushing

    code = _tell_compacted(_compacted(arguments.results), arguments.results)
    captures = not arguments.without_captures
    done = pushing.push(arguments.results, arguments.url, captures=captures, verify=arguments.verify, tell=_progress)
    for problem in done.problems:
        print(f"orch: {problem}", file=sys.stderr)
    print(f"{arguments.url}: {done.runs} runs and {done.files} compacted files sent, {bytes_text(done.bytes)}")
    return Exit.FAILED if done.problems else code


def _verify(arguments: argparse.Namespace) -> int:
    from orchestrator.core.units import bytes_text
    from orchestrator.store import verifying

    captures = not arguments.without_captures
    done = verifying.verify(arguments.results, arguments.runs, captures=captures, tell=_progress)
    for problem in done.problems:
        print(f"orch: {problem.text}" + (f"\n  remedy: {problem.hint}" if problem.hint else ""), file=sys.stderr)
    what = f"{len(done.problems)} problems" if done.problems else "all is as it was recorded"
    print(f"{arguments.results}: {done.runs} runs, {done.files} files, {bytes_text(done.bytes)} read; {what}")
    return Exit.FAILED if done.problems else Exit.OK


def _compact(arguments: argparse.Namespace) -> int:
    return _tell_compacted(_compacted(arguments.results), arguments.results)


def _compacted(results: Path) -> Compacted:
    """Compact a store; a bar shows how far that is."""
    from orchestrator.execution.observers.progress import Progress
    from orchestrator.store.compact import compacting

    progress = Progress()
    try:
        return compacting.compact(results, tell=progress.share)
    finally:
        progress.done()


def _tell_compacted(done: Compacted, results: Path) -> int:
    """Print the result of compacting; return the exit code."""
    from orchestrator.core.units import bytes_text

    for problem in done.problems:
        print(f"orch: left out: {problem}", file=sys.stderr)
    print(f"{results}: {done.runs} runs in {done.files} files; {done.written} written, {bytes_text(done.bytes)}")
    return Exit.FAILED if done.problems else Exit.OK


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def _prune_options(parser: argparse.ArgumentParser) -> None:
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


def _prune(arguments: argparse.Namespace) -> int:
    """Compress and delete captures; return the exit code."""
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
    """Remove captures that stay on hosts.

    Return those removed (or to remove, `dry`), and the number of failed hosts.
    """
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
    """Return the runs that may be pruned, and the number of others, which are printed."""
    from orchestrator.store import retention, rundir

    found, trouble = [], 0
    for path in runs:
        try:
            found.append(retention.checked(rundir.opened(path)))
        except OrchError as error:
            trouble += 1
            print(f"{path.name}: {error.message}; it is left alone", file=sys.stderr)
    return found, trouble
