"""The command line of `orch`: parses arguments, calls the command, and prints errors."""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import io
import itertools
import re
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from orchestrator.cli import look, options
from orchestrator.cli.commands import Commands
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


class _Registering(Protocol):
    """A module with a group of commands."""

    @property
    def register(self) -> Callable[[Commands], None]: ...


_MOST_PATHS = 3  # of one name that are told
_FILES = 1 << 16  # that may be open at once
_COLLECTED_AFTER = 50_000  # objects; Python's 700 has it look through the records of a large store again and again


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with every command's help."""
    from orchestrator.cli import compare, keep, measure, prepare

    parser, commands = _parser_of(measure, look, compare, keep, prepare)
    parser.description = f"{DESCRIPTION}\n\n{commands.text()}"
    parser.epilog = f"{EXAMPLES}\n\n{exit_text()}"
    return parser


def _parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser that knows the command of this command line: that of `look` alone where it is one of these.

    They take no longer to answer than the modules of all other commands take to load.
    """
    if words and not words[0].startswith("-"):
        parser, commands = _parser_of(look)
        if words[0] in commands.names():
            return parser
    return build_parser()


def _parser_of(*groups: _Registering) -> tuple[argparse.ArgumentParser, Commands]:
    """Return a parser of these groups of commands."""
    parser = argparse.ArgumentParser(
        prog="orch", usage="orch [--help] [--version] COMMAND ...", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = Commands(parser)
    for group in groups:
        group.register(commands)
    return parser, commands


def exit_text() -> str:
    """Return the exit codes as text for the help."""
    return "\n".join(["exit codes:", *(f"  {code.value:<4} {meaning}" for code, meaning in MEANINGS.items())])


def prepare_process() -> None:
    """Set up the process when it runs the command and nothing else.

    A connection to a host takes a file or more, of which a shell allows 1,024: _FILES are allowed, where this user may
    have them. Not as many as this user may have: there are programs, Open MPI's among them, that begin by closing all.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    gc.set_threshold(_COLLECTED_AFTER)
    atexit.register(gc.freeze)  # everything is written and closed: no need to look for cycles again on the way out


def carried_out(argv: Sequence[str] | None) -> int:
    """Run a command line, by default this process's own arguments; return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # of a terminal that knows fewer letters
    with terminal.guarded():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    console.forget_notes()
    words = sys.argv[1:] if argv is None else argv
    parser = _parser_for(words)
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_as_settings(arguments, unknown)}")
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


def _as_settings(arguments: argparse.Namespace, unknown: Sequence[str]) -> str:
    """Return the `--set` options to suggest for unknown options that are keys of the experiment."""
    words = [*unknown, ""]
    given: dict[str, str] = {}
    for word, after in itertools.pairwise(words):
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            given[name] = value or ("VALUE" if after.startswith("-") or not after else after)
    if not given or not hasattr(arguments, "overrides"):
        return ""
    found = {name: _places(getattr(arguments, "file", None), name.replace("-", "_")) for name in given}
    settings = [f"--set {path}={given[name]}" for name, paths in found.items() for path in paths[:_MOST_PATHS]]
    return f"; keys of the experiment are set by: {' or '.join(settings)}" if settings else ""


def _places(file: Path | None, key: str) -> list[str]:
    """Return the paths of a key in the named file, else those possible in an experiment, for `--set`."""
    from orchestrator.experiment import documents, editorschema

    try:
        data = {} if file is None else documents.load(file, needs="").data
    except ConfigError:
        data = {}
    return [documents.dotted(way) for way in _ways(data, key)] or editorschema.paths("experiment", key)


def _ways(data: object, key: str) -> Iterator[tuple[str | int, ...]]:
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, value in inside:
        if name == key:
            yield (name,)
        yield from ((name, *way) for way in _ways(value, key))


def _carried_out(arguments: argparse.Namespace) -> int:
    """Call the command and return its exit code; an error is printed as a message."""
    try:
        options.make_folders(arguments)
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
        console.tell(f"orch: {shortened(repr(_word_of(error)))} is not text in UTF-8: rename it", stream=sys.stderr)
        return Exit.MISTAKE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _word_of(error: UnicodeEncodeError) -> str:
    """Return the word that cannot be encoded, out of its text, which may be a page."""
    before, behind = error.object[: error.start], error.object[error.start :]
    return re.split(r"[\s<>]", before)[-1] + re.split(r"[\s<>]", behind, maxsplit=1)[0]
