"""The commands `orch store compact`, `push` and `verify`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.commands import Group
from orchestrator.core.exitcodes import Exit

if TYPE_CHECKING:
    from orchestrator.store.compact.compacting import Compacted


def register(group: Group) -> None:
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
    from orchestrator.store.compact import compacting
    from orchestrator.store.elsewhere import pushing

    code = tell(compacting.compact(arguments.results, tell=_progress), arguments.results)
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
    from orchestrator.store.compact import compacting

    return tell(compacting.compact(arguments.results, tell=_progress), arguments.results)


def tell(done: Compacted, results: Path) -> int:
    """Print what compacting came to; gives the exit code."""
    from orchestrator.core.units import bytes_text

    for problem in done.problems:
        print(f"orch: left out: {problem}", file=sys.stderr)
    print(f"{results}: {done.runs} runs in {done.files} files; {done.written} written, {bytes_text(done.bytes)}")
    return Exit.FAILED if done.problems else Exit.OK


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
