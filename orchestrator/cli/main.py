"""The `orch` command: parses, calls, and renders errors."""

from __future__ import annotations

import argparse
import errno
import gc
import io
import sys
from collections.abc import Sequence

from orchestrator.cli import keep, look, measure, prepare
from orchestrator.cli.commands import Commands
from orchestrator.cli.results import compare_cli
from orchestrator.core.errors import ConfigError, OrchError, shortened
from orchestrator.core.exitcodes import MEANINGS, Exit
from orchestrator.core.screen import console, terminal

DESCRIPTION = """\
Measures what the network does to distributed training, and what training
does to the network.

From one YAML file orch reaches the hosts over SSH, starts training, packet
captures, counters and cross traffic, fetches everything into one sealed
folder, analyses it, and reports whether the numbers are valid."""

EXAMPLES = """\
examples:
  orch doctor                           what this machine lacks for a local testbed
  orch init quickstart                  a first experiment, written into this folder
  orch plan quickstart.yaml             all that it would start
  orch run quickstart.yaml --local
  orch run exp.yaml --set traffic.0.iperf.load=12gbit --set repetitions=1
  orch ls                               the runs in results/
  orch show last                        the newest run, summarized
  orch report last                      its figures and tables in one HTML file"""


_COLLECTED_AFTER = 50_000  # objects; Python's 700 has it look through the records of a large store again and again


def build_parser() -> argparse.ArgumentParser:
    """The command line, with every command's help."""
    parser = argparse.ArgumentParser(
        prog="orch",
        usage="orch [--help] [--version] COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = Commands(parser)
    for group in (measure, look, compare_cli, keep, prepare):
        group.register(commands)
    parser.description = f"{DESCRIPTION}\n\n{commands.text()}"
    parser.epilog = f"{EXAMPLES}\n\n{exit_text()}"
    return parser


def exit_text() -> str:
    """The exit codes, as help shows them."""
    return "\n".join(["exit codes:", *(f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items())])


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `orch` command; gives the exit code."""
    if argv is None:  # this process is the command
        gc.set_threshold(_COLLECTED_AFTER)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # of a terminal that knows fewer letters
    with terminal.guarded():
        status = _main(argv)
    if argv is None:
        gc.freeze()  # everything is written and closed: no need to look for cycles again on the way out
    return status


def _main(argv: Sequence[str] | None) -> int:
    console.forget_notes()
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.version:
        from importlib import metadata

        print(f"orch {metadata.version('orch-testbed')}")
        return Exit.OK
    if arguments.command is None:
        parser.print_help()
        return Exit.OK
    code = _carried_out(arguments)
    if not console.let_go() and code == Exit.OK:
        console.tell("orch: cannot write to standard output: its reader is gone", stream=sys.stderr)
        return Exit.FAILED
    return code


def _carried_out(arguments: argparse.Namespace) -> int:
    """Call the command; an error becomes a message and its exit code."""
    try:
        return int(arguments.action(arguments))
    except BrokenPipeError:  # the reader has gone
        return Exit.FAILED
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        console.tell(f"orch: cannot write: {error.strerror}", stream=sys.stderr)
        return Exit.FAILED
    except OrchError as error:
        text = str(error) if isinstance(error, ConfigError) else f"orch: {error}"
        console.tell(text, stream=sys.stderr)
        return error.exit_code
    except UnicodeEncodeError as error:  # a name from a file system or an argument, which none of ours has
        console.tell(f"orch: {shortened(repr(error.object))} is not text in UTF-8: rename it", stream=sys.stderr)
        return Exit.MISTAKE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
